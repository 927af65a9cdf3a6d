"""Pools: labels in memory, examples by number, and blocks of limited size."""

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import pool, sparse

RANDOM = np.random.default_rng(0)


def bags(lengths):
  splits = np.cumsum(np.append(0, lengths))
  ids = np.arange(splits[-1])
  values = RANDOM.normal(size=len(ids)).astype(np.float32)
  return scipy.sparse.csr_matrix((values, ids, splits), (len(lengths), max(len(ids), 1)))


def same(a, b):
  assert type(a) is type(b)
  if scipy.sparse.issparse(a):
    for name in ('indptr', 'indices', 'data'):
      np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
  else:
    np.testing.assert_array_equal(a, b)
  assert a.shape == b.shape
  assert a.dtype == b.dtype


@pytest.mark.parametrize(
  ('x', 'y', 'spec', 'entries'),
  [
    (
      RANDOM.integers(0, 256, [4, 3, 3], np.uint8),
      np.arange(4),
      tf.TensorSpec([3, 3], tf.uint8),
      None,
    ),
    (
      bags([3, 0, 2, 5]),
      scipy.sparse.csr_matrix(np.eye(4, 6) > 0),
      pool.SPARSE,
      [3, 0, 2, 5],
    ),
  ],
)
def test_examples_share_their_memory_and_have_subsets(x, y, spec, entries):
  found, numbers = pool.in_memory(x, y), np.array([3, 1, 1])
  assert (found.spec, len(found)) == (spec, 4)
  assert not entries or found.labels is y
  same(found.examples(numbers).x, x[numbers])
  same(found.examples(numbers).labels, found.labels[numbers])
  part = found.subset(numbers)
  same(part.labels, found.labels[numbers])
  same(part.read(np.array([2, 0])), x[[1, 3]])
  if entries:
    assert part.entries.tolist() == [entries[i] for i in numbers]
  else:
    assert found.labels.dtype == np.int32


@pytest.mark.parametrize(
  ('x', 'y'),
  [
    (RANDOM.integers(0, 256, [7, 3, 3], np.uint8), np.arange(7)),
    (bags([3, 0, 2, 5, 1, 4, 2]), scipy.sparse.csr_matrix(np.eye(7, 8) > 0)),
  ],
)
def test_joined_pools_are_read_in_any_order(x, y):
  parts = [pool.in_memory(x[part], y[part]) for part in (slice(4), slice(4, 7))]
  whole, joined = pool.in_memory(x, y), parts[0].joined(parts[1])
  same(joined.labels, whole.labels)
  if scipy.sparse.issparse(x):
    assert joined.entries.tolist() == whole.entries.tolist()
  for numbers in ([5, 0, 6, 3, 3, 4, 1], [6, 4], [2, 0]):
    same(joined.read(np.array(numbers)), x[numbers])


@pytest.mark.parametrize('form', ['csc', 'coo', 'array', 'dense'])
def test_other_forms_of_matrices_have_the_same_content(form):
  x, y = bags([3, 0, 2, 5]), scipy.sparse.csr_matrix(np.eye(4, 6) > 0)
  numbers = np.array([3, 0])
  wanted = x[numbers], y[numbers]
  if form == 'dense':
    y = y.toarray()
  elif form == 'array':
    x, y = map(scipy.sparse.csr_array, (x, y))
  else:
    x, y = x.asformat(form), y.asformat(form)
  found = pool.in_memory(x, y).examples(numbers)
  same(found.x, wanted[0])
  same(found.labels, wanted[1])


def test_features_and_sets_are_put_in_order_and_none_becomes_the_other():
  splits, ids, values = [0, 3, 4], [4, 1, 4, 2], [1, 1, 1, 0]
  given = scipy.sparse.csr_matrix((values, ids, splits), (2, 5))
  for array in (given.data, given.indices, given.indptr):
    array.setflags(write=False)
  y = pool.in_memory(np.zeros([2, 1]), given).labels
  found = sparse.as_tensors(y)
  assert isinstance(found, sparse.LabelSets)
  assert found.row_splits.tolist() == [0, 2, 2]
  assert found.ids.tolist() == [1, 4]
  assert np.shares_memory(found.ids, y.indices)
  ids, splits = np.array([2, 0, 2, 1]), np.array([0, 3, 4])
  for values in (np.ones(4), np.ones(4, bool)):
    given = scipy.sparse.csr_matrix((values, ids, splits), (2, 5))
    before = given.indices.copy()
    x = pool.in_memory(given, [0, 1]).read(np.array([0, 1]))
    found = sparse.as_tensors(x)
    assert isinstance(found, sparse.SparseFeatures)
    assert found.row_splits.tolist() == [0, 2, 3]
    assert found.ids.tolist() == [0, 2, 1]
    assert found.values.tolist() == [1, 2 - (values.dtype == bool), 1]
    assert [a.dtype for a in found] == [np.int32, np.int32, np.float32]
    np.testing.assert_array_equal(given.indices, before)


@pytest.mark.parametrize(
  ('y', 'message'),
  [
    ([0, 0.5], 'float64'),
    ([True, False], 'bool'),
    ([[0, 1], [1, 0]], r'int64 \[2, 2\]'),
    ([0, 2**32 + 1], '4294967297'),
    ([0, 1, 2], r'labels \[3\]'),
  ],
)
def test_labels_that_would_change_are_refused(y, message):
  for x in (np.zeros([2, 4]), scipy.sparse.csr_matrix((2, 4))):
    with pytest.raises(errors.InputError, match=message):
      pool.in_memory(x, np.array(y))


@pytest.mark.parametrize(
  ('bounds', 'x', 'sizes'),
  [
    ({}, np.arange(1300), [434, 433, 433]),
    ({'_BYTES': 120}, np.zeros([7, 10], np.float32), [3, 2, 2]),
    ({'_BYTES': 1}, np.zeros([3, 10], np.float32), [1, 1, 1]),
    (
      {'_FEATURES': 10, '_EXAMPLES': 4},
      bags([3, 3, 4, 1, 25, 0, 10, 0, 0, 0, 0, 0, 1]),
      [3, 1, 1, 4, 4],
    ),
  ],
)
def test_blocks_are_bounded(monkeypatch, bounds, x, sizes):
  for name, most in bounds.items():
    monkeypatch.setattr(pool, name, most)
  found = pool.in_memory(x, np.arange(x.shape[0]) % 7)
  stack = scipy.sparse.vstack if scipy.sparse.issparse(x) else np.concatenate
  assert [len(block.labels) for block in found.blocks()] == sizes
  some = np.arange(x.shape[0])[::-2]
  for numbers in (None, some):
    blocks = [block.x for block in found.blocks(numbers)]
    found_x = stack(blocks)
    if scipy.sparse.issparse(x):
      found_x = found_x.tocsr()
    same(found_x, x if numbers is None else x[numbers])
  [empty] = found.blocks(np.zeros(0, np.int64))
  assert empty.x.shape[0] == 0


@pytest.mark.parametrize('kept', [0, 0.4, 1])
def test_a_cached_pool_reads_what_fits_once(kept):
  x, read = RANDOM.normal(size=[40, 3]).astype(np.float32), []
  whole = pool.in_memory(x, np.zeros(40, int))

  def reading(numbers):
    read.extend(numbers.tolist())
    return x[numbers]

  counted = pool.Pool(whole.labels, whole.spec, reading)
  cached = pool.cached(counted, int(kept * x.nbytes))
  for _ in range(30):
    numbers = RANDOM.integers(0, 40, RANDOM.integers(0, 9))
    same(cached.read(numbers), x[numbers])
  again = sum(read.count(number) > 1 for number in range(40))
  assert again == 0 if kept == 1 else again > 5
  same(cached.read(np.arange(40)), x)
  del read[:]
  same(cached.read(np.arange(40)[::-1]), x[::-1])
  # The cache keeps all new examples of a read, or none of them.
  assert 40 * (1 - kept) <= len(read) <= 40 * (1 - kept) + 8 * (0 < kept < 1)
