"""Compares the search for nearest neighbours with exact integer distances."""

import tracemalloc

import numpy as np
import pytest

from tff_xc.measure import search as search_lib


def unit(rows):
  rows = np.asarray(rows, np.float64)
  return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scattered(random, count):
  return unit(random.normal(size=[count, 16]))


def with_copies(random, count):
  return np.repeat(scattered(random, -(-count // 6)), 6, axis=0)[:count]


def cone(random, count):
  """Points that lie together, as those of a network without training."""
  return unit(10 + 1e-2 * random.normal(size=[count, 16]))


def clusters(random, count):
  centres = np.repeat(random.normal(size=[-(-count // 9), 16]), 9, axis=0)
  return unit(centres[:count] + 1e-4 * random.normal(size=[count, 16]))


def one_apart(random, count):
  points = cone(random, count)
  points[3] = -points[3]
  points[5] = 0
  points[7] = np.nan
  return points


def naive(points, k):
  """Orders all others by their integer distances, then by number."""
  finite = np.isfinite(points).all(axis=1)
  fixed = np.zeros(points.shape, np.int64)
  fixed[finite] = np.rint(points[finite] * 2.0**25).astype(np.int64)
  found = np.full([len(points), k], -1)
  for q in np.flatnonzero(finite):
    squares = ((fixed - fixed[q]) ** 2).sum(axis=1)
    others = [int(i) for i in np.flatnonzero(finite) if i != q]
    nearest = sorted(others, key=lambda i: (squares[i], i))[:k]
    found[q, : len(nearest)] = nearest
  return found


def search(points, k, block=2**22):
  return np.concatenate(
    [f for _, f in search_lib.nearest_blocks(points, k, block)]
  )


@pytest.mark.parametrize('crowded_share', [0.0, 1 / 32, 1.0])
@pytest.mark.parametrize(
  'points', [scattered, with_copies, cone, clusters, one_apart]
)
def test_both_ways_equal_the_naive_search(monkeypatch, points, crowded_share):
  monkeypatch.setattr(search_lib, '_CROWDED_SHARE', crowded_share)
  monkeypatch.setattr(search_lib, '_LEAST_GROUPS', 20)
  monkeypatch.setattr(search_lib, '_GROUPS_PER_NEIGHBOUR', 2)
  monkeypatch.setattr(search_lib, '_GATHERED', 64)
  x = points(np.random.default_rng(0), 103)
  for k, block in ((1, 2**22), (7, 103 * 3), (70, 1)):
    np.testing.assert_array_equal(search(x, k, block), naive(x, k))


def test_few_pairs_of_a_cone_are_measured_in_float64(monkeypatch):
  """Without their mean, float32 would not tell its points apart."""
  pairs = []
  of_pairs = search_lib._of_pairs
  monkeypatch.setattr(search_lib, '_of_crowded', None)
  monkeypatch.setattr(
    search_lib,
    '_of_pairs',
    lambda *args: pairs.append(len(args[1])) or of_pairs(*args),
  )
  x = cone(np.random.default_rng(0), 2_000)
  assert search(x, 10).shape == (2_000, 10)
  assert sum(pairs) < 2_000 * 20


@pytest.mark.parametrize('points', [scattered, with_copies])
def test_memory_is_bounded_by_the_block(points, monkeypatch):
  if points is with_copies:  # Whatever way is taken.
    monkeypatch.setattr(search_lib, '_CROWDED_SHARE', 0.0)
  x = points(np.random.default_rng(0), 3_000)
  tracemalloc.start()
  for _ in search_lib.nearest_blocks(x, 10, block=2**17):
    pass
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 6 * x.nbytes + 16 * 2**17  # All distances take 36 MB.
