"""Pools: labels at once, examples by number, in bounded blocks."""

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import pool
from tff_xc.data import sparse

RANDOM = np.random.default_rng(0)


def bags(lengths):
  splits = np.cumsum(np.append(0, lengths))
  ids = np.arange(splits[-1])
  values = RANDOM.normal(size=len(ids)).astype(np.float32)
  return scipy.sparse.csr_matrix(
    (values, ids, splits), (len(lengths), max(len(ids), 1))
  )


def same(a, b):
  assert type(a) is type(b)
  if scipy.sparse.issparse(a):
    for name in ('indptr', 'indices', 'data'):
      np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
  else:
    np.testing.assert_array_equal(a, b)
  assert a.shape == b.shape
  assert a.dtype == b.dtype


def test_examples_of_arrays():
  x = RANDOM.integers(0, 256, [9, 4, 4], np.uint8)
  found = pool.in_memory(x, np.arange(9))
  assert found.spec == tf.TensorSpec([4, 4], tf.uint8)
  assert len(found) == 9
  numbers = np.array([3, 1, 1, 8])
  same(found.examples(numbers).x, x[numbers])
  assert found.examples(numbers).y.dtype == np.int32
  part = found.subset(numbers)
  assert part.y.tolist() == [3, 1, 1, 8]
  same(part.read(np.array([3, 0])), x[[8, 3]])


def test_examples_of_matrices_share_their_memory():
  x = bags([3, 0, 2, 5])
  y = scipy.sparse.csr_matrix(np.eye(4, 6) > 0)
  found = pool.in_memory(x, y)
  assert found.spec == pool.SPARSE
  assert found.y is y
  assert found.entries.tolist() == [3, 0, 2, 5]
  same(found.read(np.array([3, 0])), x[[3, 0]])
  same(found.examples(np.array([3, 0])).y, y[[3, 0]])
  part = found.subset(np.array([2, 3]))
  assert part.entries.tolist() == [2, 5]
  same(part.read(np.array([1])), x[[3]])


def test_sets_of_labels_are_put_in_order():
  splits, ids, values = [0, 3, 4], [4, 1, 4, 2], [1, 1, 1, 0]
  given = scipy.sparse.csr_matrix((values, ids, splits), (2, 5))
  for array in (given.data, given.indices, given.indptr):
    array.setflags(write=False)
  y = pool.in_memory(np.zeros([2, 1]), given).y
  assert y.dtype == bool
  assert y.indptr.tolist() == [0, 2, 2]
  assert y.indices.tolist() == [1, 4]


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
  same(found.y, wanted[1])


def test_features_are_put_in_order_and_never_become_labels():
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
    np.testing.assert_array_equal(given.indices, before)


def test_lists_are_arrays():
  found = pool.in_memory([[1, 2], [3, 4]], [0, 1])
  assert found.spec.shape == [2]
  assert found.read(np.array([1])).tolist() == [[3, 4]]


@pytest.mark.parametrize(
  ('y', 'message'),
  [
    ([0, 0.5], 'float64'),
    ([True, False], 'bool'),
    ([[0, 1], [1, 0]], r'int64 \[2, 2\]'),
    ([0, 2**32 + 1], '4294967297'),
    ([0, 1, 2], r'y \[3\]'),
    ([0], r'y \[1\]'),
  ],
)
def test_labels_that_would_change_are_refused(y, message):
  for x in (np.zeros([2, 4]), scipy.sparse.csr_matrix((2, 4))):
    with pytest.raises(errors.InputError, match=message):
      pool.in_memory(x, np.array(y))


def test_blocks_of_dense_examples():
  x = np.arange(1300)
  found = pool.in_memory(x, x % 7)
  sizes = [len(y) for _, y in found.blocks()]
  assert sum(sizes) == 1300
  assert max(sizes) <= 512
  same(np.concatenate([x for x, _ in found.blocks()]), x)
  some = x[::-2]
  same(np.concatenate([x for x, _ in found.blocks(some)]), some)
  assert [len(y) for _, y in found.blocks(x[:0])] == [0]


def test_blocks_of_large_examples_are_bounded(monkeypatch):
  monkeypatch.setattr(pool, '_BYTES', 3 * 40)
  x = np.arange(70, dtype=np.float32).reshape(7, 10)
  found = pool.in_memory(x, np.zeros(7, int))
  blocks = [block.x for block in found.blocks()]
  assert [len(b) for b in blocks] == [3, 2, 2]
  same(np.concatenate(blocks), x)
  monkeypatch.setattr(pool, '_BYTES', 1)
  assert [len(b.y) for b in found.blocks()] == [1] * 7


def test_blocks_of_sparse_examples_are_bounded(monkeypatch):
  monkeypatch.setattr(pool, '_FEATURES', 10)
  monkeypatch.setattr(pool, '_EXAMPLES', 4)
  x = bags([3, 3, 4, 1, 25, 0, 10, 0, 0, 0, 0, 0, 1])
  found = pool.in_memory(x, np.zeros(13, int))
  blocks = [block.x for block in found.blocks()]
  assert [np.diff(b.indptr).tolist() for b in blocks] == [
    [3, 3, 4],
    [1],
    [25],
    [0, 10, 0, 0],
    [0, 0, 0, 1],
  ]
  same(scipy.sparse.vstack(blocks, 'csr'), x)
  [empty] = found.blocks(np.zeros(0, np.int64))
  assert empty.x.shape[0] == 0


@pytest.mark.parametrize('kept', [0, 0.4, 1])
def test_a_cached_pool_reads_what_fits_once(kept):
  x, read = RANDOM.normal(size=[40, 3]).astype(np.float32), []
  whole = pool.in_memory(x, np.zeros(40, int))

  def reading(numbers):
    read.extend(numbers.tolist())
    return x[numbers]

  counted = pool.Pool(whole.y, whole.spec, reading)
  cached = pool.cached(counted, int(kept * x.nbytes))
  for _ in range(30):
    numbers = RANDOM.integers(0, 40, RANDOM.integers(0, 9))
    same(cached.read(numbers), x[numbers])
  again = sum(read.count(number) > 1 for number in range(40))
  assert again == 0 if kept == 1 else again > 5
  same(cached.read(np.arange(40)), x)
  del read[:]
  same(cached.read(np.arange(40)[::-1]), x[::-1])
  # What a read adds is kept as a whole or not at all.
  assert 40 * (1 - kept) <= len(read) <= 40 * (1 - kept) + 8 * (0 < kept < 1)
