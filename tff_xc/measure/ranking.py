"""Computes the scores of an evaluation from rankings, predictions and embeddings.

The scores are:
  for one label: top-1 and top-5 accuracy over all classes, macro F1, Matthews correlation;
  for sets of labels: P@k, hit@k, recall@k, nDCG@k and PSP@k;
  for nearest examples: MAP@10, MAP@R and recall@k;
  other scores: a client's confusion matrix, and distances between class rows.
Metrics for sets of labels skip examples without a label, because every ranking would score 0
on these examples.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse
from scipy.spatial import distance

from tff_xc import memory
from tff_xc.data import sparse
from tff_xc.measure import catalog, search


def normalise(rows: np.ndarray) -> np.ndarray:
  """Returns `rows` [k, d] scaled to Euclidean norm 1, float64; a zero row stays zero.

  The norms are increased by 1e-12, as in the cosine head.
  """
  rows = np.asarray(rows, np.float64)
  return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)


def _pairs(found, labels) -> tuple[np.ndarray, np.ndarray]:
  """Returns both as arrays. Raises ValueError if their lengths differ, or if `labels` is empty."""
  found, labels = np.asarray(found), np.asarray(labels)
  if len(found) != len(labels) or not len(labels):
    raise ValueError(
      f'expected as many labels as others, and at least one; got {len(labels)} and {len(found)}'
    )
  return found, labels


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of `predictions` int [e] that equal `labels` int [e]."""
  predictions, labels = _pairs(predictions, labels)
  return float(np.mean(predictions == labels))


def top_accuracy(top: np.ndarray, labels: np.ndarray, k: int) -> float:
  """Returns the share of `labels` int [e] among the first k columns of `top`.

  `top`, int [e, k or more], are each example's classes, the best first; -1 means no class.
  """
  top, labels = _pairs(top, labels)
  return float((top[:, :k] == labels[:, None]).any(axis=1).mean())


def confusion(predictions: np.ndarray, labels: np.ndarray, class_ids: np.ndarray) -> np.ndarray:
  """Returns one client's confusion matrix (FedSS, fig. 7), int64 [c, c + 1].

  Row i counts the examples of class `class_ids[i]`. In this row, column j < c counts examples
  with the prediction `class_ids[j]`. Column c counts examples that are predicted as a class
  that the client does not have. Raises ValueError if `class_ids`, int [c], are not distinct or
  lack one of `labels`, int [e].
  """
  size = len(class_ids)
  places = {label: i for i, label in enumerate(np.asarray(class_ids).tolist())}
  if not 0 < size == len(places) or not {*np.asarray(labels).tolist()} <= {*places}:
    raise ValueError('class_ids must be distinct, and have every label.')
  memory.require(
    8 * size**2, f'a confusion matrix of {size:,} classes', 'take a client of fewer classes'
  )
  matrix = np.zeros((size, size + 1), np.int64)
  for label, prediction in zip(labels, predictions, strict=True):
    matrix[places[int(label)], places.get(int(prediction), size)] += 1
  return matrix


def retrieval_scores(
  embeddings: np.ndarray, labels: np.ndarray, block: int = 2**21
) -> dict[str, float]:
  """Returns map@10, map@r and retrieval_recall@k of embeddings [e, d] with labels int [e].

  Every example is a query, and all other examples are ranked by their distance from the query.
  Distances are Euclidean distances between embeddings of norm 1. If distances are equal, the
  example with the lower index comes first. P(i) is the precision among the i nearest examples.
  rel(i) is 1 if the i-th nearest example has the query's class, and 0 otherwise. R_q is the
  number of other examples with this class.
    map@10: mean over all queries of 1/10 sum_{i<=10} P(i) rel(i). R and the
      denominator are 10 for every query (FedSS, eq. 9). A query with R_q = 0 scores 0
      and counts in the mean. For a class of c examples, perfect retrieval therefore
      reaches only min(c - 1, 10) / 10.
    map@r: mean over the queries with R_q > 0 of 1/R_q sum_{i<=R_q} P(i) rel(i)
      (Musgrave et al., 2020); nan if there is no such query.
    retrieval_recall@k, for each k in `catalog.AT`: share of all queries with
      rel(i) = 1 for an i <= k, as metric learning defines its Recall@K (Musgrave
      et al., 2020). A query with R_q = 0 scores 0, as in map@10.
  `block` is the largest number of distances in memory, with 8 bytes each.
  """
  embeddings, labels = _pairs(embeddings, labels)
  _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
  relevant = counts[inverse] - 1
  k = max(10, int(relevant.max()))
  at_10 = np.zeros(len(labels))
  at_r = np.zeros(len(labels))
  recalled = np.zeros([len(labels), max(catalog.AT)], bool)
  for first, found in search.nearest_blocks(normalise(embeddings), k, block):
    queries = slice(first, first + len(found))
    hits = (labels[found] == labels[queries, None]) & (found >= 0)
    ranks = np.arange(1, hits.shape[1] + 1)
    gains = np.where(hits, hits.cumsum(axis=1) / ranks, 0.0)
    first = hits[:, : max(catalog.AT)]
    recalled[queries] = np.logical_or.accumulate(first, axis=1)
    at_10[queries] = gains[:, :10].sum(axis=1) / 10
    within = np.where(ranks <= relevant[queries, None], gains, 0.0)
    at_r[queries] = within.sum(axis=1) / np.maximum(relevant[queries], 1)
  at_r = at_r[relevant > 0]
  return {
    'map@10': float(at_10.mean()),
    'map@r': float(at_r.mean()) if len(at_r) else float('nan'),
    **{f'retrieval_recall@{k}': float(recalled[:, k - 1].mean()) for k in catalog.AT},
  }


def single_label_scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Returns macro_f1, a fraction, and mcc, in [-1, 1], with O(e + n) memory.

  Results equal those of scikit-learn, also in corner cases. scikit-learn's functions build a
  confusion matrix of n x n entries. `predictions` and `labels` are int [e]; -1 means no
  prediction. t_c examples have class c, p_c examples are predicted as c, and h_c examples of
  class c are predicted as c:
    macro_f1: mean of 2 h_c / (t_c + p_c) over the classes that occur among the
      labels or the predictions (`f1_score(average='macro', zero_division=0)`).
    mcc: (e sum h - sum t p) / sqrt((e^2 - sum t^2) (e^2 - sum p^2)), or 0 if the
      denominator is 0 (`matthews_corrcoef`; Gorodkin, 2004).
  """
  predictions, labels = _pairs(predictions, labels)
  size = 2 + max(int(predictions.max()), int(labels.max()))

  def count(classes):
    return np.bincount(classes + 1, minlength=size)

  hit, true = count(labels[predictions == labels]), count(labels)
  predicted = count(predictions)
  occurs = (true + predicted) > 0
  f1 = 2 * hit[occurs] / (true + predicted)[occurs]
  # Python's integers do not overflow in the products of squares.
  square, right = len(labels) ** 2, len(labels) * int(hit.sum())
  spread = (square - int(true @ true)) * (square - int(predicted @ predicted))
  covariance = right - int(true @ predicted)
  mcc = covariance / math.sqrt(spread) if spread else 0.0
  return {'macro_f1': float(f1.mean()), 'mcc': mcc}


# A label is frequent if at least this share of the training examples has it
# (FedMLH's published code).
FREQUENT = 0.01


def label_set_scores(
  top: np.ndarray,
  labels: scipy.sparse.csr_matrix,
  propensity: sparse.Propensity | None = None,
  ks: Sequence[int] = (1, 3, 5),
) -> dict[str, float]:
  """Returns p@k, hit@k, recall@k, pc@k and ndcg@k; psp@k and pc@k_* only with `propensity`.

  `top`, int [e, k or more], are each example's classes, the best first; -1 means no class.
  `labels`, bool [e, n], are the sets Y_i, with ascending indices. All scores are fractions.
  Only the N examples with labels count. Ranks start at 1. A hit is a class of `top` that is
  among the example's labels.
    p@k: 1/N sum_i |top_k(i) & Y_i| / k.
    hit@k: share of the examples with top_k(i) & Y_i not empty.
    recall@k: 1/N sum_i |top_k(i) & Y_i| / |Y_i|.
    ndcg@k: mean over i of the sum of 1 / log2(rank + 1) over the ranks up to k that
      have a hit, divided by the same sum over the first min(k, |Y_i|) ranks.
    psp@k: the sum of 1 / p_l over all hits of all examples, divided by the same sum
      for the best ranking. The best ranking has each example's k labels with the
      largest 1 / p_l. The score is one ratio of sums, not a mean of ratios.
    pc@k, capped P@k: 1/N sum_i |top_k(i) & Y_i| / min(k, |Y_i|).
    pc@k_frequent, pc@k_infrequent: the same as pc@k, except that only hits of frequent
      labels or only hits of infrequent labels count. The two sum to pc@k (FedMLH).
  Raises ValueError if no example has a label, or if `top` has too few columns.
  """
  counts = np.diff(labels.indptr)
  if len(top) != len(counts) or not counts.any():
    raise ValueError(
      f'Expected as many rankings as label sets, and one that is not empty; '
      f'got {len(top)} and {len(counts)}.'
    )
  if max(ks) > top.shape[1]:
    raise ValueError(f'{top.shape[1]} ranks do not tell of {max(ks)}.')
  top = np.asarray(top)[:, : max(ks)]
  hits = _hits(top, labels)[counts > 0]
  top, full = top[counts > 0], counts[counts > 0]
  measured = {}
  for k in ks:
    measured[f'p@{k}'] = hits[:, :k].mean()
    measured[f'hit@{k}'] = hits[:, :k].any(axis=1).mean()
    measured[f'recall@{k}'] = (hits[:, :k].sum(axis=1) / full).mean()
    measured[f'ndcg@{k}'] = _ndcg(hits[:, :k], full)
    measured[f'pc@{k}'] = _capped(hits[:, :k], full)
  if propensity is not None:
    weights = inverse_propensities(propensity)
    gains = np.where(hits, weights[top], 0.0).sum(axis=0)
    ideal = _largest_by_rank(weights[labels.indices], labels.indptr, max(ks))
    is_frequent = frequent(propensity)[top]
    for k in ks:
      measured[f'psp@{k}'] = gains[:k].sum() / ideal[:k].sum()
      for name, part in (('frequent', hits & is_frequent), ('infrequent', hits & ~is_frequent)):
        measured[f'pc@{k}_{name}'] = _capped(part[:, :k], full)
  return {name: float(value) for name, value in measured.items()}


def without(
  top: np.ndarray, seen: scipy.sparse.csr_matrix, k: int, scores: np.ndarray | None = None
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
  """Returns int [e, k], the first k classes of `top` [e, j] that are not in `seen`.

  `seen`, bool [e, n], are sets of classes with ascending indices. A row with fewer than k
  classes ends in -1. With `scores` [e, j], the function also returns the scores of the
  returned classes.
  """
  if seen.nnz:
    top = np.where(_hits(top, seen), -1, top)
  order = np.argsort(top < 0, axis=1, kind='stable')[:, :k]
  found = np.take_along_axis(top, order, axis=1)
  if scores is None:
    return found
  return found, np.take_along_axis(scores, order, axis=1)


def frequent(propensity: sparse.Propensity) -> np.ndarray:
  """Returns bool [n]: whether at least the share `FREQUENT` of training examples has a label."""
  counts = np.asarray(propensity.label_counts)
  return counts >= FREQUENT * propensity.num_examples


def inverse_propensities(propensity: sparse.Propensity) -> np.ndarray:
  """Returns float64 [n], 1 / p_l = 1 + C (N_l + B)^-A, C = (ln N - 1)(B + 1)^A.

  Jain, Prabhu, Varma: "Extreme Multi-label Loss Functions", KDD 2016.

  Raises:
    ValueError: there are fewer than 3 training examples, which would make C negative.
  """
  if propensity.num_examples < 3:
    raise ValueError('propensities need at least 3 training examples.')
  a, b = propensity.a, propensity.b
  c = (np.log(propensity.num_examples) - 1) * (b + 1) ** a
  return 1 + c * (np.asarray(propensity.label_counts, np.float64) + b) ** -a


def single_labels(labels: np.ndarray) -> scipy.sparse.csr_matrix:
  """Converts `labels` int [e] to sets of one label each."""
  labels = np.asarray(labels, np.int32)
  return scipy.sparse.csr_matrix(
    (np.ones(len(labels), bool), labels, np.arange(len(labels) + 1)),
    (len(labels), labels.max(initial=0) + 1),
  )


def _hits(top, labels):
  """Returns bool [e, k]: whether each class of `top` is among its example's labels."""
  stride = 1 + max(int(top.max(initial=0)), int(labels.indices.max(initial=0)))
  keys = stride * _examples_of(labels.indptr) + labels.indices
  wanted = stride * np.arange(len(top), dtype=np.int64)[:, None] + top
  at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
  return (keys[at] == wanted) & (top >= 0)


def _examples_of(row_splits):
  """Returns int64 [number of labels], the index of the example with each label."""
  counts = np.diff(row_splits)
  return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _capped(hits, counts):
  """Returns the mean over examples of the number of hits divided by min(k, number of labels)."""
  return (hits.sum(axis=1) / np.minimum(counts, hits.shape[1])).mean()


def _ndcg(hits, counts):
  discounts = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
  ideal = discounts.cumsum()[np.minimum(counts, hits.shape[1]) - 1]
  return ((hits * discounts).sum(axis=1) / ideal).mean()


def _largest_by_rank(values, row_splits, k):
  """Returns float64 [k]. Entry i sums the (i + 1)-th largest value of each example."""
  examples = _examples_of(row_splits)
  order = np.lexsort((-values, examples))
  ranks = np.arange(len(values)) - row_splits[:-1][examples]
  kept = ranks < k
  return np.bincount(ranks[kept], values[order][kept], minlength=k)


def class_distances(
  class_rows: np.ndarray, class_ids: np.ndarray | None = None, sample: int = 4096, seed: int = 0
) -> tuple[float, float]:
  """Returns the smallest and the mean distance between two class rows.

  Distances are Euclidean distances between rows [n, d] scaled to norm 1. The function compares
  all pairs of classes in `class_ids` (None: all classes). If there are more than `sample`
  classes, it compares only the pairs of a random sample of this size, drawn with `seed`. The
  default size needs 67 MB. The distances have float64 precision even between nearly equal
  rows. Both results are nan if there are fewer than two classes or if a row is not finite.
  Random directions in many dimensions have a distance of about sqrt(2). Equal rows have a
  distance of 0, as in FedAwS without its regularizer.
  """
  class_rows = np.asarray(class_rows)
  if class_ids is None:
    ids = np.arange(len(class_rows))
  else:
    ids = np.unique(np.asarray(class_ids, np.int64))
  if len(ids) > sample:
    random = np.random.default_rng(seed)
    ids = np.sort(random.choice(ids, sample, replace=False))
  rows = normalise(class_rows[ids])
  if len(rows) < 2 or not np.isfinite(rows).all():
    return float('nan'), float('nan')
  # `pdist` subtracts rows. Scalar products of nearly equal rows would lose precision.
  distances = distance.pdist(rows)
  return float(distances.min()), float(distances.mean())
