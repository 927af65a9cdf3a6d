"""The nearest points, compared with a sort of all distances in float64."""

import numpy as np
import pytest

from tff_xc.measure import neighbors


def naive(queries, points, k):
  apart = queries[:, None].astype(np.float64) - points
  return np.argsort((apart**2).sum(axis=2), axis=1, kind='stable')[:, :k]


@pytest.mark.parametrize('spread', [1.0, 1e-4])
def test_exact_neighbours_are_those_of_a_sort(spread):
  """Also tests a network that has collapsed, so that all its embeddings are nearly equal."""
  random = np.random.default_rng(0)
  centre = random.normal(size=6)
  points = neighbors.unit(centre + spread * random.normal(size=[400, 6]))
  points[7] = points[300]  # These two points tie.
  queries = np.concatenate([points[295:305], points[:3]])
  found = neighbors.build('exact', points).find(queries, 20)
  apart = neighbors.distances(queries, points, found)
  expected = naive(queries, points, 20)
  assert neighbors.recall(found, expected) > 0.99
  assert (np.diff(apart, axis=1) >= 0).all()
  assert found[5, :2].tolist() == [7, 300]
  wanted = neighbors.distances(queries, points, expected)
  assert apart == pytest.approx(wanted, rel=1e-3, abs=1e-7)


def test_there_may_be_fewer_points_and_some_missed():
  points = neighbors.unit(np.eye(3).reshape(3, 1, 3))
  found = neighbors.build('exact', points).find(points[:1], 5)
  assert found.tolist() == [[0, 1, 2, -1, -1]]
  apart = neighbors.distances(points[:1], points, found)[0]
  assert apart[:3] == pytest.approx([0, 2**0.5, 2**0.5])
  assert np.isnan(apart[3:]).all()
  assert neighbors.recall(np.array([[0, 5, -1]]), found[:, :3]) == 1 / 3
