"""Sparse examples as arrays."""

import numpy as np
import pytest
import scipy.sparse

from tff_xc.data import sparse


def random_features(rows, seed):
  matrix = scipy.sparse.random(
    rows, 30, 0.04, 'csr', np.float32, np.random.default_rng(seed)
  )
  matrix.sort_indices()
  return matrix, sparse.SparseFeatures(
    matrix.indptr.astype(np.int32), matrix.indices, matrix.data
  )


def same(features, matrix):
  np.testing.assert_array_equal(features.row_splits, matrix.indptr)
  np.testing.assert_array_equal(features.ids, matrix.indices)
  np.testing.assert_array_equal(features.values, matrix.data)
  dtypes = [array.dtype for array in features]
  assert dtypes == [np.int32, np.int32, np.float32]


@pytest.mark.parametrize('rows', [[3, 0, 0, 19, 7], [5], [], range(20)])
def test_take_is_what_scipy_does(rows):
  matrix, features = random_features(20, 0)
  assert (np.diff(matrix.indptr) == 0).any()
  rows = np.array(rows, np.int64)
  same(sparse.take(features, rows), matrix[rows])


def test_concatenate_is_what_scipy_does():
  matrices, features = zip(
    *(random_features(rows, seed) for seed, rows in enumerate([4, 0, 7])),
    strict=True,
  )
  same(sparse.concatenate(features), scipy.sparse.vstack(matrices, 'csr'))


def test_taking_apart_and_putting_together():
  matrix, features = random_features(20, 0)
  parts = [sparse.take(features, np.array([i])) for i in range(20)]
  same(sparse.concatenate(parts), matrix)
