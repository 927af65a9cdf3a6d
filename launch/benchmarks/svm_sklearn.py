"""TurboSVM-FL's server step around scikit-learn, vectorised in NumPy.

It makes the step that its authors published without their loops: scikit-learn
fits the machines of all pairs in one call, their normals are read once, and the
gradient of the spread-out is a few matrix products for each class.
"""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn import svm


class Options(NamedTuple):
  """Hyper-parameters of the step, see `algorithms.turbosvm.turbosvm`."""

  bound: float
  tolerance: float
  steps: int
  learning_rate: float
  epsilon: float


class Steps:
  """Takes the first step, again and again, as its rounds."""

  def __init__(
    self, rows: np.ndarray, weights: np.ndarray, drawn: int, options: Options
  ):
    """Keeps the arguments.

    Args:
      rows: float32 [M, n, row_dim] of M clients.
      weights: float32 [M], their examples.
      drawn: the number of classes with machines, the first ones.
      options: of the step.
    """
    self._rows, self._weights = rows, weights
    self._drawn, self._options = drawn, options

  def run(self) -> None:
    drawn, options = self._drawn, self._options
    new = _mean(self._rows, self._weights[:, None])
    points = self._rows[:, :drawn]
    supports, normals = _fit(points, options)
    # A class without a support vector keeps the mean of its rows.
    chosen = np.where(supports.any(axis=0), supports, True)
    new[:drawn] = _mean(points, self._weights[:, None] * chosen)
    self._loss, gradient = similarities(new[:drawn], normals)
    # Adam's first step: both of its means, corrected, are of one gradient.
    new[:drawn] -= (
      options.learning_rate * gradient / (np.abs(gradient) + options.epsilon)
    )
    self._supports, self.new = supports.sum(), new

  def report(self) -> dict:
    pairs = self._drawn * (self._drawn - 1) / 2
    return {
      'check': {
        'support_vectors': float(self._supports / self._drawn),
        'pair_similarity': float(self._loss / pairs),
      }
    }


def _mean(rows, weights):
  """Returns [n, row_dim], means of [M, n, row_dim] by weights [M, n or 1]."""
  total = np.einsum(
    'mnd,mn->nd', rows, np.broadcast_to(weights, rows.shape[:2])
  )
  return total / weights.sum(axis=0)[:, None]


def _fit(points, options):
  """Fits the machines of points [M, n, row_dim].

  Returns (bool [M, n], whether a point is a support vector of any pair; normals
  [n (n - 1) / 2, row_dim] of the pairs in the order (0, 1), (0, 2), ...).
  """
  clients, classes, size = points.shape
  machine = svm.SVC(
    kernel='linear',
    C=options.bound,
    tol=options.tolerance,
    max_iter=options.steps,
  )
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # It stops at the bound, as published.
    machine.fit(points.reshape(-1, size), np.tile(np.arange(classes), clients))
  supports = np.zeros(clients * classes, bool)
  supports[machine.support_] = True
  return supports.reshape(clients, classes), machine.coef_


def similarities(rows: np.ndarray, normals: np.ndarray):
  """Returns eq. (8)'s sum, and its gradient by the rows.

  With h = normal / |normal| and u = (w_a - w_b) . h, a pair adds exp(-u^2 / 2),
  and -u exp(-u^2 / 2) h to the gradient of w_a, the opposite to that of w_b.

  Args:
    rows: [n, row_dim], w.
    normals: [n (n - 1) / 2, row_dim] of the pairs (0, 1), (0, 2), ...
  """
  loss, gradient, start = 0.0, np.zeros(rows.shape), 0
  for a in range(len(rows) - 1):
    of_a = normals[start : start + len(rows) - 1 - a]
    start += len(of_a)
    lengths = np.sqrt(np.einsum('bd,bd->b', of_a, of_a))
    exists = lengths > 0
    lengths[~exists] = 1.0
    along = of_a @ rows[a] - np.einsum('bd,bd->b', of_a, rows[a + 1 :])
    along /= lengths
    terms = np.exp(-0.5 * along**2) * exists
    loss += terms.sum()
    shares = -along * terms / lengths
    gradient[a] += shares @ of_a
    gradient[a + 1 :] -= shares[:, None] * of_a
  return loss, gradient
