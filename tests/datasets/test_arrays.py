"""The user's own data as arrays in a file."""

import numpy as np
import pytest

from datasets import arrays
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
  dataset = arrays.load(saved(tmp_path))
  assert dataset.num_classes == 3
  assert dataset.train.client_ids == ['al', 'bo', 'cy']
  np.testing.assert_array_equal(dataset.train.labels('bo'), [2, 1, 2])
  x, y = dataset.train.examples('bo')
  np.testing.assert_array_equal(x, X[[0, 2, 4]])
  np.testing.assert_array_equal(y, [2, 1, 2])
  np.testing.assert_array_equal(dataset.test.y, [0, 2])
  assert dataset.retrieval is None
  elements = list(dataset.train.create_tf_dataset_for_client('cy'))
  assert [int(e['y']) for e in elements] == [1]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'client': None}, 'add an array client, or give --split'),
    ({'test_y': None}, "no array 'test_y'"),
    ({'client': np.arange(5)}, 'one client for each example'),
    ({'x': X.astype(np.float32)}, 'expected uint8, 0 to 255'),
    ({'x': X.astype(np.uint16)}, r'write \(x >> 8\)'),
    ({'x': X[:, 0]}, 'rows of features are --task=table'),
    ({'x': X[:, 0, 0], 'test_x': X[:2, 0, 0]}, 'expected images'),
    ({'test_x': X[:2, :4, :4]}, 'make them alike'),
    ({'y': GOOD['y'] + 0.5}, 'one label for each example'),
    ({'y': GOOD['y'] - 1}, 'labels start at 0'),
    ({'y': np.zeros(6, int)}, 'at least two classes'),
    ({'test_y': np.array([0, 3])}, r'label 3 is outside \[0, 3\)'),
    ({'client': np.array([None] * 6, object)}, 'plain arrays'),
  ],
)
def test_bad_arrays_are_refused_by_name(tmp_path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    arrays.load(saved(tmp_path, **changes))


def test_missing_and_truncated_files_are_refused(tmp_path):
  with pytest.raises(errors.InputError, match='is no file'):
    arrays.load(tmp_path / 'absent.npz')
  path = saved(tmp_path)
  path.write_bytes(path.read_bytes()[:500])
  with pytest.raises(errors.InputError, match='plain arrays'):
    arrays.load(path)
