"""Distances between class rows, which show whether the rows have collapsed."""

import numpy as np

from tff_xc.measure import ranking

# Squared distances below this share of the squared norms are recomputed from
# the rows' differences. Above, the relative error by cancellation is below
# 1e-7.
_CANCELLED = 1e-8
# Most distances, or entries of differences, in memory at once.
_BLOCK = 2**21
_ENTRIES = 2**16


def class_distances(
  class_rows: np.ndarray,
  class_ids: np.ndarray | None = None,
  sample: int = 4096,
  seed: int = 0,
) -> tuple[float, float]:
  """Returns the smallest and the mean distance between two class rows.

  Distances are Euclidean, between l2-normalised rows, over all pairs of
  different classes in a sample. The sample is all classes if there are at most
  `sample`. Otherwise it is `sample` classes drawn uniformly without
  replacement, the same for the same seed and classes. Distances have float64
  precision even between nearly equal rows.

  Without its regulariser, FedAwS lets the rows collapse, and both distances go
  to 0. Independent directions are sqrt(2) apart on average.

  Args:
    class_rows: float [n, d]; a zero row stays zero.
    class_ids: int [c], classes to compare, repeats count once; None: all n.
    sample: the most rows to compare, at least 2.
    seed: seeds the sample.

  Returns:
    Two floats; nan with fewer than two classes, or if a row is not finite.
  """
  class_rows = np.asarray(class_rows)
  if class_ids is None:
    ids = np.arange(len(class_rows))
  else:
    ids = np.unique(np.asarray(class_ids, np.int64))
  if len(ids) > sample:
    random = np.random.default_rng(seed)
    ids = np.sort(random.choice(ids, sample, replace=False))
  rows = ranking.normalise(class_rows[ids])
  if len(rows) < 2 or not np.isfinite(rows).all():
    return float('nan'), float('nan')
  pairs = len(rows) * (len(rows) - 1) / 2
  # Identical rows, as in a collapsed table, become one row with a count: their
  # distances to each other are 0.
  rows, counts = np.unique(rows, axis=0, return_counts=True)
  smallest, total = 0.0 if (counts > 1).any() else np.inf, 0.0
  for one, other, distances in _pair_distances(rows):
    smallest = min(smallest, distances.min())
    total += np.sum(distances * counts[one] * counts[other])
  return float(smallest), float(total / pairs)


def _pair_distances(rows):
  """Yields int, int and float64 arrays: pairs, each once, and distances."""
  # Similar rows are small after subtracting their mean, so little cancels.
  centred = rows - rows.mean(axis=0)
  norms = np.einsum('kd,kd->k', centred, centred)
  at_once = max(1, _BLOCK // len(rows))
  for start in range(0, len(rows) - 1, at_once):
    left = slice(start, min(start + at_once, len(rows) - 1))
    size = norms[left, None] + norms[start:]
    squared = size - 2 * (centred[left] @ centred[start:].T)
    one, other = np.triu_indices(len(squared), 1, squared.shape[1])
    squared = squared[one, other]
    close = np.flatnonzero(squared <= _CANCELLED * size[one, other])
    pairs_at_once = max(1, _ENTRIES // rows.shape[1])
    for first in range(0, len(close), pairs_at_once):
      part = close[first : first + pairs_at_once]
      gaps = rows[start + one[part]] - rows[start + other[part]]
      squared[part] = np.einsum('pd,pd->p', gaps, gaps)
    yield start + one, start + other, np.sqrt(squared)
