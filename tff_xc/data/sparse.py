"""Sparse examples as tensors: bags of weighted features, and sets of labels.

Outside tensors, sparse examples are `scipy.sparse.csr_matrix`. Tensors and matrices use the
compressed row format: the entries of example i are at row_splits[i]:row_splits[i + 1].
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse


class SparseFeatures(NamedTuple):
  """Examples, each with a few of a very large number of features."""

  row_splits: np.ndarray  # int32 [k + 1], from 0 to the number of entries.
  ids: np.ndarray  # int32 [entries], feature ids, ascending within an example.
  values: np.ndarray  # float32 [entries].


class LabelSets(NamedTuple):
  """The labels of multi-label examples; an example has any number of labels."""

  row_splits: np.ndarray  # int32 [k + 1], from 0 to the number of labels.
  ids: np.ndarray  # int32 [labels], ascending within an example.


class Propensity(NamedTuple):
  """The statistics of the training set that propensity-scored metrics use.

  Jain, Prabhu, Varma: "Extreme Multi-label Loss Functions", KDD 2016.

  a and b are (0.55, 1.5) except on Wikipedia (0.5, 0.4) and Amazon (0.6, 2.6).
  """

  label_counts: np.ndarray  # int64 [n], N_l, the number of training examples with label l.
  num_examples: int  # N, the number of training examples.
  a: float = 0.55
  b: float = 1.5


def as_tensors(
  value: np.ndarray | scipy.sparse.csr_matrix,
) -> np.ndarray | SparseFeatures | LabelSets:
  """Converts bool matrices to `LabelSets`, and other matrices to `SparseFeatures`.

  An array is returned unchanged.
  """
  if not scipy.sparse.issparse(value):
    return value
  ids = value.indices.astype(np.int32, copy=False)
  if value.dtype == bool:
    return LabelSets(value.indptr.astype(np.int32, copy=False), ids)
  return SparseFeatures(
    value.indptr.astype(np.int32, copy=False), ids, value.data.astype(np.float32, copy=False)
  )
