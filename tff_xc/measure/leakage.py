"""What a server can infer of a client from its requests and its updates.

A posterior is that of Bayes' rule for a server that knows the algorithm and its
settings, and neither the client's randomness nor anything else of the client.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats

# A class with a larger posterior is known to be the client's own.
KNOWN = 0.5


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
  """Returns the area under the ROC curve of scores [k] for positive, bool [k].

  That is the probability that a positive has a higher score than another, ties half.
  nan without both kinds.
  """
  scores, positive = np.asarray(scores), np.asarray(positive, bool)
  ones, others = positive.sum(), (~positive).sum()
  if not ones or not others:
    return float('nan')
  ranks = scipy.stats.rankdata(scores)
  return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * others))


def of_sampled(requests: np.ndarray, own: int) -> np.ndarray:
  """Returns float64 [r, n], the posterior after each of r requests, bool [r, n].

  Of requests that hold all own classes and sampled others, whichever schedule samples
  them (`request.SCHEDULES`, except the last): given the negatives' number, every set of
  `own` classes that are in all requests is equally likely to have caused them, since
  the schedules treat all other classes alike. The prior is uniform over sets of this
  size, which the length of a request tells.
  """
  in_all = np.logical_and.accumulate(requests, axis=0)
  count = np.maximum(in_all.sum(axis=1, keepdims=True), 1)
  return in_all * np.minimum(own / count, 1.0)


def of_randomized(
  requests: np.ndarray, log_likelihoods: Callable[[int, int], tuple[float, float]], prior: float
) -> np.ndarray:
  """Returns float64 [r, n], as `of_sampled`, of randomized responses.

  Classes are independent, each an own one with probability `prior`. A class's number of
  requests is sufficient: `log_likelihoods(times, requests)` are the logs of those of an
  own class and of another (`randomized.Response.log_likelihoods`).
  """
  times, found = np.cumsum(requests, axis=0), np.zeros(requests.shape)
  for i, of_request in enumerate(times):
    each = np.array([log_likelihoods(k, i + 1) for k in range(i + 2)])
    own, other = each[of_request.ravel()].T
    odds = scipy.special.logit(prior) + own - other
    found[i] = scipy.special.expit(odds).reshape(of_request.shape)
  return found


def of_buckets(rows_of: np.ndarray, seen: np.ndarray) -> np.ndarray:
  """Returns float64 [n], a score of each label by the buckets that a client has.

  A candidate is a label all of whose buckets, `rows_of` int [n, R], are seen, bool
  [rows]. 0: no candidate; 1: the only candidate for one of the buckets, if the seen
  buckets are those of own labels, and no others; else the share of own labels that is
  needed to explain the buckets, at least, among the candidates.
  """
  candidates = seen[rows_of].all(axis=1)
  if not candidates.any():
    return np.zeros(len(rows_of))
  rows = rows_of[candidates]
  alone = np.bincount(rows.ravel(), minlength=len(seen)) == 1
  certain = alone[rows].any(axis=1)
  # A label has one bucket in each table, so there are as many as a table's buckets.
  needed = max(len(np.unique(column)) for column in rows.T)
  rest = max(needed - certain.sum(), 0) / max((~certain).sum(), 1)
  found = np.zeros(len(rows_of))
  found[candidates] = np.where(certain, 1.0, rest)
  return found


class Told(NamedTuple):
  """What a posterior tells of one client's own classes."""

  auc: float  # Area under the ROC curve over all classes.
  posterior: float  # Mean of the own classes.
  known: float  # Share of the own classes whose posterior is above `KNOWN`.
  above: int  # Number of classes, own or not, whose posterior is.
  hits: int  # Number of own ones among them.


def told(posterior: np.ndarray, own: np.ndarray) -> Told:
  """Summarises a posterior float64 [n] of own classes, bool [n], of which there are some."""
  above = posterior > KNOWN
  return Told(
    auc(posterior, own),
    float(posterior[own].mean()),
    float(above[own].mean()),
    int(above.sum()),
    int((above & own).sum()),
  )


def clipped(parts: list[np.ndarray], norm: float) -> list[np.ndarray]:
  """Returns an update's arrays, scaled to at most this L2 norm together."""
  size = np.sqrt(sum(np.sum(np.square(p, dtype=np.float64)) for p in parts))
  return [p * min(1.0, norm / max(size, 1e-300)) for p in parts]


def by_size(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], how far each row moved, of changes [k, d]."""
  return np.linalg.norm(moved.astype(np.float64), axis=1)


def by_direction(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], a score in [-1, 1] of own rows by the directions of changes.

  A softmax pulls own rows towards embeddings and pushes all others away, so that there
  are two kinds of directions: with most rows, or against them. Each row's direction
  counts alike, since the changes themselves nearly cancel (a softmax's gradients have
  the sum 0). Own rows are of the kind that moves further.
  """
  units = moved / np.maximum(by_size(moved), 1e-300)[:, None]
  others = units.sum(axis=0) - units
  against = -(units * others).sum(axis=1) / np.maximum(by_size(others), 1e-300)
  sizes = by_size(moved)
  further = (against - against.mean()) @ (sizes - sizes.mean()) >= 0
  return against if further else -against
