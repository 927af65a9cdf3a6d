"""Distances between class rows, which show whether the rows have collapsed."""

import numpy as np
from scipy.spatial import distance

from tff_xc.measure import ranking


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
    sample: the most rows to compare, at least 2; the default takes 67 MB.
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
  # Direct differences: a product of the rows would cancel between equal ones.
  distances = distance.pdist(rows)
  return float(distances.min()), float(distances.mean())
