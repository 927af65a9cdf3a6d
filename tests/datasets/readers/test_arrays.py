"""The user's own data as arrays in a file."""

import zipfile

import numpy as np
import pytest

from datasets import own as own_data
from datasets.readers import arrays
from datasets.splits import deal
from tff_xc import errors

X = np.arange(6 * 8 * 8, dtype=np.uint8).reshape(6, 8, 8)
GOOD = {
  'x': X,
  'y': np.array([2, 0, 1, 1, 2, 0]),
  'client': np.array(['bo', 'al', 'bo', 'cy', 'bo', 'al']),
  'test_x': X[:2],
  'test_y': np.array([0, 2]),
}


def saved(path, **changes):
  content = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
  np.savez_compressed(path / 'mine.npz', **content)
  return path / 'mine.npz'


def test_examples_are_grouped_by_owner_in_their_order(tmp_path):
  dataset = own_data.load_images(saved(tmp_path))
  assert dataset.num_classes == 3
  assert dataset.train.client_ids == ['al', 'bo', 'cy']
  x, y = dataset.train.examples('bo')
  np.testing.assert_array_equal(x, X[[0, 2, 4]])
  np.testing.assert_array_equal(y, [2, 1, 2])
  np.testing.assert_array_equal(dataset.test.labels, [0, 2])
  assert dataset.retrieval is None
  elements = list(dataset.train.create_tf_dataset_for_client('cy'))
  assert [int(e['y']) for e in elements] == [1]
  # A random test example.
  test = own_data.load_images(tmp_path / 'mine.npz', deal.Choice(test_examples=1)).test
  x, y = test.examples(np.arange(len(test)))
  place = GOOD['test_y'].tolist().index(y)
  np.testing.assert_array_equal(x, X[place : place + 1])


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'client': None}, '--split'),
    ({'test_y': None}, "'test_y'"),
    ({'client': np.arange(5)}, r'expected \[6\]'),
    ({'x': X.astype(np.float32)}, 'uint8'),
    ({'x': X.astype(np.uint16)}, 'x >> 8'),
    ({'x': X[:, 0], 'test_x': X[:2, 0]}, '--task=table'),
    ({'x': X[:, 0, 0], 'test_x': X[:2, 0, 0]}, 'images'),
    ({'test_x': X[:2, :4, :4]}, 'of the shape'),
    ({'y': GOOD['y'] + 0.5}, 'float64'),
    ({'y': GOOD['y'] - 1}, 'from 0'),
    ({'y': np.zeros(6, int)}, 'two classes'),
    ({'y': GOOD['y'] + 2**30}, 'from 0 without gaps'),
    ({'test_y': np.array([0, 3])}, 'label 3'),
    ({'client': np.array([None] * 6, object)}, 'plain arrays'),
    ({'client': np.array([1, 2, np.nan] * 2)}, 'float64'),
    ({'client': np.array([b'a', b'b'] * 3)}, r'\|S1'),
    ({'client': np.array(['a', ''] * 3)}, "''"),
    ({'client': np.array(['a', 'b '] * 3)}, "'b '"),
  ],
)
def test_bad_arrays_are_refused_by_name(tmp_path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    own_data.load_images(saved(tmp_path, **changes))


def test_clients_may_be_whole_numbers_in_any_form(tmp_path):
  for dtype in (np.int64, np.float32):
    client = np.array([10, 2, 10, 2, 0, 0], dtype)
    dataset = own_data.load_images(saved(tmp_path, client=client))
    assert dataset.train.client_ids == ['0', '2', '10']


def test_other_forms_are_cut_to_squares(tmp_path):
  # The image has 8 x 12 pixels, and its middle is X.
  wide = np.concatenate([X[..., :4], X], axis=2)
  wide = np.stack([wide, 255 - wide], axis=-1)
  path = saved(tmp_path, x=wide, test_x=wide[:2])
  dataset = own_data.load_images(path)
  assert dataset.train.pool.spec.shape == (8, 8, 2)
  x, _ = dataset.train.pool.examples(np.arange(6))
  np.testing.assert_array_equal(x, wide[:, :, 2:10])
  small = own_data.load_images(path, side=4)
  assert small.test.examples(np.arange(2)).x.shape == (2, 4, 4, 2)


@pytest.mark.parametrize('version', [1, 2])
def test_an_announced_size_is_compared_with_the_memory(tmp_path, version):
  """A small file declares an array of 100 TB, and contains no data."""
  path = tmp_path / 'a.npz'
  header = {'descr': '|u1', 'fortran_order': False, 'shape': (10**8, 10**6)}
  write = getattr(np.lib.format, f'write_array_header_{version}_0')
  with zipfile.ZipFile(path, 'w') as file:
    with file.open('x.npy', 'w') as member:
      write(member, header)
    with file.open('y.npy', 'w') as member:
      np.lib.format.write_array(member, np.arange(3))
    file.writestr('notes.txt', 'of somebody')
  with pytest.raises(errors.InputError, match='plain arrays'):
    arrays.read(path)
  assert arrays.read(path, ('y', 'notes.txt')).keys() == {'y', 'notes.txt'}
