"""FEMNIST from LEAF's JSON: small files, and five real writers."""

import json
import random
import shutil

import numpy as np
import pytest

from datasets import cache_folder
from datasets.leaf import files as leaf_files
from datasets.leaf import json_users
from datasets.leaf import sets
from datasets.leaf import users as leaf_users
from tests.datasets.leaf import on_disk
from tff_xc import errors
from tff_xc.data import pool


def load(data_dir, **options):
  return sets.load('femnist', data_dir, **{'min_examples': 1, **options})


def all_data(data_dir, sizes, files=1):
  """Writes users of these sizes, in files that are to be read in order."""
  users = {f'w{i}': on_disk.writer(i, size) for i, size in enumerate(sizes)}
  for k, part in enumerate(np.array_split(list(users), files)):
    on_disk.write(
      data_dir / 'femnist/data/all_data' / f'all_data_{8 + k}.json',
      {name: users[name] for name in part},
    )
  return users


def test_five_real_writers(data_dir):
  dataset = load(data_dir)
  train = dataset.train
  assert train.client_ids == [
    *('f3797_07', 'f3793_06', 'f3728_28', 'f3687_48', 'f3785_26')
  ]
  assert train.partition.sizes.tolist() == [11, 16, 17, 18, 16]
  assert len(dataset.test) == 89
  content = json.loads((data_dir / 'leaf/train.json').read_text())
  for name in train.client_ids:
    x, y = train.examples(name)
    expected = content['user_data'][name]
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x.reshape(-1, 784), np.float32(expected['x']))
    np.testing.assert_array_equal(y, expected['y'])
  assert np.median(x) == 1  # White.
  tests = json.loads((data_dir / 'leaf/test.json').read_text())['user_data']
  held_out = dataset.test.examples(np.arange(89))
  np.testing.assert_array_equal(
    held_out.y, np.concatenate([tests[name]['y'] for name in train.client_ids])
  )
  for index, name in enumerate(train.client_ids):
    own = dataset.held_out.of_client(index)
    assert train.pool.y[own].tolist() == tests[name]['y']
  np.testing.assert_array_equal(
    held_out.x[-1].reshape(-1), np.float32(tests['f3785_26']['x'][-1])
  )


@pytest.mark.parametrize('files', [1, 3])
def test_users_are_split_as_leaf_does(tmp_path, files):
  users = all_data(tmp_path, [3] * 20, files)
  dataset = load(tmp_path)
  drawn = random.Random(0).sample(range(20), 18)
  assert dataset.train.client_ids == [f'w{i}' for i in sorted(drawn)]
  [a, b] = sorted(set(range(20)) - set(drawn))
  held_out = dataset.test.examples(np.arange(len(dataset.test)))
  np.testing.assert_array_equal(
    held_out.x.reshape(-1, 784),
    np.float32(users[f'w{a}'][0] + users[f'w{b}'][0]),
  )
  np.testing.assert_array_equal(
    held_out.y, users[f'w{a}'][1] + users[f'w{b}'][1]
  )


def test_users_with_few_examples_are_dropped(tmp_path, capsys):
  all_data(tmp_path, [1, 2, 3, 4, 5] * 4)
  dataset = load(tmp_path, min_examples=3)
  assert dataset.train.partition.sizes.min() == 3
  drawn = random.Random(0).sample(range(20), 18)
  few = sum(i % 5 < 2 for i in drawn)
  said = capsys.readouterr().err.splitlines()
  assert said == [
    f'femnist: left out {few} of 18 training users and {8 - few} of 2 test'
    ' users, who have fewer than 3 examples'
  ]
  with pytest.raises(
    errors.InputError, match='none of 18 training users has 6'
  ):
    load(tmp_path, min_examples=6)


def test_a_sample_of_the_test(tmp_path):
  all_data(tmp_path, [30] * 20)
  whole, some = load(tmp_path).test, load(tmp_path, test_examples=25).test
  assert (len(whole), len(some)) == (60, 25)
  np.testing.assert_array_equal(some.y, load(tmp_path, test_examples=25).test.y)
  rows = {x.tobytes() for x in whole.read(np.arange(60))}
  assert len({x.tobytes() for x in some.read(np.arange(25))} & rows) == 25
  assert len(load(tmp_path, test_examples=61).test) == 60


def duplicated(data_dir):
  users = {f'w{i}': on_disk.writer(i, 4) for i in range(10)}
  for i in range(1, 10):
    x, y = users[f'w{i}']
    users[f'w{i}'] = [x[0], *x], [y[0], *y]
  x, y = users['w3']
  y[1] += 1  # The same image with another label is no copy.
  on_disk.write(data_dir / 'femnist/all_data.json', users)
  return users


@pytest.mark.parametrize('drop', [False, True])
def test_the_first_image_twice(tmp_path, capsys, drop):
  users = duplicated(tmp_path)
  dataset = load(tmp_path, drop_duplicates=drop)
  assert '8 of 10 writers have their first image twice' in (
    capsys.readouterr().err
  )
  for name in dataset.train.client_ids:
    x, y = users[name]
    if drop and name not in ('w0', 'w3'):
      x, y = x[1:], y[1:]
    found = dataset.train.examples(name)
    np.testing.assert_array_equal(found.y, y)
    np.testing.assert_array_equal(found.x.reshape(-1, 784), np.float32(x))


@pytest.mark.parametrize('pixel', [1, 0.123456789])
def test_levels_of_grey_are_exact_and_parsed_once(tmp_path, monkeypatch, pixel):
  users = {f'w{i}': on_disk.writer(i, 3) for i in range(10)}
  users['w9'][0][2][5] = pixel
  on_disk.write(tmp_path / 'femnist/a.json', users)

  def check():
    found = load(tmp_path).train.pool.read(np.arange(30)).reshape(-1, 784)
    expected = [x for xs, _ in users.values() for x in xs]
    np.testing.assert_array_equal(found, np.float32(expected))

  check()
  with monkeypatch.context() as patch:
    patch.setattr(json_users, 'read_all', None)
    check()
  no_folder = tmp_path / 'femnist/a.json'
  monkeypatch.setenv(cache_folder.VARIABLE, str(no_folder))
  check()


PIXELS = on_disk.image(7)


@pytest.mark.parametrize(
  ('x', 'y'),
  [
    *((x, 3) for x in (PIXELS[1:], [], 'abc', None, 0.5)),
    *(
      ([*PIXELS[1:], pixel], 3)
      for pixel in ('0.5', [0.5], None, 1.001, -1, float('nan'), float('inf'))
    ),
    ([*PIXELS[1:], 10**30], 3),
    *((PIXELS, y) for y in (62, -1, 3.0, '3', True, None, 10**30)),
  ],
)
def test_what_is_wrong_is_said(tmp_path, x, y):
  users = {f'w{i}': on_disk.writer(i, 3) for i in range(3)}
  users['w1'][0][1], users['w1'][1][1] = x, y
  on_disk.write(tmp_path / 'femnist/all_data.json', users)
  wrong = 'x' if y == 3 and y is not True and type(y) is int else 'the label'
  message = f"all_data.json, user 'w1', example 2: {wrong} is "
  with pytest.raises(errors.InputError, match=message) as e:
    load(tmp_path)
  assert len(str(e.value)) < 300


@pytest.mark.parametrize(
  ('files', 'said'),
  [
    ({'all_data.json': {'w': 3}}, r'no training user \(0 to train, 1 to test'),
    (
      {'train/a.json': {'w': 2}, 'test/a.json': {}},
      r'no test user \(1 to train, 0 to test\)',
    ),
    (
      {f'{n}.json': {'w': 2} for n in ('train/a', 'train/b', 'test/a')},
      r"b.json, user 'w' .* twice.*a.json",
    ),
    ({'a.json': {'w\0': 2}}, 'NUL'),
    ({'all_data.json': {}}, 'no examples of any user'),
    ({'all_data.json': {'w': 0}}, 'no examples of any user'),
  ],
)
def test_users_that_will_not_do(tmp_path, files, said):
  for name, sizes in files.items():
    users = {user: on_disk.writer(0, size) for user, size in sizes.items()}
    on_disk.write(tmp_path / 'femnist' / name, users)
  with pytest.raises(errors.InputError, match=said):
    load(tmp_path)


def test_where_the_files_may_lie(tmp_path):
  with pytest.raises(errors.InputError, match='no femnist of LEAF'):
    leaf_files.find('femnist', tmp_path)
  for place in (
    *('femnist', 'femnist/data', 'leaf/femnist', 'leaf/femnist/data'),
    *('leaf', 'data', '.'),
  ):
    for part in ('train', 'test'):
      for k in (10, 9):
        path = tmp_path / place / part / f'all_data_{k}.json'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = leaf_files.find('femnist', tmp_path)
    assert [p.name for p in found.train] == [
      'all_data_9.json',
      'all_data_10.json',
    ]
    assert len(found.test) == 2
    shutil.rmtree(tmp_path / place / 'test')
    with pytest.raises(errors.InputError, match=r'test has none'):
      leaf_files.find('femnist', tmp_path)
    shutil.rmtree(tmp_path / place / 'train')


def test_the_published_numbers_of_users():
  for users, train, test in (
    (3550, 3195, 355),
    (9343, 8408, 935),
    (1129, 1016, 113),
  ):
    parts = sets.split(
      leaf_users.Users([''] * users, np.zeros(users), np.full(users, 64), None)
    )
    assert [len(part) for part in parts] == [train, test]


def test_a_sample_is_uniform_over_the_test_of_all_users():
  sizes = np.array([10, 200, 800])
  dataset = sets.federated(
    'set',
    1,
    pool.in_memory(np.arange(1010), np.zeros(1010, int)),
    leaf_users.Users(
      ['a', 'b', 'c'],
      np.cumsum(sizes) - sizes,
      sizes,
      np.array([False, True, True]),
    ),
    test_examples=200,
  )
  drawn = dataset.test.read(np.arange(200)) - 10
  assert len(set(drawn)) == 200
  counts = np.bincount(drawn // 100, minlength=10)
  # Each is hypergeometric, 20 on average with a standard deviation of 3.8.
  assert len(counts) == 10
  assert (abs(counts - 20) < 12).all()
