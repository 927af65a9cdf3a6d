"""Finds the exact k best of very many classes, and the k nearest of very many points.

Scores and distances are computed in fixed point. Vectors are first rounded to multiples of a
power of two, and then stored as integers in float64. Every product and every partial sum of
a matrix product is then an integer below 2^53, so float64 represents it exactly. Equal vectors
therefore have equal scores, and no result depends on the block size, the BLAS library or its
threads. In a plain float32 product, the scores of two equal vectors may differ in the last
bit. Ties would then have a random order.

To save time, a float32 product of a block first gives an upper bound of every score. The
search computes exact scores only of those pairs of example and class that may be among the k
best according to this bound. If there are too many of these pairs, for example in a table of
similar rows, the search computes the exact scores of all pairs.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# Examples and class rows are scaled to a norm of at most 1 and rounded to these numbers of
# bits. The product of an example and a row is then an integer up to 2^24 * 2^28 = 2^52.
_EXAMPLE_BITS = 24
_CLASS_BITS = 28
# In units of 2^-25, the squared distance of two points in the unit ball is at most 2^52.
# Rounding to these units moves a component by at most 1.5e-8, less than float32's roundoff.
_POINT_BITS = 25
# The unit roundoff of float32.
_ROUNDOFF = 2.0**-24
# For vectors with other norms, float32 might overflow or lose small products.
_FLOAT32_NORMS = (2.0**-40, 2.0**40)
_EXAMPLES_AT_ONCE = 2048
_CLASSES_AT_ONCE = 8192
# The first block has this many classes. Their scores are all computed exactly, because there
# is no k-th best score yet.
_FIRST_CLASSES = 1024
# If more than this share of a block's classes (or of all points) may be among the best of an
# example, a matrix product computes all exact scores. The score of a single pair costs about
# 32 times as much.
_CROWDED_SHARE = 1 / 32
# Gather class rows with at most this many numbers at once.
_GATHERED = 2**21
# `nearest_blocks` divides points into `_GROUPS_PER_NEIGHBOUR` groups for each of the k neighbors,
# and into at least `_LEAST_GROUPS` groups.
_GROUPS_PER_NEIGHBOUR, _LEAST_GROUPS = 16, 256


def _finite_norms(rows: np.ndarray, block: int = 2**16) -> np.ndarray:
  """Returns float64 [k], the Euclidean norms of `rows` [k, d]; nan if a norm is not finite."""
  norms = np.empty(len(rows))
  at_once = max(1, block // max(1, rows.shape[1]))
  for start in range(0, len(rows), at_once):
    part = np.asarray(rows[start : start + at_once], np.float64)
    with np.errstate(invalid='ignore', over='ignore'):
      norms[start : start + at_once] = np.sqrt(np.einsum('kd,kd->k', part, part))
  norms[~np.isfinite(norms)] = np.nan
  return norms


def _power_of_two(norms):
  """Returns the smallest power of two above each norm; 1 for norms that are 0 or nan."""
  norms = np.nan_to_num(norms)
  return np.where(norms > 0, np.exp2(np.frexp(norms)[1]), 1.0)


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
  """Returns int64 [q, k], the columns of the k smallest of `values` [q, n], smallest first.

  If values are equal, the lower column comes first. An infinite value has -1 as its column.
  """
  kth = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
  chosen = values <= kth
  surplus = np.flatnonzero(chosen.sum(axis=1) > k)
  if len(surplus):  # If columns tie for the last places, the lowest columns win.
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


class _Examples(NamedTuple):
  """A batch of examples in fixed point."""

  fixed: np.ndarray  # float64 [b, d], which has integers as values.
  # float64 [b], powers of two. The rounded examples are `fixed` * scale * 2^-24.
  scale: np.ndarray
  norms: np.ndarray  # float64 [b], upper bounds for the norms of the rounded examples.
  float32: np.ndarray  # [b, d], the rounded examples, which float32 represents exactly.


class _Table(NamedTuple):
  """The class rows, with their biases and norms."""

  rows: np.ndarray  # float [n, d].
  bias: np.ndarray | None  # float64 [n], or None.
  norms: np.ndarray  # float64 [n]; nan for a row that is not finite.
  scale: float  # A power of two above all norms.


def top_k(
  embeddings: np.ndarray,
  class_table: np.ndarray,
  k: int,
  bias: np.ndarray | None = None,
  block: int = 2**23,
) -> np.ndarray:
  """Returns int32 [e, k], each example's k best of all n classes, best first.

  A score is <embedding, row> + bias, for embeddings [e, d], class rows [n, d], and bias [n]
  or None. If scores are equal, the lower class id comes first. For a cosine head, pass a table
  of unit rows. Rows are rounded to 2^-28 of the largest row's norm. A class with a norm or
  score that is not finite is never returned. A result with fewer than k classes ends in -1.
  `block` is the largest number of float32 scores in memory.
  """
  embeddings, class_table = np.asarray(embeddings), np.asarray(class_table)
  norms = _finite_norms(class_table)
  table = _Table(
    class_table,
    None if bias is None else np.asarray(bias, np.float64),
    norms,
    float(_power_of_two(np.nanmax(norms, initial=0.0))),
  )
  found = np.full((len(embeddings), k), -1, np.int32)
  at_once = max(1, min(len(embeddings), _EXAMPLES_AT_ONCE, block))
  for first in range(0, len(embeddings), at_once):
    examples = _rounded(embeddings[first : first + at_once])
    best = _Best(len(examples.scale), k)
    classes_at_once = max(1, min(block // at_once, _CLASSES_AT_ONCE))
    start, stop = 0, min(classes_at_once, _FIRST_CLASSES)
    while start < len(class_table):
      _search(examples, table, slice(start, stop), best)
      start, stop = stop, stop + classes_at_once
    found[first : first + at_once] = best.ids
  return found


class _Best:
  """The best classes of each example so far: ids int32 [b, k], and scores float64 [b, k]."""

  def __init__(self, count: int, k: int):
    self.ids = np.full((count, k), -1, np.int32)
    self.scores = np.full((count, k), -np.inf)

  def add(self, examples, ids, scores) -> None:
    """Adds pairs of an example and a class, with scores float64 [pairs]. No pair may repeat."""
    finite = np.isfinite(scores)
    examples, ids, scores = examples[finite], ids[finite], scores[finite]
    if not len(examples):
      return
    k = self.ids.shape[1]
    touched = np.unique(examples)
    examples = np.concatenate([examples, np.repeat(touched, k)])
    ids = np.concatenate([ids, self.ids[touched].ravel()])
    scores = np.concatenate([scores, self.scores[touched].ravel()])
    order = np.lexsort((ids, -scores, examples))
    starts = np.searchsorted(examples[order], touched)
    kept = order[starts[:, None] + np.arange(k)]
    self.ids[touched], self.scores[touched] = ids[kept], scores[kept]


def _search(examples, table, classes, best):
  """Updates `best` with the classes of a slice."""
  rows = table.rows[classes]
  with np.errstate(all='ignore'):  # Rows and biases may have values that are not finite.
    bounds = examples.float32 @ np.asarray(rows, np.float32).T
    if table.bias is not None:
      bounds += _upper_bias(table.bias[classes])
    slack = _slack(examples, table, classes)
    floor = (best.scores[:, -1] - slack).astype(np.float32)
    # Use > and not >=, because a later class with an equal score is not better.
    passes = bounds > np.nextafter(floor, np.float32(-np.inf))[:, None]
  del bounds
  low, high = _FLOAT32_NORMS
  crowded = passes.sum(axis=1) > max(1, len(rows) * _CROWDED_SHARE)
  crowded |= (examples.scale < low) | (examples.scale > high)
  crowded |= not low <= table.scale <= high
  passes[crowded] = False
  example, column = np.divmod(np.flatnonzero(passes), len(rows))
  del passes
  ids = column + classes.start
  best.add(example, ids, _score_pairs(examples, table, example, ids))
  if crowded.any():
    best.add(*_search_whole(examples, table, classes, best, crowded))


def _search_whole(examples, table, classes, best, crowded):
  """Scores all classes of a slice for the `crowded` examples. Returns arguments of `best.add`."""
  rows = _fixed_rows(table, classes)
  k = min(best.ids.shape[1], len(rows))
  parts = []
  # Use four parts, so that the float64 scores need no more memory than the float32 scores.
  for which in np.array_split(np.flatnonzero(crowded), 4):
    with np.errstate(invalid='ignore', over='ignore'):
      scores = examples.fixed[which] @ rows.T
      scores = _finish(
        scores,
        examples.scale[which, None] * table.scale,
        None if table.bias is None else table.bias[classes],
      )
    row, column = _above(scores, best.scores[which, -1], k)
    parts.append((which[row], column, scores[row, column]))
  example, column, scores = map(np.concatenate, zip(*parts, strict=True))
  return example, column + classes.start, scores


def _above(scores, floor, k):
  """Returns rows and columns of scores above `floor`. If a row has many, only its k best."""
  passes = scores > floor[:, None]
  many = passes.sum(axis=1) > max(k, scores.shape[1] * _CROWDED_SHARE)
  passes[many] = False
  row, column = np.divmod(np.flatnonzero(passes), scores.shape[1])
  if not many.any():
    return row, column
  many = np.flatnonzero(many)
  # If scores are equal, take the lowest column.
  best = scores[many].argmax(axis=1)[:, None] if k == 1 else _smallest(-scores[many], k)
  place, rank = np.nonzero(best >= 0)  # -1 marks a value that is not finite.
  return (np.concatenate([row, many[place]]), np.concatenate([column, best[place, rank]]))


def _score_pairs(examples, table, example, ids):
  """Returns float64 [pairs], the exact scores; -inf for a score that is not finite."""
  scores = np.empty(len(ids))
  at_once = max(1, _GATHERED // max(1, table.rows.shape[1]))
  for first in range(0, len(ids), at_once):
    part = slice(first, first + at_once)
    rows = _fixed_rows(table, ids[part])
    with np.errstate(invalid='ignore', over='ignore'):
      dots = np.einsum('pd,pd->p', examples.fixed[example[part]], rows)
      scores[part] = _finish(
        dots,
        examples.scale[example[part]] * table.scale,
        None if table.bias is None else table.bias[ids[part]],
      )
  return scores


def _finish(dots, scale, bias):
  """Converts fixed-point products to scores; -inf for a score that is not finite."""
  bits = _EXAMPLE_BITS + _CLASS_BITS
  scores = dots * (scale * 2.0**-bits)
  if bias is not None:
    scores += bias
  scores[~np.isfinite(scores)] = -np.inf
  return scores


def _fixed_rows(table, which):
  """Returns float64 [m, d], class rows in fixed point; nan for a row that is not finite."""
  rows = table.rows[which].astype(np.float64)
  with np.errstate(invalid='ignore'):
    rows *= 2.0**_CLASS_BITS / table.scale
    np.rint(rows, out=rows)
  rows[np.isnan(table.norms[which])] = np.nan
  return rows


def _rounded(embeddings) -> _Examples:
  scale = _power_of_two(_finite_norms(embeddings))
  unit = scale[:, None] * 2.0**-_EXAMPLE_BITS
  fixed = np.rint(np.asarray(embeddings, np.float64) / unit)
  with np.errstate(all='ignore'):
    rounded = fixed * unit
    norms = np.linalg.norm(rounded, axis=1) * (1 + 1e-6)
    return _Examples(fixed, scale, norms, rounded.astype(np.float32))


def _slack(examples, table, classes):
  """Returns float64 [b], bounds on how far exact scores can exceed the float32 scores.

  Let u be the unit roundoff of float32. The error of a product of d numbers, summed in any
  order, is at most d u / (1 - d u) times the product of the norms. The bound has d + 3 instead
  of d, to cover rows rounded to float32, the addition of a bias, and second-order terms. Two
  more terms cover the rounding to fixed point, and underflow.
  """
  dims = table.rows.shape[1]
  norm = np.nanmax(table.norms[classes], initial=0.0) * (1 + 1e-6)
  relative = (dims + 3) * _ROUNDOFF
  relative /= 1 - relative
  rounding = math.sqrt(dims) * 2.0 ** -(_CLASS_BITS + 1)
  largest = relative * norm + rounding * table.scale
  return examples.norms * largest * (1 + 1e-6) + dims * 2.0**-120


def _upper_bias(bias):
  """Returns float32 [m], `bias` plus more than the rounding error of its addition."""
  above = (bias + 4 * _ROUNDOFF * np.abs(bias)).astype(np.float32)
  above = np.maximum(above, np.finfo(np.float32).min)
  above[~np.isfinite(bias)] = -np.inf
  return above


def nearest_blocks(
  points: np.ndarray, k: int, block: int = 2**21
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields for each block of q points (index of its first point, neighbors int64 [q, k]).

  `points` are float64 [e, d] with norms up to 1. The k neighbors of a point are sorted by
  distance. If distances are equal, the lower index comes first. A point is not its own
  neighbor. If a point has fewer than k neighbors, its row ends in -1. A point that is not
  finite has no neighbors and is not a neighbor. At most `block` distances, with 8 bytes
  each, are in memory at once, but at least the e distances of one point.
  """
  fixed = np.rint(points * 2.0**_POINT_BITS)
  finite = np.isfinite(fixed).all(axis=1)
  fixed[~finite] = 0.0
  size, kept = len(fixed), min(k, len(fixed))
  # Point i is in group i modulo the number of groups. Points at infinity make all groups
  # equally large. The k-th smallest of the groups' least distances is an upper bound of the
  # k-th smallest distance.
  groups = min(size, max(_LEAST_GROUPS, _GROUPS_PER_NEIGHBOUR * k))
  columns = -(-size // groups) * groups
  targets = np.zeros([columns, fixed.shape[1]])
  targets[:size] = -2.0 * fixed
  squares = np.full(columns, np.inf)
  squares[:size][finite] = np.einsum('ed,ed->e', fixed, fixed)[finite]
  at_once = max(1, min(size, block // columns))
  distances = np.empty([at_once, columns])
  for first in range(0, size, at_once):
    queries = np.arange(first, min(first + at_once, size))
    # Leave out the squared norm of the query, because it does not change the order.
    of_block = np.matmul(fixed[queries], targets.T, out=distances[: len(queries)])
    of_block += squares
    of_block[np.arange(len(queries)), queries] = np.inf
    of_block[~finite[queries]] = np.inf
    yield first, _nearest(of_block, groups, k, kept)


def _nearest(distances: np.ndarray, groups: int, k: int, kept: int) -> np.ndarray:
  """Returns int64 [q, k], the columns of the `kept` smallest distances, and then -1."""
  found = np.full([len(distances), k], -1, np.int64)
  minima = distances.reshape([len(distances), -1, groups]).min(axis=1)
  bounds = np.partition(minima, kept - 1, axis=1)[:, kept - 1]
  passes = distances <= np.minimum(bounds, np.finfo(np.float64).max)[:, None]
  crowded = passes.sum(axis=1) > max(2 * k, distances.shape[1] * _CROWDED_SHARE)
  if crowded.any():
    found[crowded, :kept] = _smallest(distances[crowded], kept)
    passes[crowded] = False
  row, column = np.divmod(np.flatnonzero(passes), distances.shape[1])
  order = np.lexsort([distances[row, column], row])  # Ties stay in column order.
  rank = np.arange(len(row)) - np.searchsorted(row, row)
  is_near = rank < k
  found[row[is_near], rank[is_near]] = column[order][is_near]
  return found
