"""Fixed-point numbers in float64, whose products and sums are exact.

Vectors are rounded once to multiples of a power of two, so that every product
and every partial sum of a float64 matrix product is an integer below 2^53.
Equal vectors then tie exactly, and no result depends on the block size, the
BLAS or its threads.
"""

import numpy as np

# The product of an example (norm up to 1) and a class row (norm up to 1 in
# units of the largest norm) is at most 2^24 * 2^28 = 2^52.
EXAMPLE_BITS = 24
CLASS_BITS = 28


def finite_norms(rows: np.ndarray, block: int = 2**16) -> np.ndarray:
  """Returns float64 [k]: Euclidean norms of `rows`, nan if not finite."""
  norms = np.empty(len(rows))
  at_once = max(1, block // max(1, rows.shape[1]))
  for start in range(0, len(rows), at_once):
    part = np.asarray(rows[start : start + at_once], np.float64)
    with np.errstate(invalid='ignore', over='ignore'):
      norms[start : start + at_once] = np.sqrt(
        np.einsum('kd,kd->k', part, part)
      )
  norms[~np.isfinite(norms)] = np.nan
  return norms


def power_of_two(norms):
  """Returns the least power of two above `norms`; 1 where they are 0 or nan."""
  norms = np.nan_to_num(norms)
  return np.where(norms > 0, np.exp2(np.frexp(norms)[1]), 1.0)


def smallest(values: np.ndarray, k: int) -> np.ndarray:
  """Returns int64 [q, k]: columns of each row's k smallest, in stable order.

  Columns of infinite values come out as -1.

  Args:
    values: float [q, m] without nan.
    k: from 1 to m.
  """
  kth = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
  chosen = values <= kth
  surplus = np.flatnonzero(chosen.sum(axis=1) > k)
  if len(surplus):  # Of columns that tie for the last places, the lowest win.
    tied = values[surplus] == kth[surplus]
    places = k - (values[surplus] < kth[surplus]).sum(axis=1, keepdims=True)
    tied_rank = tied.cumsum(axis=1, dtype=np.int32)
    chosen[surplus] &= ~tied | (tied_rank <= places)
  columns = np.nonzero(chosen)[1].reshape(len(values), k)
  picked = np.take_along_axis(values, columns, axis=1)
  order = np.argsort(picked, axis=1, kind='stable')
  columns = np.take_along_axis(columns, order, axis=1)
  columns[np.isinf(np.take_along_axis(picked, order, axis=1))] = -1
  return columns
