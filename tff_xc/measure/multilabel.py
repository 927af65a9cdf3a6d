"""Metrics of multi-label examples: P@k, nDCG@k, PSP@k and more, from top-k ids.

Examples without a label are skipped, because no ranking can score on them.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from tff_xc.data import sparse

# A label is frequent if at least this share of the training examples has it
# (FedMLH's published code).
FREQUENT = 0.01


def scores(
  top: np.ndarray,
  labels: scipy.sparse.csr_matrix,
  propensity: sparse.Propensity | None = None,
  ks: Sequence[int] = (1, 3, 5),
) -> dict[str, float]:
  """Returns p@k, pc@k and ndcg@k; with a propensity more; all are fractions.

  N examples have labels, Y_i are the labels of example i, and ranks start at 1:
    p@k: 1/N sum_i |top_k(i) & Y_i| / k.
    ndcg@k: 1/N sum_i of the sum of 1 / log2(rank + 1) over the ranks up to k
      that hit, divided by the same sum over the first min(k, |Y_i|) ranks.
    psp@k: the sum of 1 / p_l over all examples and hits, divided by that of the
      best ranking, which has each example's k labels of largest 1 / p_l. It is
      one ratio of sums, not a mean of ratios.
    pc@k, capped: 1/N sum_i |top_k(i) & Y_i| / min(k, |Y_i|).
    pc@k_frequent, pc@k_infrequent: the hits among the frequent labels, and among
      the others, over the same min(k, |Y_i|); their sum is pc@k (FedMLH).

  Args:
    top: int [e, k or more], the best class of an example first, each at most
      once, or -1.
    labels: bool [e, n], the e examples' labels, ascending.
    propensity: the labels' counts and propensities, or None.
    ks: each at most the number of columns of `top`.

  Raises:
    ValueError: for different numbers of examples, a k above the number of
      columns of `top`, or if no example has a label.
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
    measured[f'ndcg@{k}'] = _ndcg(hits[:, :k], full)
    measured[f'pc@{k}'] = _capped(hits[:, :k], full)
  if propensity is not None:
    weights = inverse_propensities(propensity)
    gains = np.where(hits, weights[top], 0.0).sum(axis=0)
    ideal = _largest_by_rank(weights[labels.indices], labels.indptr, max(ks))
    is_frequent = frequent(propensity)[top]
    for k in ks:
      measured[f'psp@{k}'] = gains[:k].sum() / ideal[:k].sum()
      for name, part in (
        ('frequent', hits & is_frequent),
        ('infrequent', hits & ~is_frequent),
      ):
        measured[f'pc@{k}_{name}'] = _capped(part[:, :k], full)
  return {name: float(value) for name, value in measured.items()}


def frequent(propensity: sparse.Propensity) -> np.ndarray:
  """Returns bool [n], the labels of at least `FREQUENT` of the examples."""
  counts = np.asarray(propensity.label_counts)
  return counts >= FREQUENT * propensity.num_examples


def inverse_propensities(propensity: sparse.Propensity) -> np.ndarray:
  """Returns float64 [n], 1 / p_l = 1 + C (N_l + B)^-A, C = (ln N - 1)(B + 1)^A.

  Jain, Prabhu, Varma: "Extreme Multi-label Loss Functions", KDD 2016.

  Raises:
    ValueError: for fewer than 3 training examples, which make C negative.
  """
  if propensity.num_examples < 3:
    raise ValueError('propensities need at least 3 training examples.')
  a, b = propensity.a, propensity.b
  c = (np.log(propensity.num_examples) - 1) * (b + 1) ** a
  return 1 + c * (np.asarray(propensity.label_counts, np.float64) + b) ** -a


def single_labels(labels: np.ndarray) -> scipy.sparse.csr_matrix:
  """Returns `labels` int [e] as sets of one label each."""
  labels = np.asarray(labels, np.int32)
  return scipy.sparse.csr_matrix(
    (np.ones(len(labels), bool), labels, np.arange(len(labels) + 1)),
    (len(labels), labels.max(initial=0) + 1),
  )


def _hits(top, labels):
  """Returns bool [e, k]: whether a class is among its example's labels."""
  stride = 1 + max(int(top.max(initial=0)), int(labels.indices.max(initial=0)))
  keys = stride * _examples_of(labels.indptr) + labels.indices
  wanted = stride * np.arange(len(top), dtype=np.int64)[:, None] + top
  at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
  return (keys[at] == wanted) & (top >= 0)


def _examples_of(row_splits):
  """Returns int64 [labels]: the example of each label."""
  counts = np.diff(row_splits)
  return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _capped(hits, counts):
  """Returns the mean of hits [e, k] over min(k, an example's labels)."""
  return (hits.sum(axis=1) / np.minimum(counts, hits.shape[1])).mean()


def _ndcg(hits, counts):
  discounts = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
  ideal = discounts.cumsum()[np.minimum(counts, hits.shape[1]) - 1]
  return ((hits * discounts).sum(axis=1) / ideal).mean()


def _largest_by_rank(values, row_splits, k):
  """Returns float64 [k]: sums over examples of the largest, second, ..."""
  examples = _examples_of(row_splits)
  order = np.lexsort((-values, examples))
  ranks = np.arange(len(values)) - row_splits[:-1][examples]
  kept = ranks < k
  return np.bincount(ranks[kept], values[order][kept], minlength=k)
