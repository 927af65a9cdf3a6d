"""Operations on examples, dense or sparse: count, cut, select, join, blocks."""

from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from tff_xc.data import sparse

_EXAMPLES = 512
# The most features of a block of sparse examples. A single example may have
# more, since it is never cut.
_FEATURES = 2**20


def count(x: np.ndarray | sparse.SparseFeatures) -> int:
  """Returns the number of examples."""
  sparse_x = isinstance(x, sparse.SparseFeatures)
  return len(x.row_splits) - 1 if sparse_x else len(x)


def cut(x, start: int, stop: int):
  """Returns examples [start, stop); `stop` is at most the count."""
  if isinstance(x, sparse.SparseFeatures):
    return sparse.take(x, np.arange(start, stop))
  return x[start:stop]


def at(x, places: np.ndarray):
  """Returns the examples at `places` int [b], in that order."""
  return (
    sparse.take(x, places)
    if isinstance(x, sparse.SparseFeatures)
    else x[places]
  )


def join(parts: Sequence):
  """Concatenates the examples of all parts, of which there is at least one."""
  if isinstance(parts[0], sparse.SparseFeatures):
    return sparse.concatenate(parts)
  return np.concatenate(parts)


def blocks(x) -> Iterator:
  """Yields `x` in one or more blocks of at most 512 examples each.

  A block of sparse examples has at most 2^20 features, or is a single example.
  """
  if not isinstance(x, sparse.SparseFeatures):
    yield from np.array_split(x, max(1, -(-len(x) // _EXAMPLES)))
    return
  start, total = 0, count(x)
  while True:
    stop = min(start + _EXAMPLES, total)
    most = int(x.row_splits[start]) + _FEATURES
    fitting = int(np.searchsorted(x.row_splits, most, side='right')) - 1
    stop = min(stop, max(fitting, start + 1))
    yield cut(x, start, stop)
    start = stop
    if start >= total:
      return
