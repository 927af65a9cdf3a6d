"""Measures what a server can infer about a client from its requests and updates.

Posteriors follow from Bayes' rule for a server that knows the algorithm and its settings,
but neither the client's random numbers nor anything else about the client.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats

# A class with a larger posterior counts as known to belong to the client.
KNOWN = 0.5


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
  """Returns the area under the ROC curve of scores [k] for `positive`, bool [k].

  It is the probability that a random positive has a higher score than a random negative,
  where ties count one half. It is nan unless both kinds exist.
  """
  scores, positive = np.asarray(scores), np.asarray(positive, bool)
  ones, others = positive.sum(), (~positive).sum()
  if not ones or not others:
    return float('nan')
  ranks = scipy.stats.rankdata(scores)
  return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * others))


def of_sampled(requests: np.ndarray, own: int) -> np.ndarray:
  """Returns float64 [r, n], the posterior of each class after each of r requests.

  `requests`, bool [r, n], contain all `own` classes of the client and sampled negatives,
  sampled by any of `request.SCHEDULES` except the last. The prior is uniform over sets of
  `own` classes, a size that the length of a request reveals. The schedules treat all
  other classes alike, so every set of `own` classes that are in all requests is equally
  likely to have caused them.
  """
  in_all = np.logical_and.accumulate(requests, axis=0)
  count = np.maximum(in_all.sum(axis=1, keepdims=True), 1)
  return in_all * np.minimum(own / count, 1.0)


def of_randomized(
  requests: np.ndarray, log_likelihoods: Callable[[int, int], tuple[float, float]], prior: float
) -> np.ndarray:
  """Returns float64 [r, n], the posterior like `of_sampled`, for randomized responses.

  Classes are independent, and each belongs to the client with probability `prior`. The
  number of requests that contain a class is a sufficient statistic.
  `log_likelihoods(times, requests)` returns the log-likelihoods of this number for a class
  of the client and for another class (`randomized.Response.log_likelihoods`).
  """
  times, found = np.cumsum(requests, axis=0), np.zeros(requests.shape)
  for i, of_request in enumerate(times):
    each = np.array([log_likelihoods(k, i + 1) for k in range(i + 2)])
    own, other = each[of_request.ravel()].T
    odds = scipy.special.logit(prior) + own - other
    found[i] = scipy.special.expit(odds).reshape(of_request.shape)
  return found


def of_buckets(rows_of: np.ndarray, seen: np.ndarray) -> np.ndarray:
  """Returns float64 [n], a score of each label from the buckets that a client uses.

  `rows_of`, int [n, R], are the buckets of each label, and `seen`, bool [rows], says which
  buckets the client uses, exactly those of its own labels. A label is a candidate if all
  of its buckets are seen. The score is 0 if the label is not a candidate, and 1 if it is
  the only candidate for one of the buckets. The other candidates share the smallest
  number of further labels that could explain the buckets, divided by their number.
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
  """How much a posterior reveals about one client's own classes."""

  auc: float  # Area under the ROC curve over all classes.
  posterior: float  # Mean posterior of the client's own classes.
  known: float  # Share of the own classes whose posterior is above `KNOWN`.
  above: int  # Number of all classes whose posterior is above `KNOWN`.
  hits: int  # Number of own classes among these.


def told(posterior: np.ndarray, own: np.ndarray) -> Told:
  """Summarizes a posterior float64 [n]; `own`, bool [n], are the client's classes (not none)."""
  above = posterior > KNOWN
  return Told(
    auc(posterior, own),
    float(posterior[own].mean()),
    float(above[own].mean()),
    int(above.sum()),
    int((above & own).sum()),
  )


def clipped(parts: list[np.ndarray], norm: float) -> list[np.ndarray]:
  """Returns an update's arrays, scaled so that their joint L2 norm is at most `norm`."""
  size = np.sqrt(sum(np.sum(np.square(p, dtype=np.float64)) for p in parts))
  return [p * min(1.0, norm / max(size, 1e-300)) for p in parts]


def by_size(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], the norms of the changes of rows [k, d]."""
  return np.linalg.norm(moved.astype(np.float64), axis=1)


def by_direction(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], a score in [-1, 1] that a row is the client's own.

  The score uses the directions of the changes [k, d]. A softmax pulls own rows towards
  embeddings and pushes all other rows away, so a row moves with or against most rows. All
  rows' directions have equal weight, because the changes themselves nearly cancel (the
  gradients of a softmax have the sum 0). Of the two kinds of rows, the client's own rows
  are those that move further.
  """
  units = moved / np.maximum(by_size(moved), 1e-300)[:, None]
  others = units.sum(axis=0) - units
  against = -(units * others).sum(axis=1) / np.maximum(by_size(others), 1e-300)
  sizes = by_size(moved)
  further = (against - against.mean()) @ (sizes - sizes.mean()) >= 0
  return against if further else -against
