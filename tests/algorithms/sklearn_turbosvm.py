"""TurboSVM-FL's server step with scikit-learn's machines, written from the paper."""

import itertools
import warnings

import numpy as np
from sklearn import svm

from tests.algorithms import numpy_fedaws

KERNELS = {
  'linear': lambda x, z: x @ z.T,
  'polynomial': lambda x, z: (x @ z.T + 1) ** 3,
  'rbf': lambda x, z: np.exp(-((x[:, None] - z[None]) ** 2).sum(-1)),
  'sigmoid': lambda x, z: np.tanh(x @ z.T + 1),
}


def fit(points, kernel, c, tolerance=1e-3, steps=50):
  """Fits scikit-learn's support vector machines to points [n, M, d].

  Returns (supports bool [n, M], coefficients: {(a, b): [2 M]}, the machine).
  """
  n, m, d = points.shape
  flat = np.asarray(points, np.float64).reshape(n * m, d)
  options = {'kernel': kernel, 'gamma': 1.0, 'coef0': 1.0, 'degree': 3}
  options['kernel'] = kernel.replace('polynomial', 'poly')
  machine = svm.SVC(C=c, tol=tolerance, max_iter=steps, **options)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # The fit stops at the step limit, as published.
    machine.fit(flat, np.repeat(np.arange(n), m))
  supports = np.zeros(n * m, bool)
  supports[machine.support_] = True
  dual = np.zeros([n - 1, n * m])
  # With two classes, scikit-learn reverses the sign.
  dual[:, machine.support_] = machine.dual_coef_ * (-1 if n == 2 else 1)

  def of(row, k):
    return dual[row, k * m : (k + 1) * m]

  coefficients = {
    (a, b): np.concatenate([of(b - 1, a), of(a, b)]) for a, b in itertools.combinations(range(n), 2)
  }
  return supports.reshape(n, m), coefficients, machine


def similarity(points, coefficients, kernel, rows):
  """Computes the sum of eq. (8) by loops over the pairs."""
  k, total = KERNELS[kernel], 0.0
  for (a, b), of_pair in coefficients.items():
    both = np.concatenate([points[a], points[b]])
    square = of_pair @ k(both, both) @ of_pair
    if square < 1e-10:
      continue
    along = of_pair @ k(both, rows[[a]]) - of_pair @ k(both, rows[[b]])
    total += np.exp(-0.5 * along[0] ** 2 / square)
  return total


def similarity_gradient(points, coefficients, kernel, rows):
  """Returns the gradient of `similarity` with respect to the rows, by central differences."""

  def of(moved):
    return similarity(points, coefficients, kernel, moved)

  return numpy_fedaws.numeric_gradient(of, rows, 1e-5)


def selected(stacked, weights, supports):
  """Returns the rows of eq. (7) for rows [M, n, d] and weights [M]."""
  rows = []
  for k in range(stacked.shape[1]):
    chosen = weights * supports[k]
    chosen = chosen if chosen.any() else weights
    rows.append((chosen[:, None] * stacked[:, k]).sum(0) / chosen.sum())
  return np.array(rows)
