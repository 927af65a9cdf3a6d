"""The k best classes and nearest points, compared with exact rational and integer arithmetic."""

import fractions
import tracemalloc

import numpy as np
import pytest

from tff_xc.measure import search


def naive_top(embeddings, table, k, bias=None):
  """Sorts all classes by fixed-point scores, computed with Python's integers."""

  def scale(norm):
    return 2.0 ** np.frexp(norm)[1] if norm > 0 else 1.0

  norms = np.linalg.norm(table.astype(np.float64), axis=1)
  table_scale = scale(np.nanmax(np.where(np.isfinite(norms), norms, 0)))
  found = []
  for x in embeddings.astype(np.float64):
    x_scale = scale(np.linalg.norm(x))
    left = [round(v) for v in x / x_scale * 2**24]
    scored = []
    for c, row in enumerate(table.astype(np.float64)):
      if not np.isfinite(row).all():
        continue
      right = [round(v) for v in row / table_scale * 2**28]
      dot = sum(a * b for a, b in zip(left, right, strict=True))
      score = float(fractions.Fraction(dot, 2**52)) * x_scale * table_scale
      score += 0.0 if bias is None else float(bias[c])
      if np.isfinite(score):
        scored.append((-score, c))
    ids = [c for _, c in sorted(scored)[:k]]
    found.append(ids + [-1] * (k - len(ids)))
  return found


@pytest.fixture
def small_blocks(monkeypatch):
  """Sets blocks of 16 classes, and a first block of 4, so that the search uses bounds."""
  monkeypatch.setattr(search, '_FIRST_CLASSES', 4)
  monkeypatch.setattr(search, '_CLASSES_AT_ONCE', 16)
  monkeypatch.setattr(search, '_CROWDED_SHARE', 1 / 4)
  monkeypatch.setattr(search, '_GATHERED', 20)


def some(seed, examples=11, classes=150, dims=9):
  random = np.random.default_rng(seed)
  x = random.normal(size=(examples, dims)).astype(np.float32)
  table = random.normal(size=(classes, dims)).astype(np.float32)
  bias = random.normal(size=classes).astype(np.float32)
  return x, table, bias


@pytest.mark.parametrize('block', [1, 64, 2**23])
@pytest.mark.parametrize('k', [1, 5])
@pytest.mark.parametrize('with_bias', [False, True])
def test_equals_the_naive_sort(small_blocks, block, k, with_bias):
  x, table, bias = some(0)
  table[20] *= 100
  table[100:120] *= 1e-3
  bias = bias if with_bias else None
  got = search.top_k(x, table, k, bias, block)
  assert got.dtype == np.int32
  assert got.tolist() == naive_top(x, table, k, bias)


@pytest.mark.parametrize('copies', [2, 30])
def test_equal_rows_tie_and_the_lowest_wins(small_blocks, copies):
  """A few equal rows are scored one by one. Many equal rows fill every block."""
  x, table, _ = some(1, dims=67)
  table = np.concatenate([table[: 150 // copies]] * copies)
  assert search.top_k(x, table, 7).tolist() == naive_top(x, table, 7)


def test_near_ties_that_float32_gets_wrong(small_blocks):
  """The rows differ by less than float32 products can resolve."""
  x, table, _ = some(2, classes=1, dims=200)
  random = np.random.default_rng(0)
  table = table.astype(np.float64) * (1 + 1e-8 * random.normal(size=(150, 200)))
  expected = naive_top(x, table, 5)
  assert search.top_k(x, table, 5).tolist() == expected
  rough = np.argsort(-(x @ table.astype(np.float32).T), axis=1, kind='stable')
  assert rough[:, :5].tolist() != expected


def test_a_collapsed_table_gives_the_lowest_ids():
  x, table, _ = some(3, classes=1)
  table = np.repeat(table, 20_000, axis=0)
  for block in (2**12, 2**23):
    assert (search.top_k(x, table, 5, block=block) == np.arange(5)).all()
  assert (search.top_k(x, np.zeros_like(table), 5) == np.arange(5)).all()


def test_what_is_not_finite_is_never_returned(small_blocks):
  x, table, bias = some(6)
  table[3, 2], table[60, 0], table[61, 1] = np.nan, np.inf, -np.inf
  bias[[7, 70, 71]] = np.nan, np.inf, -np.inf
  x[4, 0], x[5, 0] = np.nan, np.inf
  table[80] = np.nan
  got = search.top_k(x, table, 5, bias)
  expected = naive_top(np.nan_to_num(x, posinf=0.0), table, 5, bias)
  expected[4] = expected[5] = [-1] * 5
  assert got.tolist() == expected
  table = table.astype(np.float64)
  table[80] = x[0] * 1e200  # The norm overflows float64.
  assert search.top_k(x, table, 5, bias).tolist() == expected


@pytest.mark.parametrize('size', [1e-60, 1e-12, 1e30])
def test_sizes_that_float32_cannot_multiply(small_blocks, size):
  x, table, _ = (a.astype(np.float64) for a in some(7))
  for x_size, table_size in ((size, 1), (1, size), (size, size)):
    large_x, large_table = x * x_size, table * table_size
    assert search.top_k(large_x, large_table, 5).tolist() == naive_top(large_x, large_table, 5)


def test_biases_that_dwarf_scores_or_are_nearly_equal(small_blocks):
  """Masked classes, and a bias too large for float32, come last but are returned."""
  x, table, bias = some(8)

  def check(x, bias, k):
    return search.top_k(x, table, k, bias).tolist() == naive_top(x, table, k, bias)

  bias = bias.astype(np.float64)
  for sign in (1, -1):  # Float32 numbers of this size are 1/16 apart.
    assert check(x / 100, sign * 1e6 + bias / 100, 5)
  bias[5:] = -1e9
  bias[[50, 60]] = -1e300, 1e300
  assert check(x, bias, 5)
  assert (search.top_k(x, table, 1, bias) == 60).all()
  bias[:] = -1e300
  bias[::40] = 1.0
  assert check(x, bias, 6)


def test_degenerate_sizes(small_blocks):
  x, table, _ = some(5, classes=3)
  assert search.top_k(x, table, 5).tolist() == naive_top(x, table, 5)
  assert (search.top_k(x, table[:0], 2) == -1).all()
  assert search.top_k(x[:0], table, 2).shape == (0, 2)


def unit(rows):
  rows = np.asarray(rows, np.float64)
  return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scattered(random, count):
  return unit(random.normal(size=[count, 16]))


def with_copies(random, count):
  return np.repeat(scattered(random, -(-count // 6)), 6, axis=0)[:count]


def cone(random, count):
  """Returns points that lie close together, like the embeddings of an untrained network."""
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
  """Sorts all other points by integer distance, and then by index."""
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


def nearest(points, k, block=2**22):
  return np.concatenate([f for _, f in search.nearest_blocks(points, k, block)])


@pytest.mark.parametrize('crowded_share', [0.0, 1 / 32, 1.0])
@pytest.mark.parametrize('points', [scattered, with_copies, cone, clusters, one_apart])
def test_both_ways_equal_the_naive_search(monkeypatch, points, crowded_share):
  monkeypatch.setattr(search, '_CROWDED_SHARE', crowded_share)
  monkeypatch.setattr(search, '_LEAST_GROUPS', 20)
  monkeypatch.setattr(search, '_GROUPS_PER_NEIGHBOUR', 2)
  monkeypatch.setattr(search, '_GATHERED', 64)
  x = points(np.random.default_rng(0), 103)
  for k, block in ((1, 2**22), (7, 103 * 3), (70, 1)):
    np.testing.assert_array_equal(nearest(x, k, block), naive(x, k))


@pytest.mark.parametrize('points', [scattered, with_copies])
def test_memory_is_bounded_by_the_block(points, monkeypatch):
  if points is with_copies:  # Test the same code path for all points.
    monkeypatch.setattr(search, '_CROWDED_SHARE', 0.0)
  x = points(np.random.default_rng(0), 3_000)
  tracemalloc.start()
  for _ in search.nearest_blocks(x, 10, block=2**17):
    pass
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 6 * x.nbytes + 16 * 2**17  # All distances would take 36 MB.
