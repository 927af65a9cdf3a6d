"""Examples in blocks, dense and sparse ones alike."""

from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from datasets import sparse

_EXAMPLES = 512
# Features of a block of sparse examples, but one example is never cut.
_FEATURES = 2**20


def count(x: np.ndarray | sparse.SparseFeatures) -> int:
  """Returns the number of examples."""
  sparse_x = isinstance(x, sparse.SparseFeatures)
  return len(x.row_splits) - 1 if sparse_x else len(x)


def cut(x, start: int, stop: int):
  """Returns the examples from `start` up to `stop`, `stop` at most the count."""
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
  """Returns the examples of all parts, at least one, one after the other."""
  if isinstance(parts[0], sparse.SparseFeatures):
    return sparse.concatenate(parts)
  return np.concatenate(parts)


def blocks(x) -> Iterator:
  """Yields `x` in blocks, at least one, of at most 512 examples each.

  A block of sparse examples has at most 2^20 features, or one example.
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
