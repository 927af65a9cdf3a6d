"""The skew of a split, compared with loops."""

import numpy as np
import pytest
import scipy.sparse

from tff_xc.measure import skew


def by_loops(table):
  whole = table.sum()
  distance = 0.0
  for row in table:
    apart = 0.0
    for y, count in enumerate(row):
      p = table[:, y].sum() / whole
      apart += abs(count / max(row.sum(), 1) - p)
    distance += row.sum() / whole * apart
  return distance


def test_emd_is_the_weighted_mean_of_the_clients_distances():
  random = np.random.default_rng(0)
  for _ in range(20):
    table = random.poisson(0.7, [6, 9])
    table[3] = 0
    assert skew.emd(scipy.sparse.csr_matrix(table)) == pytest.approx(by_loops(table))


def test_known_distances_counts_and_quantiles():
  for table, expected in (
    (np.eye(10), 1.8),
    (np.eye(2), 1.0),
    (np.ones([3, 4]), 0.0),
    (np.zeros([2, 3]), 0.0),
  ):
    found = skew.emd(scipy.sparse.csr_matrix(table))
    assert found == pytest.approx(expected)
  owners, labels = np.array([0, 2, 2, 2]), np.array([1, 0, 3, 0])
  counts = skew.class_counts(owners, labels, (3, 4))
  assert counts.toarray().tolist() == [[0, 1, 0, 0], [0] * 4, [2, 0, 0, 1]]
  found = skew.spread(np.arange(11))
  assert (found['least'], found['most']) == (0, 10)
  assert (found['10%'], found['median'], found['mean']) == (1, 5, 5)
  assert skew.spread(np.zeros(0)) == {}
