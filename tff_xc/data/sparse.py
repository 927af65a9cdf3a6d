"""Sparse examples as arrays: bags of weighted features, and sets of labels.

Both are in compressed row form, as in `scipy.sparse.csr_matrix`: the entries of
example i lie at row_splits[i]:row_splits[i + 1].
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SparseFeatures(NamedTuple):
  """Examples, each with a few of very many features.

  Attributes:
    row_splits: int32 [k + 1], from 0 to the number of entries.
    ids: int32 [entries], feature ids, ascending within an example.
    values: float32 [entries].
  """

  row_splits: np.ndarray
  ids: np.ndarray
  values: np.ndarray


class LabelSets(NamedTuple):
  """The labels of multi-label examples, any number of labels each.

  Attributes:
    row_splits: int64 [k + 1], from 0 to the number of labels.
    ids: int32 [labels], ascending within an example.
  """

  row_splits: np.ndarray
  ids: np.ndarray


class Propensity(NamedTuple):
  """The statistics of the training set that propensity-scored metrics use.

  Jain, Prabhu, Varma: "Extreme Multi-label Loss Functions", KDD 2016.

  Attributes:
    label_counts: int64 [n], N_l, the number of training examples with label l.
    num_examples: N, the number of training examples.
    a, b: constants, (0.55, 1.5) except on Wikipedia (0.5, 0.4) and Amazon (0.6,
      2.6).
  """

  label_counts: np.ndarray
  num_examples: int
  a: float = 0.55
  b: float = 1.5


def take(x: SparseFeatures, rows: np.ndarray) -> SparseFeatures:
  """Returns the examples of `x` numbered `rows`, int [r], in that order."""
  starts = x.row_splits[:-1][rows].astype(np.int64)
  lengths = np.diff(x.row_splits)[rows].astype(np.int64)
  splits = np.concatenate([[0], np.cumsum(lengths)])
  places = np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
  return SparseFeatures(
    splits.astype(np.int32), x.ids[places], x.values[places]
  )


def concatenate(parts: Sequence[SparseFeatures]) -> SparseFeatures:
  """Returns the examples of all parts, one after the other."""
  lengths = np.concatenate([np.diff(p.row_splits) for p in parts])
  return SparseFeatures(
    np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    np.concatenate([p.ids for p in parts]),
    np.concatenate([p.values for p in parts]),
  )
