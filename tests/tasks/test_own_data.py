"""The doctor says what is in one's own data, and what a run would find there."""

import numpy as np
import pytest

from launch import doctor
from tasks import experiment
from tasks import registry
from tests.launch import own_examples
from tff_xc import errors
from tff_xc import files
from tff_xc import memory
from tff_xc.experiment import same_run

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
  ('number', 'found'),
  [(0, '35 images of 3 classes'), (1, '18 images of 4 classes')],
)
def test_a_sample_of_the_test_of_images(number, found, tmp_path, monkeypatch):
  _, make, data_dir, given, _ = RUNS[number]
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  task = registry.get('images')
  options = task.checked_options({**given, 'test_examples': 3})
  told = task.find(data_dir, options)
  assert told.startswith(found) and ', 3 of them test' in told
  assert len(task.load(data_dir, options).dataset.test) == 3
  options = task.checked_options({'split': 'class', 'test_examples': 3})
  with pytest.raises(errors.InputError, match='no test part'):
    task.find(data_dir, options)


@pytest.mark.parametrize(('name', 'make', 'data_dir', 'given', 'found'), RUNS)
def test_the_doctor_says_what_a_run_would_find(
  name, make, data_dir, given, found, tmp_path, monkeypatch
):
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  task = registry.get(name)
  options = task.checked_options(given)
  task.check(options)
  assert task.find(data_dir, options) == found
  with pytest.raises(errors.InputError):
    task.find(data_dir, {**options, 'test_file': 'absent'})


@pytest.mark.parametrize(
  ('task', 'make', 'data_dir', 'found'),
  [
    ('images', own_examples.photos, 'photos', '(cat, dog, emu), no test part'),
    ('images', own_examples.npz, 'mine.npz', 'no test part; 4 clients'),
    ('table', own_examples.items, 'items.csv', 'columns a, b, c, item, colour'),
    ('sparse-text', own_examples.text, 'train.txt', '13 features, 11 labels'),
    ('sparse-text-sets', own_examples.text, 'test.txt', '12 examples'),
  ],
)
def test_the_doctor_says_what_it_finds(task, make, data_dir, found, tmp_path):
  make(tmp_path)
  find = registry.get(task).find
  check = doctor.check_task_data(task, str(tmp_path / data_dir), find)
  assert found in check.found
  assert not check.is_problem
  missing = doctor.check_task_data(task, str(tmp_path / 'absent'), find)
  assert missing.is_problem


def write_text(path, header='4 9 3'):
  lines = [f'{i % 3} {i}:1 8:0.5' for i in range(4)]
  path.write_text('\n'.join([header, *lines, '']))
  return str(path)


def text_run(path, **changes):
  changes = {'data_dir': path, 'split': 'iid:3', **changes}
  return experiment.resolve('sparse-text', 'fedavg', changes)


@pytest.mark.parametrize('task', ['sparse-text', 'sparse-text-sets'])
@pytest.mark.parametrize('header', ['4 9 2000000000', '4 2000000000 3'])
def test_a_first_line_that_names_too_much_is_told_of(task, header, tmp_path):
  path = write_text(tmp_path / 'a.txt', header)
  found = registry.get(task)
  options = found.option_values()
  for what in (found.load, found.find):
    with pytest.raises(errors.InputError, match='line 1'):
      what(path, options)


def test_a_model_larger_than_memory_is_refused(tmp_path, monkeypatch):
  path = write_text(tmp_path / 'a.txt')
  config = text_run(path)
  monkeypatch.setattr(memory, 'free_bytes', lambda: 100_000)
  with pytest.raises(errors.InputError, match='line 1 names 3 labels'):
    experiment.assemble(config)
  monkeypatch.undo()
  task = registry.get('sparse-text')
  loaded = task.load(path, config['options'])
  monkeypatch.setattr(memory, 'free_bytes', lambda: 100_000)
  with pytest.raises(errors.InputError, match='3 classes'):
    experiment.with_data(config, loaded).run(str(tmp_path / 'run'))
  assert not (tmp_path / 'run').exists()
  with pytest.raises(errors.InputError, match='num_features'):
    registry.get('sparse-words').load('', task.option_values() | WORDS)


WORDS = {'num_classes': 10, 'num_features': 10**6}


def test_a_default_number_of_clients_fits(tmp_path):
  path = write_text(tmp_path / 'a.txt')
  config = text_run(path)
  found = experiment.assemble(config)
  assert found.algorithm.sampling.clients_per_round == 3
  assert found.config['hyperparameters']['clients_per_round'] == 3
  assert any('all 3 clients' in warning for warning in found.warnings)
  files.write_json(tmp_path / 'config.json', found.config)
  same_run.check_config(tmp_path, config)  # Before the data are read.
  default = config['hyperparameters']['clients_per_round']
  with pytest.raises(errors.InputError, match='clients_per_round'):
    same_run.check_config(tmp_path, text_run(path, clients_per_round=default))
  for given in (4, default):
    chosen = experiment.assemble(text_run(path, clients_per_round=given))
    with pytest.raises(errors.InputError, match=f'is {given}, and the data'):
      chosen.algorithm.sampling.cohorts(chosen.dataset, 0)


def test_a_default_number_of_virtual_clients_fits(tmp_path):
  path = write_text(tmp_path / 'a.txt')
  for replace in (False, True):
    given = {'data_dir': path, 'split': 'iid:3'}
    given['virtual_client_replace'] = replace
    config = experiment.resolve('sparse-text', 'fedvc', given)
    default = config['hyperparameters']['clients_per_round']
    found = experiment.assemble(config)
    expected = default if replace else 3
    assert found.algorithm.sampling.clients_per_round == expected
    found.algorithm.sampling.cohorts(found.dataset, 0)


def test_a_default_number_of_negatives_fits(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('class,user_id,a\n' + 'cat,u,1\ndog,v,2\nfox,u,3\n')
  resolve = lambda **given: experiment.resolve(
    'table', 'fedss', {'data_dir': str(path), **given}
  )
  found = experiment.assemble(resolve())
  assert found.config['hyperparameters']['negatives'] == 2
  assert any('--negatives' in warning for warning in found.warnings)
  with pytest.raises(errors.InputError, match='--negatives=80'):
    experiment.assemble(resolve(negatives=80))


def test_features_of_ones_own_are_not_hashed(tmp_path):
  task = registry.get('sparse-text-sets')
  options = task.option_values() | {'num_clients': 2}
  loaded = task.load(write_text(tmp_path / 'a.txt'), options)
  assert loaded.dataset.train.pool.read(np.arange(1)).shape[1] == 9


def test_a_class_of_the_test_that_nobody_trains_on(tmp_path):
  path = tmp_path / 'a.csv'
  lines = [f'{c},u,train,{i}' for i, c in enumerate('abab')]
  path.write_text(
    '\n'.join(['class,user_id,part,a', *lines, 'fox\x1b[2J,u,test,1'])
  )
  given = {'data_dir': str(path), 'test_column': 'part'}
  config = experiment.resolve('table', 'fedavg', given)
  [told, _] = experiment.assemble(config).warnings
  assert '1 class of the test' in told
  assert r'fox\x1b' in told
  assert told in registry.get('table').find(str(path), config['options'])


def test_labels_with_gaps_are_told_of(tmp_path):
  path = str(tmp_path / 'a.npz')
  np.savez(path, x=np.eye(4), y=[3, 999, 3, 999], client=[0, 0, 1, 1])
  config = experiment.resolve('table', 'fedavg', {'data_dir': path})
  warnings = experiment.assemble(config).warnings
  found = registry.get('table').find(path)
  for text in (warnings[0], found):
    assert 'labels up to 999, of which only 2 occur' in text


def test_the_doctor_refuses_features_that_training_refuses(tmp_path):
  find = registry.get('table').find
  path = str(tmp_path / 'a.npz')
  x = np.eye(4)
  x[2, 1] = np.inf
  np.savez(path, x=x, y=[0, 1, 0, 1], client=[0, 0, 1, 1])
  with pytest.raises(errors.InputError, match='finite'):
    find(path)
  table = tmp_path / 'a.csv'
  table.write_text('class,x\na,1\nb,inf\n')
  with pytest.raises(errors.InputError, match='finite'):
    find(str(table))
  np.savez(path, x=np.zeros([4, 8, 8]), y=[0, 1, 0, 1], client=[0, 0, 1, 1])
  with pytest.raises(errors.InputError, match='uint8'):
    registry.get('images').find(path)
