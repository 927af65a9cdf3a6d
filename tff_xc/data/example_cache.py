"""Keeps examples that cost time to read, up to a bound in bytes."""

import dataclasses
import threading

import numpy as np
import scipy.sparse

from tff_xc.data import pool as pool_lib


def cached(pool: pool_lib.Pool, max_bytes: int = 2**28) -> pool_lib.Pool:
  """Returns the pool such that it reads an example once, if that fits.

  The cache keeps the examples that are read first and forgets none. It is
  thread-safe.
  """
  return dataclasses.replace(pool, read=_Cache(pool, max_bytes))


class _Cache:
  """`Pool.read` of a cached pool."""

  def __init__(self, pool: pool_lib.Pool, max_bytes: int):
    self._read = pool.read
    self._places = np.full(len(pool), -1, np.int32)
    is_sparse = pool.entries is not None
    self._kept = (_SparseRows if is_sparse else _DenseRows)(pool, max_bytes)
    self._lock = threading.Lock()

  def __call__(self, numbers: np.ndarray):
    places = self._places[numbers]
    new = places < 0
    if len(numbers) and not new.any():
      return self._kept.take(places)
    wanted = np.unique(np.asarray(numbers)[new])
    read = self._read(wanted)
    with self._lock:
      # Another thread may have been faster.
      still = np.flatnonzero(self._places[wanted] < 0)
      first = self._kept.add(read[still])
      if first is not None:
        self._places[wanted[still]] = first + np.arange(len(still))
    fresh = read[np.searchsorted(wanted, np.asarray(numbers)[new])]
    if new.all():
      return fresh
    joined = self._kept.join(self._kept.take(places[~new]), fresh)
    return joined[np.argsort(np.argsort(new, kind='stable'))]


class _DenseRows:
  """Rows of an array; the system gives memory as they are written."""

  def __init__(self, pool: pool_lib.Pool, max_bytes: int):
    spec = pool.spec
    row = max(spec.shape.num_elements() * spec.dtype.size, 1)
    rows = min(len(pool), max_bytes // row)
    self._rows = np.empty([rows, *spec.shape], spec.dtype.as_numpy_dtype)
    self._count = 0

  def add(self, x: np.ndarray) -> int | None:
    """Returns the place of the first row, or None if the rows do not fit."""
    first, end = self._count, self._count + len(x)
    if end > len(self._rows):
      return None
    self._rows[first:end] = x
    self._count = end
    return first

  def take(self, places: np.ndarray) -> np.ndarray:
    return self._rows[places]

  def join(self, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


class _SparseRows:
  """Rows of a matrix, in compressed form."""

  def __init__(self, pool: pool_lib.Pool, max_bytes: int):
    entries = int(min(np.sum(pool.entries, dtype=np.int64), max_bytes // 8))
    self._ids = np.empty(entries, np.int32)
    self._values = np.empty(entries, np.float32)
    self._splits = np.zeros(len(pool) + 1, np.int32)
    self._count, self._width = 0, 0

  def add(self, x: scipy.sparse.csr_matrix) -> int | None:
    """As in `_DenseRows`."""
    first, used = self._count, self._splits[self._count]
    if used + x.nnz > len(self._ids):
      return None
    self._ids[used : used + x.nnz] = x.indices
    self._values[used : used + x.nnz] = x.data
    self._count += x.shape[0]
    self._splits[first : self._count + 1] = used + x.indptr
    self._width = x.shape[1]
    return first

  def take(self, places: np.ndarray) -> scipy.sparse.csr_matrix:
    count = self._count
    used = self._splits[count]
    return scipy.sparse.csr_matrix(
      (self._values[:used], self._ids[:used], self._splits[: count + 1]),
      (count, self._width),
    )[places]

  def join(self, *parts) -> scipy.sparse.csr_matrix:
    return scipy.sparse.vstack(parts, 'csr')
