"""The doctor says what is in one's own data, and what a run would find there."""

import pytest

from launch import machine
from tasks import fitting
from tasks import registry
from tests.launch import own_examples
from tff_xc import errors

RUNS = [
  (
    'images',
    own_examples.photos,
    'photos.tar',
    {'split': 'federated_train.csv', 'test_file': 'test.csv'},
    '36 images of 3 classes (0, 1, 2), 4 of them test; 5 clients',
  ),
  (
    'images',
    own_examples.npz,
    'mine.npz',
    {'split': 'iid:3', 'test_fraction': 0.25},
    '20 images of 4 classes (0, 1, 2, ...), 5 of them test; 3 clients',
  ),
  (
    'table',
    own_examples.items,
    'items.csv',
    {'label_column': 'item', 'user_column': 'user', 'test_column': 'part'},
    '60 rows of 4 classes (item 0, item 1, item 2, ...), 10 of them test; 7'
    ' clients',
  ),
  (
    'sparse-text',
    own_examples.text,
    'train.txt',
    {'split': 'splits/text', 'test_file': 'test.txt'},
    '72 examples of 11 classes (0, 1, 2, ...), 12 of them test; 10 clients',
  ),
  (
    'sparse-text-sets',
    own_examples.text,
    'train.txt',
    {'test_file': 'test.txt'},
    '60 examples, 13 features, 11 labels; 12 test examples',
  ),
]


@pytest.mark.parametrize(
  ('make', 'data_dir', 'given', 'found'),
  [
    (
      own_examples.photos,
      'photos.tar',
      {'split': 'federated_train.csv', 'test_file': 'test.csv'},
      '35 images of 3 classes (0, 1, 2), 3 of them test; 5 clients',
    ),
    (
      own_examples.npz,
      'mine.npz',
      {'split': 'iid:3', 'test_fraction': 0.25},
      '18 images of 4 classes (0, 1, 2, ...), 3 of them test; 3 clients',
    ),
  ],
)
def test_a_sample_of_the_test_of_images(
  make, data_dir, given, found, tmp_path, monkeypatch
):
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  task = registry.get('images')
  options = fitting.checked_options(task, {**given, 'test_examples': 3})
  assert task.find(data_dir, options) == found
  assert len(task.load(data_dir, options).dataset.test) == 3
  options = fitting.checked_options(
    task, {'split': 'class', 'test_examples': 3}
  )
  with pytest.raises(errors.InputError, match='no test part'):
    task.find(data_dir, options)


@pytest.mark.parametrize(('name', 'make', 'data_dir', 'given', 'found'), RUNS)
def test_the_doctor_says_what_a_run_would_find(
  name, make, data_dir, given, found, tmp_path, monkeypatch
):
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  task = registry.get(name)
  options = fitting.checked_options(task, given)
  task.check(options)
  assert task.find(data_dir, options) == found
  with pytest.raises(errors.InputError):
    task.find(data_dir, {**options, 'test_file': 'absent'})


@pytest.mark.parametrize(
  ('task', 'make', 'data_dir', 'found'),
  [
    (
      'images',
      own_examples.photos,
      'photos',
      '39 images of 3 classes (cat, dog, emu), no test part; --split must say',
    ),
    (
      'images',
      own_examples.npz,
      'mine.npz',
      '20 examples of 4 classes (0, 1, 2, ...), no test part; 4 clients',
    ),
    (
      'table',
      own_examples.items,
      'items.csv',
      'the columns a, b, c, item, colour, user, part',
    ),
    (
      'sparse-text',
      own_examples.text,
      'train.txt',
      '60 examples, 13 features, 11 labels',
    ),
    ('sparse-text-sets', own_examples.text, 'test.txt', '12 examples'),
  ],
)
def test_the_doctor_says_what_it_finds(task, make, data_dir, found, tmp_path):
  make(tmp_path)
  find = registry.get(task).find
  check = machine.check_task_data(task, str(tmp_path / data_dir), find)
  assert found in check.found
  assert not check.is_problem
  missing = machine.check_task_data(task, str(tmp_path / 'absent'), find)
  assert missing.is_problem
