"""Exact ranking metrics: top-1 over all classes, MAP@10 and MAP@R.

Scores are computed block by block, so the whole matrix of examples by classes
(or gallery) is never in memory. They are computed **exactly**, in fixed point
(`fixed_point`): equal vectors tie exactly, and no result depends on the block
size, the BLAS or its threads. In a plain float32 product, the scores of two
equal columns may differ in the last bit, which silently reorders ties.
"""

from typing import NamedTuple

import numpy as np

from tff_xc.measure import neighbours
from tff_xc.measure import top_classes


class RetrievalScores(NamedTuple):
  """Mean average precisions, fractions in [0, 1]; nan where undefined."""

  map_at_10: float
  map_at_r: float


def normalise(rows: np.ndarray) -> np.ndarray:
  """Returns `rows` [k, d] with unit Euclidean norm, float64; zero stays zero.

  It adds 1e-12 to the norms, as the cosine head does.
  """
  rows = np.asarray(rows, np.float64)
  return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)


def predict_top1(
  embeddings: np.ndarray,
  class_table: np.ndarray,
  bias: np.ndarray | None = None,
  block: int = 2**23,
) -> np.ndarray:
  """Returns int32 [e]: each example's best class among all n, ties the lowest.

  This is `top_classes.top_k` with k = 1; see there for the score, the arguments
  and errors. An example without any finite score gets -1, which equals no
  label.
  """
  return top_classes.top_k(embeddings, class_table, 1, bias, block)[:, 0]


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of `predictions` int [e] equal to `labels` int [e].

  Raises:
    ValueError: without examples, or for different lengths.
  """
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  if predictions.shape != labels.shape or not len(labels):
    raise ValueError(
      f'Expected as many predictions as labels and at least one; got '
      f'{predictions.shape} and {labels.shape}.'
    )
  return float(np.mean(predictions == labels))


def confusion(
  predictions: np.ndarray, labels: np.ndarray, class_ids: np.ndarray
) -> np.ndarray:
  """Returns one client's confusion matrix (FedSS, fig. 7), int64 [c, c + 1].

  Row i counts the examples of class `class_ids[i]`. Column j < c counts those
  predicted as `class_ids[j]`, and column c those predicted as a class that the
  client does not hold.

  Args:
    predictions: int [e], over all n classes.
    labels: int [e], each in `class_ids`.
    class_ids: int [c], distinct.

  Raises:
    ValueError: for repeated ids, or a label that is not among them.
  """
  class_ids = np.asarray(class_ids)
  order = np.argsort(class_ids, kind='stable')
  ids = class_ids[order]
  if not len(ids) or (ids[1:] == ids[:-1]).any():
    raise ValueError('class_ids must be distinct and at least one.')

  def place(values):  # Returns positions in class_ids, c where absent.
    at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    return np.where(ids[at] == values, order[at], len(ids))

  rows, columns = place(np.asarray(labels)), place(np.asarray(predictions))
  if (rows == len(ids)).any():
    raise ValueError('a label is not among class_ids.')
  matrix = np.zeros((len(ids), len(ids) + 1), np.int64)
  np.add.at(matrix, (rows, columns), 1)
  return matrix


def map_at_10(embeddings: np.ndarray, labels: np.ndarray) -> float:
  """Returns FedSS's MAP@10 (eq. 9), a fraction; see `retrieval_scores`."""
  return retrieval_scores(embeddings, labels).map_at_10


def map_at_r(embeddings: np.ndarray, labels: np.ndarray) -> float:
  """Returns Musgrave's MAP@R, a fraction; see `retrieval_scores`."""
  return retrieval_scores(embeddings, labels).map_at_r


def retrieval_scores(
  embeddings: np.ndarray, labels: np.ndarray, block: int = 2**22
) -> RetrievalScores:
  """Returns MAP@10 and MAP@R from one nearest-neighbour search.

  Every example is a query against all others (`nearest_neighbours`). P(i) is
  the precision among the i nearest. rel(i) is 1 if the i-th has the query's
  class, and 0 otherwise. R_q other examples have this class.
    MAP@10: mean over all queries of 1/10 sum_{i<=10} P(i) rel(i). R and the
      denominator are 10 for every query (FedSS, eq. 9). A query without a
      relevant example scores 0 and is kept. Perfect retrieval of a class of c
      examples therefore reaches only min(c - 1, 10) / 10.
    MAP@R: mean over the queries with R_q > 0 of 1/R_q sum_{i<=R_q} P(i) rel(i)
      (Musgrave et al., 2020); nan if there is no such query.

  Args:
    embeddings: float [e, d], of any norm.
    labels: int [e].
    block: the most distances in memory at once, 4 bytes each.

  Raises:
    ValueError: without examples, or for different lengths.
  """
  labels = np.asarray(labels)
  if len(labels) != len(embeddings) or not len(labels):
    raise ValueError(
      f'Expected as many embeddings as labels and at least one; got '
      f'{len(embeddings)} and {len(labels)}.'
    )
  _, inverse, counts = np.unique(
    labels, return_inverse=True, return_counts=True
  )
  relevant = counts[inverse] - 1
  k = max(10, int(relevant.max()))
  at_10 = np.zeros(len(labels))
  at_r = np.zeros(len(labels))
  for first, found in neighbours.blocks(normalise(embeddings), k, block):
    queries = slice(first, first + len(found))
    hits = (labels[found] == labels[queries, None]) & (found >= 0)
    ranks = np.arange(1, hits.shape[1] + 1)
    gains = np.where(hits, hits.cumsum(axis=1) / ranks, 0.0)
    at_10[queries] = gains[:, :10].sum(axis=1) / 10
    within = np.where(ranks <= relevant[queries, None], gains, 0.0)
    at_r[queries] = within.sum(axis=1) / np.maximum(relevant[queries], 1)
  has_relevant = relevant > 0
  return RetrievalScores(
    float(at_10.mean()),
    float(at_r[has_relevant].mean()) if has_relevant.any() else float('nan'),
  )


def nearest_neighbours(
  embeddings: np.ndarray, k: int, block: int = 2**22
) -> np.ndarray:
  """Returns int64 [e, k]: each example's k nearest others, nearest first.

  The distance is Euclidean, between l2-normalised embeddings. The query itself
  is excluded by its index, and ties go to the lower index. If fewer than k
  other finite examples exist, the row ends in -1. A query that is not finite
  has no neighbours.

  Args:
    embeddings: float [e, d].
    k: number of neighbours, at least 1.
    block: the most distances in memory at once, 4 bytes each.
  """
  blocks = neighbours.blocks(normalise(embeddings), k, block)
  return np.concatenate(
    [np.zeros((0, k), np.int64), *(found for _, found in blocks)]
  )
