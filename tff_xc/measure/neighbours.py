"""Finds the exact k nearest others of very many points.

Distances are defined in fixed point (`fixed_point`), which needs float64. Few
pairs need it: one float32 product of a block of queries and all points bounds
every distance from below, and only the pairs whose bound is among the k least, or
may be, are measured exactly. A query with too many such pairs, as among points
that all lie together, is measured exactly against all points.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tff_xc.measure import fixed_point

# With 2^25 per unit, a squared distance of points of the unit ball is at most
# 2^52, which a float64 holds exactly. Rounding moves a component by at most
# 1.5e-8, less than float32 does.
_BITS = 25
# Unit roundoff of float32.
_ROUNDOFF = 2.0**-24
# The k-th largest score is bounded by the maxima of so many groups of points for
# each neighbour, and at least so many groups.
_GROUPS_PER_NEIGHBOUR, _LEAST_GROUPS = 16, 256
# A query for which more than this share of the points pass is measured exactly
# against all points, which then costs less.
_CROWDED_SHARE = 1 / 32
# Most entries of vectors that are gathered at once.
_GATHERED = 2**20


class _Points(NamedTuple):
  """All points. In float32 they are less their mean, so that near ones differ.

  Attributes:
    fixed: float64 [e, d], integers; zero if not finite.
    finite: bool [e].
    queries: float32 [e, d + 1], the points and 1.
    targets: float32 [e', d + 1], the points and minus half their squared norms.
      The product with a query is larger the nearer the point is. It is -inf of
      points that are not finite, and of those that make e' a multiple of `groups`.
    slack: float64 [e], twice the most by which a query's products may be wrong.
    groups: number of groups; point i is in group i modulo it.
  """

  fixed: np.ndarray
  finite: np.ndarray
  queries: np.ndarray
  targets: np.ndarray
  slack: np.ndarray
  groups: int


def blocks(
  points: np.ndarray, k: int, block: int = 2**22
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields the k nearest others of blocks of points, in order.

  A point is no neighbour of itself, by its number, and ties go to the lower
  number. If fewer than k other finite points exist, rows end in -1. A point that
  is not finite has no neighbours and is none.

  Args:
    points: float64 [e, d], of norms up to 1.
    k: number of neighbours, at least 1.
    block: the most distances in memory at once, 4 bytes each.

  Yields:
    The number of the block's first point, and int64 [q, k], nearest first.
  """
  points = _prepared(points, k)
  at_once = max(1, min(len(points.fixed), block // max(1, len(points.targets))))
  scores = np.empty([at_once, len(points.targets)], np.float32)
  for first in range(0, len(points.fixed), at_once):
    queries = slice(first, min(first + at_once, len(points.fixed)))
    yield first, _nearest(points, queries, k, scores[: queries.stop - first])


def _prepared(points: np.ndarray, k: int) -> _Points:
  fixed = np.rint(points * 2.0**_BITS)
  finite = np.isfinite(fixed).all(axis=1)
  fixed[~finite] = 0.0
  size, dims = fixed.shape
  groups = min(size, max(_LEAST_GROUPS, _GROUPS_PER_NEIGHBOUR * k))
  centred = fixed - np.rint(fixed.mean(axis=0))
  halves = np.einsum('ed,ed->e', centred, centred) / 2
  norms = np.sqrt(2 * halves)
  queries = np.ones([size, dims + 1], np.float32)
  queries[:, :dims] = centred
  targets = np.zeros([-(-size // groups) * groups, dims + 1], np.float32)
  targets[:size] = queries
  targets[:, dims] = -np.inf
  targets[:size, dims][finite] = -halves[finite]
  # The error of a sum of d + 1 products in any order is at most (d + 1) u /
  # (1 - (d + 1) u) times the product of the norms; factors rounded to float32
  # and terms of second order need three more u.
  relative = (dims + 4) * _ROUNDOFF
  relative /= 1 - relative
  largest = norms.max(initial=0.0)
  slack = 2 * relative * (norms * largest + largest**2 / 2)
  return _Points(fixed, finite, queries, targets, slack, groups)


def _nearest(
  points: _Points, queries: slice, k: int, scores: np.ndarray
) -> np.ndarray:
  """Returns int64 [q, k] of a block of queries; overwrites `scores` [q, e']."""
  count = len(scores)
  np.matmul(points.queries[queries], points.targets.T, out=scores)
  scores[np.arange(count), np.arange(queries.start, queries.stop)] = -np.inf
  scores[~points.finite[queries]] = -np.inf
  maxima = scores.reshape([count, -1, points.groups]).max(axis=1)
  least = np.full(count, -np.inf)
  if k <= points.groups:
    kth = points.groups - k
    least = np.partition(maxima, kth, axis=1)[:, kth].astype(np.float64)
    least -= points.slack[queries]
  # Rounded down, and above what is no neighbour at all.
  least = np.nextafter(least.astype(np.float32), np.float32(-np.inf))
  least = np.maximum(least, np.finfo(np.float32).min)
  passes = scores >= least[:, None]
  crowded = passes.sum(axis=1) > max(2 * k, len(points.fixed) * _CROWDED_SHARE)
  passes[crowded] = False
  found = np.full([count, k], -1, np.int64)
  row, column = np.divmod(np.flatnonzero(passes), passes.shape[1])
  distances = _of_pairs(points.fixed, row + queries.start, column)
  order = np.lexsort([distances, row])  # Stable: ties stay in columns' order.
  rank = np.arange(len(row)) - np.searchsorted(row, row)
  kept = rank < k
  found[row[kept], rank[kept]] = column[order][kept]
  if crowded.any():
    found[crowded] = _of_crowded(points, queries, np.flatnonzero(crowded), k)
  return found


def _of_pairs(fixed, first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns float64 [pairs], exact squared distances."""
  distances = np.empty(len(first))
  at_once = max(1, _GATHERED // max(1, fixed.shape[1]))
  for start in range(0, len(first), at_once):
    part = slice(start, start + at_once)
    apart = fixed[first[part]] - fixed[second[part]]
    distances[part] = np.einsum('pd,pd->p', apart, apart)
  return distances


def _of_crowded(points: _Points, queries: slice, which, k: int) -> np.ndarray:
  """Returns int64 [c, k] of some queries, from all distances in float64."""
  found = np.full([len(which), k], -1, np.int64)
  squares = np.einsum('ed,ed->e', points.fixed, points.fixed)
  squares[~points.finite] = np.inf
  kept = min(k, len(points.fixed))
  # In parts, so that float64 distances take no more memory than the float32
  # scores.
  for places in np.array_split(np.arange(len(which)), min(4, len(which))):
    numbers = queries.start + which[places]
    # The squared distance, less the query's own term: the order is the same.
    distances = points.fixed[numbers] @ points.fixed.T
    distances *= -2.0
    distances += squares
    distances[np.arange(len(numbers)), numbers] = np.inf
    found[places, :kept] = fixed_point.smallest(distances, kept)
  return found
