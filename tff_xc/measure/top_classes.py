"""Finds the exact k best of very many classes for each example.

Scores are defined in fixed point (`fixed_point`), which needs float64 products.
Few classes need these: a float32 product of a block of classes bounds every
score from above, and only a class whose bound exceeds the k-th best exact score
so far is scored exactly. If too many classes of a block do so, as in a table of
similar rows, the whole block is scored exactly.
"""

import math
from typing import NamedTuple

import numpy as np

from tff_xc.measure import fixed_point

# Unit roundoff of float32.
_ROUNDOFF = 2.0**-24
# Outside these norms, float32 might overflow or lose small products.
_FLOAT32_NORMS = (2.0**-40, 2.0**40)
_EXAMPLES_AT_ONCE = 2048
_CLASSES_AT_ONCE = 8192
# The whole first block is scored exactly, because there is no k-th best yet.
_FIRST_CLASSES = 1024
# If more than this share of a block's classes passes for an example, the whole
# block is scored exactly: classes scored singly cost so much more each.
_CROWDED_SHARE = 1 / 32
# Most entries of vectors that are gathered at once.
_GATHERED = 2**21


class _Examples(NamedTuple):
  """A batch of examples in fixed point.

  Attributes:
    fixed: float64 [b, d], integers.
    scale: float64 [b], powers of two; `fixed` * scale * 2^-24 are the examples.
    norms: float64 [b], upper bounds of the rounded examples' norms.
    float32: [b, d], exactly the rounded examples.
  """

  fixed: np.ndarray
  scale: np.ndarray
  norms: np.ndarray
  float32: np.ndarray


class _Table(NamedTuple):
  """The classes.

  Attributes:
    rows: float [n, d].
    bias: float64 [n], or None.
    norms: float64 [n], nan if a row is not finite.
    scale: a power of two above all norms.
  """

  rows: np.ndarray
  bias: np.ndarray | None
  norms: np.ndarray
  scale: float


def top_k(
  embeddings: np.ndarray,
  class_table: np.ndarray,
  k: int,
  bias: np.ndarray | None = None,
  block: int = 2**23,
) -> np.ndarray:
  """Returns int32 [e, k]: each example's k best of all n classes, best first.

  The score is <embedding, row> + bias; ties go to the lower id. For a cosine
  head pass a table of unit rows. (An example's norm does not change the order.)

  Scores resolve 2^-28 of the largest row's norm. A class without a finite
  norm or score is never returned. If fewer than k classes remain, the row ends
  in -1, which equals no label.

  Args:
    embeddings: float [e, d].
    class_table: float [n, d]; float32 is not copied.
    k: number of classes, at least 1; may exceed n.
    bias: float [n], or None.
    block: the most float32 scores in memory at once.

  Raises:
    ValueError: for inconsistent shapes, or k below 1.
  """
  embeddings, class_table = np.asarray(embeddings), np.asarray(class_table)
  _check(embeddings, class_table, bias, k)
  norms = fixed_point.finite_norms(class_table)
  table = _Table(
    class_table,
    None if bias is None else np.asarray(bias, np.float64),
    norms,
    float(fixed_point.power_of_two(np.nanmax(norms, initial=0.0))),
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
  """The best classes so far: ids int32 [b, k], scores float64 [b, k]."""

  def __init__(self, count: int, k: int):
    self.ids = np.full((count, k), -1, np.int32)
    self.scores = np.full((count, k), -np.inf)

  def add(self, examples, ids, scores) -> None:
    """Adds scored classes, each once: int, int and float64 [pairs]."""
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
  """Adds the classes of a slice that are among the best to `best`."""
  rows = table.rows[classes]
  with np.errstate(all='ignore'):  # Rows and biases may not be finite.
    bounds = examples.float32 @ np.asarray(rows, np.float32).T
    if table.bias is not None:
      bounds += _upper_bias(table.bias[classes])
    slack = _slack(examples, table, classes)
    floor = (best.scores[:, -1] - slack).astype(np.float32)
    # A class of equal score comes later and loses the tie: > not >=.
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
  """Scores a whole slice for some examples; returns arguments of `best.add`."""
  rows = _fixed_rows(table, classes)
  k = min(best.ids.shape[1], len(rows))
  parts = []
  # In parts, so that float64 scores take no more memory than the float32 ones.
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
  """Returns rows and columns of the scores that may be among the k best.

  These are the scores above `floor` float64 [q]. Of a row with many such
  scores, only the k best are returned.
  """
  passes = scores > floor[:, None]
  many = passes.sum(axis=1) > max(k, scores.shape[1] * _CROWDED_SHARE)
  passes[many] = False
  row, column = np.divmod(np.flatnonzero(passes), scores.shape[1])
  if not many.any():
    return row, column
  many = np.flatnonzero(many)
  if k == 1:
    best = scores[many].argmax(axis=1)[:, None]  # Of ties, the lowest.
  else:
    best = fixed_point.smallest(-scores[many], k)
  place, rank = np.nonzero(best >= 0)  # -1 marks a value that is not finite.
  return (
    np.concatenate([row, many[place]]),
    np.concatenate([column, best[place, rank]]),
  )


def _score_pairs(examples, table, example, ids):
  """Returns float64 [pairs], exact scores, -inf if not finite."""
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
  """Returns the scores of fixed-point products, -inf if not finite."""
  bits = fixed_point.EXAMPLE_BITS + fixed_point.CLASS_BITS
  scores = dots * (scale * 2.0**-bits)
  if bias is not None:
    scores += bias
  scores[~np.isfinite(scores)] = -np.inf
  return scores


def _fixed_rows(table, which):
  """Returns float64 [m, d]: class rows in fixed point, nan if not finite."""
  rows = table.rows[which].astype(np.float64)
  with np.errstate(invalid='ignore'):
    rows *= 2.0**fixed_point.CLASS_BITS / table.scale
    np.rint(rows, out=rows)
  rows[np.isnan(table.norms[which])] = np.nan
  return rows


def _rounded(embeddings) -> _Examples:
  scale = fixed_point.power_of_two(fixed_point.finite_norms(embeddings))
  unit = scale[:, None] * 2.0**-fixed_point.EXAMPLE_BITS
  fixed = np.rint(np.asarray(embeddings, np.float64) / unit)
  with np.errstate(all='ignore'):
    rounded = fixed * unit
    norms = np.linalg.norm(rounded, axis=1) * (1 + 1e-6)
    return _Examples(fixed, scale, norms, rounded.astype(np.float32))


def _slack(examples, table, classes):
  """Returns float64 [b]: by how much a score may exceed its float32 value.

  With u the unit roundoff, the error of a sum in any order is at most
  d u / (1 - d u) times the product of the norms. Three more u cover rows
  rounded to float32, the addition of a bias, and second-order terms. Two more
  terms cover the rounding of rows to fixed point and products that underflow.
  """
  dims = table.rows.shape[1]
  norm = np.nanmax(table.norms[classes], initial=0.0) * (1 + 1e-6)
  relative = (dims + 3) * _ROUNDOFF
  relative /= 1 - relative
  rounding = math.sqrt(dims) * 2.0 ** -(fixed_point.CLASS_BITS + 1)
  largest = relative * norm + rounding * table.scale
  return examples.norms * largest * (1 + 1e-6) + dims * 2.0**-120


def _upper_bias(bias):
  """Returns float32 [m]: `bias` plus more than adding it can round off."""
  above = (bias + 4 * _ROUNDOFF * np.abs(bias)).astype(np.float32)
  above = np.maximum(above, np.finfo(np.float32).min)
  above[~np.isfinite(bias)] = -np.inf
  return above


def _check(embeddings, class_table, bias, k):
  if embeddings.ndim != 2 or class_table.ndim != 2:
    raise ValueError('embeddings and class_table must be matrices.')
  if embeddings.shape[1] != class_table.shape[1]:
    raise ValueError(
      f'embeddings have {embeddings.shape[1]} dimensions, the class table '
      f'{class_table.shape[1]}.'
    )
  if bias is not None and len(bias) != len(class_table):
    raise ValueError(f'{len(bias)} biases for {len(class_table)} classes.')
  if k < 1:
    raise ValueError(f'k must be at least 1; got {k}.')
