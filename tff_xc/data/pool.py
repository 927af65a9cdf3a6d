"""Numbered examples: their labels at once, the examples when asked for.

Federated extreme classification needs labels all the time, and examples only of
the clients that train.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

# The most examples of a block, and the most features of a block of sparse
# examples. A single example may have more, since it is never cut.
_EXAMPLES, _FEATURES = 512, 2**20

# The spec of a sparse example: f features, where f differs between examples.
SPARSE = collections.OrderedDict(
  ids=tf.TensorSpec([None], tf.int32), values=tf.TensorSpec([None], tf.float32)
)


class Examples(NamedTuple):
  """Some examples.

  Attributes:
    x: [k, ...] as stored (images uint8), or sparse features, float32 [k, D].
    y: int32 [k], or sets of labels, bool [k, n]: example i has the labels
      `y.indices[y.indptr[i] : y.indptr[i + 1]]`, which ascend.
  """

  x: np.ndarray | scipy.sparse.csr_matrix
  y: np.ndarray | scipy.sparse.csr_matrix


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
  """The N examples of a set, or of a part of it, numbered from 0.

  Attributes:
    y: the labels, as in `Examples`.
    spec: of one x; `SPARSE` for sparse features.
    read: numbers int64 [k] -> x of these examples, in their order. It may be
      called from several threads.
    entries: of sparse examples int [N], the number of features of each, or an
      upper bound; None for dense examples.
  """

  y: np.ndarray | scipy.sparse.csr_matrix
  spec: tf.TensorSpec | Mapping[str, tf.TensorSpec]
  read: Callable[[np.ndarray], np.ndarray | scipy.sparse.csr_matrix]
  entries: np.ndarray | None = None

  def __len__(self) -> int:
    return self.y.shape[0]

  def examples(self, numbers: np.ndarray) -> Examples:
    """Returns the examples of these numbers, int [k], in their order."""
    return Examples(self.read(numbers), self.y[numbers])

  def subset(self, numbers: np.ndarray) -> 'Pool':
    """Returns the pool in which example i is this one's `numbers[i]`."""
    return dataclasses.replace(
      self,
      y=self.y[numbers],
      read=lambda places: self.read(numbers[places]),
      entries=None if self.entries is None else self.entries[numbers],
    )

  def blocks(self, numbers: np.ndarray | None = None) -> Iterator[Examples]:
    """Yields these (or all) examples in one or more blocks, in their order.

    A block has at most 512 examples. A block of sparse examples has at most
    2^20 features, or is a single example.
    """
    numbers = np.arange(len(self)) if numbers is None else numbers
    if self.entries is None:
      parts = max(1, -(-len(numbers) // _EXAMPLES))
      yield from map(self.examples, np.array_split(numbers, parts))
      return
    upto = np.cumsum(np.append(0, self.entries[numbers].astype(np.int64)))
    start = 0
    while True:
      fitting = np.searchsorted(upto, upto[start] + _FEATURES, 'right') - 1
      stop = min(start + _EXAMPLES, max(int(fitting), start + 1))
      yield self.examples(numbers[start:stop])
      start = stop
      if start >= len(numbers):
        return


def in_memory(
  x: np.ndarray | scipy.sparse.csr_matrix,
  y: np.ndarray | scipy.sparse.csr_matrix,
) -> Pool:
  """Returns a pool of arrays or matrices, as in `Examples`, not copied."""
  if not scipy.sparse.issparse(y):
    y = np.asarray(y, np.int32)
  elif not (y.has_canonical_format and y.dtype == bool and y.data.all()):
    y = y.copy()  # The arrays may be read-only.
    y.sum_duplicates()
    y = y.astype(bool)
    y.eliminate_zeros()
  is_sparse = scipy.sparse.issparse(x)
  return Pool(
    y=y,
    spec=SPARSE if is_sparse else tf.TensorSpec(x.shape[1:], x.dtype),
    read=lambda numbers: x[numbers],
    entries=np.diff(x.indptr) if is_sparse else None,
  )


def cached(pool: Pool, max_bytes: int = 2**28) -> Pool:
  """Returns a pool of dense examples that reads an example once, if that fits.

  It keeps the examples that are read first, and forgets none.
  """
  return dataclasses.replace(pool, read=_Cache(pool, max_bytes))


class _Cache:
  """`Pool.read` of a cached pool."""

  def __init__(self, pool: Pool, max_bytes: int):
    self._read, self._spec = pool.read, pool.spec
    row = max(pool.spec.shape.num_elements() * pool.spec.dtype.size, 1)
    # The system gives memory only as it is written.
    self._kept = self._empty(min(len(pool), max_bytes // row))
    self._places = np.full(len(pool), -1, np.int32)
    self._count = 0
    self._lock = threading.Lock()

  def __call__(self, numbers: np.ndarray) -> np.ndarray:
    x, places = self._empty(len(numbers)), self._places[numbers]
    kept = places >= 0
    x[kept] = self._kept[places[kept]]
    if not kept.all():
      new, back = np.unique(numbers[~kept], return_inverse=True)
      read = self._read(new)
      x[~kept] = read[back]
      with self._lock:
        self._keep(new, read)
    return x

  def _keep(self, numbers: np.ndarray, x: np.ndarray) -> None:
    new = self._places[numbers] < 0  # Another thread may have been faster.
    end = self._count + np.count_nonzero(new)
    if end <= len(self._kept):
      self._kept[self._count : end] = x[new]
      self._places[numbers[new]] = np.arange(self._count, end)
      self._count = end

  def _empty(self, rows: int) -> np.ndarray:
    return np.empty([rows, *self._spec.shape], self._spec.dtype.as_numpy_dtype)
