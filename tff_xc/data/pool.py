"""Pools of numbered examples, with labels in memory and examples read on demand.

Federated extreme classification often needs all labels, but only the examples of the
clients that train.
"""

import collections
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import errors

# The most examples in a block, the most features in a block of sparse examples, and the
# most bytes in a block of dense examples. A larger example is a block of its own.
_EXAMPLES, _FEATURES, _BYTES = 512, 2**20, 2**27

# The spec of a sparse example, whose number of features differs between examples.
SPARSE = collections.OrderedDict(
  ids=tf.TensorSpec([None], tf.int32), values=tf.TensorSpec([None], tf.float32)
)


class Examples(NamedTuple):
  """k examples."""

  # [k, ...] as stored (images uint8), or sparse features, float32 [k, D].
  x: np.ndarray | scipy.sparse.csr_matrix
  # int32 [k], or a sparse matrix of sets of labels, bool [k, n]. In the matrix, example i
  # has the ascending labels `labels.indices[labels.indptr[i] : labels.indptr[i + 1]]`.
  labels: np.ndarray | scipy.sparse.csr_matrix


class Ranges(NamedTuple):
  """Bags of ids that are ranges of one list: bag i is ids[starts[i] : stops[i]].

  The memory of ranges is proportional to the list's length. If each bag were copied, the
  memory could be proportional to the square of this length.
  """

  ids: np.ndarray  # int32 [M], in [0, size).
  starts: np.ndarray  # int64 [N].
  stops: np.ndarray  # int64 [N].
  size: int

  @property
  def lengths(self) -> np.ndarray:
    """int64 [N], the number of ids of each bag."""
    return self.stops - self.starts

  def some(self, numbers: np.ndarray | slice) -> 'Ranges':
    """Returns the bags with these numbers, int [k], in this order."""
    return self._replace(starts=self.starts[numbers], stops=self.stops[numbers])

  def matrix(self, by_age: bool = False, summed: bool = True) -> scipy.sparse.csr_matrix:
    """Returns bool [N, size]: entry (i, j) is true if bag i contains the id j.

    With `by_age`, the entries are float32 weights: 1 for the last id of a bag, and 1/2, 1/3
    and so on for the ids before the last. The weights of a repeated id are added, unless
    `summed` is False.
    """
    splits = np.cumsum(np.append(0, self.lengths))
    places = np.arange(splits[-1])
    places += np.repeat(self.starts - splits[:-1], self.lengths)
    values = np.ones(len(places), bool)
    if by_age:
      ages = np.repeat(self.stops, self.lengths) - places
      values = (1 / ages).astype(np.float32)
    made = scipy.sparse.csr_matrix(
      (values, self.ids[places], splits), (len(self.starts), self.size)
    )
    if summed:
      made.sum_duplicates()
    return made


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
  """The N examples of a data set, or of a part of it, numbered from 0."""

  labels: np.ndarray | scipy.sparse.csr_matrix  # As in `Examples`.
  # The spec of one x; `SPARSE` for sparse features.
  spec: tf.TensorSpec | Mapping[str, tf.TensorSpec]
  # Returns x of the examples with the given numbers, int64 [k], in this order. Several
  # threads may call it.
  read: Callable[[np.ndarray], np.ndarray | scipy.sparse.csr_matrix]
  # int [N], an upper bound on the number of features of each sparse example. None if
  # examples are dense.
  entries: np.ndarray | None = None
  num_features: int = 0  # D of sparse examples.
  # Whether `read` decodes files, which is slow enough to do ahead of time.
  is_decoded: bool = False
  # The classes to leave out of each example's ranking, such as items that the user
  # already has. None if every class is ranked.
  seen: Ranges | None = None
  # Whether an example is a sequence of items that are classes. An item's value is then
  # 1 / age, and every item except the oldest is also a label.
  is_sequences: bool = False
  # Source files, or some of them if there are many. A run stops if one of these files
  # changes.
  files: Sequence[str | os.PathLike] = ()

  def __len__(self) -> int:
    return self.labels.shape[0]

  @property
  def each_label(self) -> np.ndarray:
    """int32, the label of each example, or the concatenated sets of labels."""
    return self.labels.indices if scipy.sparse.issparse(self.labels) else self.labels

  def examples(self, numbers: np.ndarray) -> Examples:
    """Returns the examples with these numbers, int [k], in this order."""
    return Examples(self.read(numbers), self.labels[numbers])

  def subset(self, numbers: np.ndarray) -> 'Pool':
    """Returns a pool whose example i is example `numbers[i]` of this pool."""
    return dataclasses.replace(
      self,
      labels=self.labels[numbers],
      read=lambda places: self.read(numbers[places]),
      entries=None if self.entries is None else self.entries[numbers],
      seen=self.seen and self.seen.some(numbers),
    )

  def joined(self, other: 'Pool') -> 'Pool':
    """Returns the pool of this pool's examples followed by those of `other`.

    Both pools must have the same kind of x and of labels (one label or a set of labels).
    """

    def read(numbers):
      own = numbers < len(self)
      if own.all():
        return self.read(numbers)
      parts = self.read(numbers[own]), other.read(numbers[~own] - len(self))
      return _stacked(parts)[np.argsort(np.argsort(~own, kind='stable'))]

    return dataclasses.replace(
      self,
      labels=_stacked((self.labels, other.labels)),
      read=read,
      entries=None if self.entries is None else _stacked((self.entries, other.entries)),
    )

  def blocks(self, numbers: np.ndarray | None = None) -> Iterator[Examples]:
    """Yields the examples with these numbers (default: all) in one or more blocks, in order.

    A block has at most 512 examples. A block of sparse examples has at most 2^20 features,
    and a block of dense examples at most 2^27 bytes. A larger example is a block of its own.
    """
    numbers = np.arange(len(self)) if numbers is None else numbers
    if self.entries is None:
      most = min(_EXAMPLES, max(_BYTES // _bytes(self.spec), 1))
      parts = max(1, -(-len(numbers) // most))
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


def _stacked(parts: Sequence):
  """Stacks the rows of all parts, which are arrays or csr matrices."""
  is_sparse = scipy.sparse.issparse(parts[0])
  return (scipy.sparse.vstack if is_sparse else np.concatenate)(parts)


def in_memory(
  x: np.ndarray | scipy.sparse.spmatrix, labels: np.ndarray | scipy.sparse.spmatrix
) -> Pool:
  """Returns a pool of arrays or matrices; it copies them only if their form must change.

  Args:
    x: numbers [N, ...], or a matrix of sparse features [N, D], whose repeated entries are
      added.
    labels: integers [N], or sets of labels as a sparse matrix or bool array [N, n].

  Raises:
    errors.InputError: `labels` have another form, a label does not fit int32, or `x` and
      `labels` have different lengths.
  """
  is_sparse = scipy.sparse.issparse(x)
  x, labels = _canonical(x) if is_sparse else np.asarray(x), _labels(labels)
  if is_sparse and x.dtype == bool:  # Bool matrices are reserved for sets of labels.
    x = x.astype(np.float32)
  if x.shape[:1] != labels.shape[:1]:
    raise errors.InputError(
      f'x has the shape {list(x.shape)} and its labels {list(labels.shape)}; give labels for each'
      ' example of x'
    )
  return Pool(
    labels=labels,
    spec=SPARSE if is_sparse else tf.TensorSpec(x.shape[1:], x.dtype),
    read=lambda numbers: x[numbers],
    entries=np.diff(x.indptr) if is_sparse else None,
    num_features=x.shape[1] if is_sparse else 0,
  )


def _labels(labels) -> np.ndarray | scipy.sparse.csr_matrix:
  """Returns labels as in `Examples`."""
  if scipy.sparse.issparse(labels):
    labels = _canonical(labels)
    if labels.dtype != bool or not labels.data.all():
      labels = labels.astype(bool)
      labels.eliminate_zeros()
    return labels
  labels = np.asarray(labels)
  if labels.ndim == 2 and labels.dtype == bool:
    return scipy.sparse.csr_matrix(labels)
  if labels.ndim != 1 or (labels.size and not np.issubdtype(labels.dtype, np.integer)):
    raise errors.InputError(
      f'labels are {labels.dtype} {list(labels.shape)}; give integers [N], or sets of labels as'
      ' bool [N, n]'
    )
  bounds = np.iinfo(np.int32)
  bad = labels[(labels < bounds.min) | (labels > bounds.max)]
  if bad.size:
    raise errors.InputError(f'label {bad[0]} does not fit int32; number the classes from 0')
  return labels.astype(np.int32, copy=False)


def _canonical(matrix: scipy.sparse.spmatrix) -> scipy.sparse.csr_matrix:
  """Returns a csr matrix whose rows have ascending, distinct ids."""
  if type(matrix) is not scipy.sparse.csr_matrix:  # csr_array is a subclass.
    matrix = scipy.sparse.csr_matrix(matrix)
  if not matrix.has_canonical_format:
    matrix = matrix.copy()  # The caller owns the matrix, whose arrays may be read-only.
    matrix.sum_duplicates()
  return matrix


def cached(pool: Pool, max_bytes: int = 2**28) -> Pool:
  """Returns a pool of dense examples that caches examples in at most `max_bytes` of memory.

  The cache keeps the examples that are read first, and never removes any of them.
  """
  return dataclasses.replace(pool, read=_Cache(pool, max_bytes))


def _bytes(spec: tf.TensorSpec) -> int:
  """Returns the number of bytes of an example; at least 1."""
  return max(spec.shape.num_elements() * spec.dtype.size, 1)


class _Cache:
  """The function `Pool.read` of a cached pool."""

  def __init__(self, pool: Pool, max_bytes: int):
    self._read, self._spec = pool.read, pool.spec
    row = _bytes(pool.spec)
    # The system allocates pages of an empty array only when they are written.
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
    new = self._places[numbers] < 0  # Another thread may have added some of them.
    end = self._count + np.count_nonzero(new)
    if end <= len(self._kept):
      self._kept[self._count : end] = x[new]
      self._places[numbers[new]] = np.arange(self._count, end)
      self._count = end

  def _empty(self, rows: int) -> np.ndarray:
    return np.empty([rows, *self._spec.shape], self._spec.dtype.as_numpy_dtype)
