"""Measures what a server can infer about a client from its requests and updates.

The server knows the algorithm, its settings, and what the client sends. The server knows
nothing else about the client, and does not know the client's random numbers. Posteriors follow
from these assumptions by Bayes' rule.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats

# If the posterior of a class is larger, the server is said to know that the client has it.
KNOWN = 0.5


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
  """Returns the area under the ROC curve of scores [k] for `positive`, bool [k].

  The area is the probability that a random positive has a higher score than a random
  negative. Ties count one half. The result is nan without positives or without negatives.
  """
  scores, positive = np.asarray(scores), np.asarray(positive, bool)
  ones, others = positive.sum(), (~positive).sum()
  if not ones or not others:
    return float('nan')
  ranks = scipy.stats.rankdata(scores)
  return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * others))


def of_sampled(requests: np.ndarray, own: int) -> np.ndarray:
  """Returns float64 [r, n], the posterior of each class after each of r requests.

  The client has `own` classes. Each of its `requests`, bool [r, n], contains all of these
  classes and sampled negatives. Negatives come from any of `request.SCHEDULES` except the
  randomized one. The prior is uniform over all sets of `own` classes. The server knows the
  number `own`, because the length of a request reveals it. The schedules treat all negatives
  alike. Therefore, if a set of `own` classes is contained in all requests, it is as likely as
  every other set with this property.
  """
  in_all = np.logical_and.accumulate(requests, axis=0)
  count = np.maximum(in_all.sum(axis=1, keepdims=True), 1)
  return in_all * np.minimum(own / count, 1.0)


def of_randomized(
  requests: np.ndarray, log_likelihoods: Callable[[int, int], tuple[float, float]], prior: float
) -> np.ndarray:
  """Returns the same posteriors as `of_sampled`, for requests by randomized response.

  Classes are independent. Each class belongs to the client with probability `prior`. The
  posterior of a class depends only on the number of requests that contain the class.
  `log_likelihoods(times, requests)` returns two log-likelihoods of being in `times` of the
  `requests`: for a class of the client, and for another class. See
  `randomized.Response.log_likelihoods`.
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

  `rows_of`, int [n, R], are the buckets of each label in R hash tables. `seen`, bool [rows],
  marks the buckets of the client's labels. A label is a candidate if all of its buckets are
  marked. The score of a label that is not a candidate is 0. The score of a label that is the
  only candidate for a bucket is 1, because the client must have this label. All other
  candidates get the same score. This score is the least number of labels that the client must
  have in addition to the labels with score 1, divided by the number of these other candidates.
  """
  candidates = seen[rows_of].all(axis=1)
  if not candidates.any():
    return np.zeros(len(rows_of))
  rows = rows_of[candidates]
  alone = np.bincount(rows.ravel(), minlength=len(seen)) == 1
  certain = alone[rows].any(axis=1)
  # A label has one bucket in each hash table. So a client has at least as many labels as it
  # uses buckets of one hash table.
  needed = max(len(np.unique(column)) for column in rows.T)
  rest = max(needed - certain.sum(), 0) / max((~certain).sum(), 1)
  found = np.zeros(len(rows_of))
  found[candidates] = np.where(certain, 1.0, rest)
  return found


class Told(NamedTuple):
  """How much a posterior reveals about the classes of one client."""

  auc: float  # Area under the ROC curve over all classes.
  posterior: float  # Mean posterior of the client's classes.
  known: float  # Share of the client's classes with a posterior above `KNOWN`.
  above: int  # Number of classes with a posterior above `KNOWN`.
  hits: int  # Number of the client's classes with a posterior above `KNOWN`.


def told(posterior: np.ndarray, own: np.ndarray) -> Told:
  """Summarizes a posterior float64 [n]. `own`, bool [n], marks the client's classes."""
  above = posterior > KNOWN
  return Told(
    auc(posterior, own),
    float(posterior[own].mean()),
    float(above[own].mean()),
    int(above.sum()),
    int((above & own).sum()),
  )


def clipped(parts: list[np.ndarray], norm: float) -> list[np.ndarray]:
  """Returns the arrays of an update, scaled so that their joint L2 norm is at most `norm`."""
  size = np.sqrt(sum(np.sum(np.square(p, dtype=np.float64)) for p in parts))
  return [p * min(1.0, norm / max(size, 1e-300)) for p in parts]


def by_size(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], the L2 norm of each row's change in `moved` [k, d]."""
  return np.linalg.norm(moved.astype(np.float64), axis=1)


def by_direction(moved: np.ndarray) -> np.ndarray:
  """Returns float64 [k], a score in [-1, 1] that a row is the client's own.

  The score uses the directions of the rows' changes `moved` [k, d]. A softmax pulls the
  client's own rows towards embeddings and pushes all other rows away. So the rows of each kind
  move in similar directions, against the rows of the other kind. All directions have equal
  weight, because the changes themselves nearly cancel: the gradients of a softmax sum to 0.
  The rows that move further are taken as the client's own rows.
  """
  units = moved / np.maximum(by_size(moved), 1e-300)[:, None]
  others = units.sum(axis=0) - units
  against = -(units * others).sum(axis=1) / np.maximum(by_size(others), 1e-300)
  sizes = by_size(moved)
  further = (against - against.mean()) @ (sizes - sizes.mean()) >= 0
  return against if further else -against
