"""Measures how much clients' class distributions differ from the overall class distribution.

Hsu, Qi and Brown (ECCV 2020) call this measure the earth mover's distance, EMD. The EMD is 0 if all
clients have the same class distribution, and it is at most 2. For one client, the EMD is twice the
probability mass that must move between classes to make the client's distribution equal to the
overall distribution.
"""

from collections.abc import Mapping

import numpy as np
import scipy.sparse

_QUANTILES = (('least', 0), ('10%', 10), ('median', 50), ('90%', 90), ('most', 100))


def class_counts(
  owners: np.ndarray, labels: np.ndarray, shape: tuple[int, int]
) -> scipy.sparse.csr_matrix:
  """Returns numbers of examples int64 [clients, classes], in O(examples) time and memory.

  `labels`, int [k], are the classes of examples. `owners`, int [k], are the indices of the
  clients that have these examples.
  """
  ones = np.ones(len(owners), np.int64)
  counts = scipy.sparse.csr_matrix((ones, (owners, labels)), shape)
  counts.sum_duplicates()
  return counts


def emd(counts: scipy.sparse.csr_matrix) -> float:
  """Returns the mean over clients of sum_y |q_k(y) - p(y)|, in [0, 2].

  q_k(y) is the share of class y among the examples of client k. p(y) is the share of class y
  among the examples of all clients. The mean is weighted by the clients' numbers of examples.
  """
  total = counts.sum()
  if not total:
    return 0.0
  share = np.asarray(counts.sum(axis=0)).ravel() / total
  counts = counts.tocsr()
  sizes = np.diff(np.append(0, np.cumsum(counts.data))[counts.indptr])
  q = counts.data / np.repeat(np.maximum(sizes, 1), np.diff(counts.indptr))
  p = share[counts.indices]
  # For a class that a client lacks, |q - p| is p. Therefore add p for every class, and replace
  # p by |q - p| for the classes that the client has.
  own = np.repeat(sizes, np.diff(counts.indptr)) * (np.abs(q - p) - p)
  return float(share.sum() + own.sum() / total)


def spread(values: np.ndarray) -> Mapping[str, float]:
  """Returns quantiles, the mean and the standard deviation of `values`; {} if empty."""
  if not len(values):
    return {}
  points = np.percentile(values, [q for _, q in _QUANTILES])
  return {
    **{name: float(v) for (name, _), v in zip(_QUANTILES, points, strict=True)},
    'mean': float(np.mean(values)),
    'std': float(np.std(values)),
  }
