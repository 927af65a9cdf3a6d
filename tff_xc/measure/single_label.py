"""Macro F1 and the Matthews correlation of predicted classes.

Definitions and corner cases are scikit-learn's. Its functions build a confusion
matrix of n x n entries; these count by class, in time and memory O(e + n).
"""

import math

import numpy as np


def scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Returns macro_f1, a fraction, and mcc, in [-1, 1].

  With t_c examples of class c, of which h_c are predicted as c, and p_c
  predictions of c:
    macro_f1: mean of 2 h_c / (t_c + p_c) over the classes that occur among the
      labels or the predictions (`f1_score(average='macro', zero_division=0)`).
    mcc: (e sum h - sum t p) / sqrt((e^2 - sum t^2) (e^2 - sum p^2)), and 0 where
      the denominator is 0 (`matthews_corrcoef`; Gorodkin, 2004).

  Args:
    predictions: int [e], -1 for none.
    labels: int [e], not negative.

  Raises:
    ValueError: without examples, or for different lengths.
  """
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  if predictions.shape != labels.shape or not len(labels):
    raise ValueError(
      f'Expected as many predictions as labels and at least one; got'
      f' {predictions.shape} and {labels.shape}.'
    )
  size = 2 + max(int(predictions.max()), int(labels.max()))
  count = lambda classes: np.bincount(classes + 1, minlength=size)
  hit, true = count(labels[predictions == labels]), count(labels)
  predicted = count(predictions)
  occurs = (true + predicted) > 0
  f1 = 2 * hit[occurs] / (true + predicted)[occurs]
  # Python's integers do not overflow in the products of squares.
  square, right = len(labels) ** 2, len(labels) * int(hit.sum())
  dot = lambda a, b: int(np.dot(a, b))
  spread = (square - dot(true, true)) * (square - dot(predicted, predicted))
  covariance = right - dot(true, predicted)
  mcc = covariance / math.sqrt(spread) if spread else 0.0
  return {'macro_f1': float(f1.mean()), 'mcc': mcc}
