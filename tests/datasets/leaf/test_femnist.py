"""Tests FEMNIST from LEAF's JSON: small files, and five real writers."""

import json
import random
import shutil

import numpy as np
import pytest

from datasets import cache_folder
from datasets.leaf import files as leaf_files, sets, users as leaf_users
from tests.datasets.leaf import on_disk
from tff_xc import errors


def load(data_dir, **options):
  return sets.load('femnist', data_dir, **{'min_examples': 1, **options})


def all_data(data_dir, sizes, files=1):
  """Writes users with these numbers of examples to files whose order matters."""
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
  assert train.client_ids == ['f3797_07', 'f3793_06', 'f3728_28', 'f3687_48', 'f3785_26']
  assert train.partition.sizes.tolist() == [11, 16, 17, 18, 16]
  of_train, of_test = (
    json.loads((data_dir / f'leaf/{part}.json').read_text())['user_data']
    for part in ('train', 'test')
  )
  for index, name in enumerate(train.client_ids):
    x, y = train.examples(name)
    assert x.dtype == np.float32
    expected = np.float32(of_train[name]['x'])
    np.testing.assert_array_equal(x.reshape(-1, 784), expected)
    np.testing.assert_array_equal(y, of_train[name]['y'])
    own = dataset.held_out.of_client(index)
    assert train.pool.labels[own].tolist() == of_test[name]['y']
  assert np.median(x) == 1  # The background is white.
  held_out = dataset.test.examples(np.arange(89))
  for key, found in (('x', held_out.x.reshape(-1, 784)), ('y', held_out.labels)):
    expected = [of_test[name][key] for name in train.client_ids]
    np.testing.assert_array_equal(found, np.float32(np.concatenate(expected)))


@pytest.mark.parametrize('files', [1, 3])
def test_users_are_split_as_leaf_does(tmp_path, files):
  users = all_data(tmp_path, [3] * 20, files)
  dataset = load(tmp_path)
  drawn = random.Random(0).sample(range(20), 18)
  assert dataset.train.client_ids == [f'w{i}' for i in sorted(drawn)]
  tests = [users[f'w{i}'] for i in sorted(set(range(20)) - set(drawn))]
  x, y = dataset.test.examples(np.arange(len(dataset.test)))
  expected = np.float32(np.concatenate([x for x, _ in tests]))
  np.testing.assert_array_equal(x.reshape(-1, 784), expected)
  assert y.tolist() == [label for _, labels in tests for label in labels]


def test_users_with_few_examples_are_dropped(tmp_path, capsys):
  all_data(tmp_path, [1, 2, 3, 4, 5] * 4)
  assert load(tmp_path, min_examples=3).train.partition.sizes.min() == 3
  few = sum(i % 5 < 2 for i in random.Random(0).sample(range(20), 18))
  said = capsys.readouterr().err
  assert f'{few} of 18 training' in said and f'{8 - few} of 2 test' in said
  with pytest.raises(errors.InputError, match='0 of 18 training'):
    load(tmp_path, min_examples=6)


@pytest.mark.parametrize('drop', [False, True])
def test_the_first_image_twice(tmp_path, capsys, drop):
  users = {f'w{i}': on_disk.writer(i, 4) for i in range(10)}
  for i in range(1, 10):
    x, y = users[f'w{i}']
    users[f'w{i}'] = [x[0], *x], [y[0], *y]
  users['w3'][1][1] += 1  # An image with another label is not a duplicate.
  on_disk.write(tmp_path / 'femnist/all_data.json', users)
  dataset = load(tmp_path, drop_duplicates=drop)
  assert '8 of 10 writers' in capsys.readouterr().err
  for name in dataset.train.client_ids:
    first = int(drop and name not in ('w0', 'w3'))
    found = dataset.train.examples(name)
    np.testing.assert_array_equal(found.labels, users[name][1][first:])
    expected = np.float32(users[name][0][first:])
    np.testing.assert_array_equal(found.x.reshape(-1, 784), expected)


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
    patch.setattr(leaf_users, 'read_all', None)
    check()
  no_folder = tmp_path / 'femnist/a.json'
  monkeypatch.setenv(cache_folder.VARIABLE, str(no_folder))
  check()


PIXELS = on_disk.image(7)


@pytest.mark.parametrize(
  ('x', 'y'),
  [
    *((x, 3) for x in (PIXELS[1:], [], 'abc', None, 0.5)),
    *(([*PIXELS[1:], pixel], 3) for pixel in ('0.5', [0.5], None, True, 1.001, -1)),
    *((PIXELS, y) for y in (62, -1, 3.5, True, '3', None, [3])),
  ],
)
def test_what_is_wrong_is_said(tmp_path, x, y):
  users = {f'w{i}': on_disk.writer(i, 3) for i in range(3)}
  users['w1'][0][1], users['w1'][1][1] = x, y
  on_disk.write(tmp_path / 'femnist/all_data.json', users)
  what = 'x has' if y == 3 else 'labels'
  message = f"all_data.json, user 'w1': {what} "
  with pytest.raises(errors.InputError, match=message) as e:
    load(tmp_path)
  assert len(str(e.value)) < 300


@pytest.mark.parametrize(
  ('files', 'said'),
  [
    ({'all_data.json': {'w': 3}}, '0 of 0 training users and 1 of 1'),
    ({'train/a.json': {'w': 2}, 'test/a.json': {}}, '1 of 1 training users and 0 of 0'),
    (
      {f'{n}.json': {'w': 2} for n in ('train/a', 'train/b', 'test/a')},
      r"b.json, user 'w' .* twice.*a.json",
    ),
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


@pytest.mark.parametrize(
  'place', ['femnist', 'femnist/data', 'leaf/femnist', 'leaf/femnist/data', 'leaf', 'data', '.']
)
def test_where_the_files_may_lie(tmp_path, place):
  with pytest.raises(errors.InputError, match='no femnist of LEAF'):
    leaf_files.find('femnist', tmp_path)
  names = ['all_data_9.json', 'all_data_10.json']
  for part in ('train', 'test'):
    (tmp_path / place / part).mkdir(parents=True)
    for name in names[::-1]:
      (tmp_path / place / part / name).touch()
  found = leaf_files.find('femnist', tmp_path)
  assert [p.name for p in found.train] == names
  assert len(found.test) == 2
  shutil.rmtree(tmp_path / place / 'test')
  with pytest.raises(errors.InputError, match='only one of'):
    leaf_files.find('femnist', tmp_path)
