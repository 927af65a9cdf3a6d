"""Sparse examples and sets of labels as tensors."""

import numpy as np
import scipy.sparse

from tff_xc.data import sparse


def test_a_matrix_becomes_the_tensors_of_its_kind():
  matrix = scipy.sparse.random(20, 30, 0.04, 'csr', random_state=0)
  matrix.sort_indices()
  features, sets = sparse.as_tensors(matrix), sparse.as_tensors(matrix != 0)
  assert isinstance(features, sparse.SparseFeatures)
  assert isinstance(sets, sparse.LabelSets)
  assert [a.dtype for a in features] == [np.int32, np.int32, np.float32]
  assert [a.dtype for a in sets] == [np.int32, np.int32]
  for found in (features, sets):
    np.testing.assert_array_equal(found.row_splits, matrix.indptr)
    np.testing.assert_array_equal(found.ids, matrix.indices)
  np.testing.assert_array_equal(features.values, matrix.data.astype('f4'))


def test_what_fits_is_not_copied():
  matrix = scipy.sparse.random(20, 30, 0.1, 'csr', np.float32, 0)
  found = sparse.as_tensors(matrix)
  assert found.ids.base is matrix.indices or found.ids is matrix.indices
  assert found.values is matrix.data
  images = np.zeros([2, 3])
  assert sparse.as_tensors(images) is images
