"""Measures TurboSVM-FL's server step: SVMs of all pairs of classes, and the spread-out step.

The contender `ours` is this package's step. `sklearn` is the same step with the SVMs of
scikit-learn and NumPy. `product` computes only the inner products of all clients' class rows,
which is the minimum of work. A contender is NAME@CLASSES. With more than 2,028 classes and 8
clients, scikit-learn takes minutes and gigabytes. Then leave it out with --contenders.

  python -m launch.benchmark svm --dim=64 --classes=62,964,2028 --passes=3
"""

import warnings

import numpy as np
import tensorflow as tf

from tff_xc.algorithms import svm
from tff_xc.round import folding, optimizers, server
from tff_xc.runtime import registry

# The published settings. `_BOUND` is the SVMs' C in the first round.
_BOUND, _TOLERANCE, _STEPS = 1.0, 1e-3, 50
_LEARNING_RATE, _EPSILON = 0.01, 1e-5
# The noise of a client's rows, relative to the common part of all clients' rows.
_NOISE = 0.3
_EXAMPLES = 227
_BLOCK = 256


def our_step(rows, weights):
  """Returns a contender that computes this package's first server step in every round."""
  clients, classes, row_dim = rows.shape
  step = svm.SupportVectors(
    classes,
    svm.Bound(_BOUND, 'constant'),
    tolerance=_TOLERANCE,
    steps=_STEPS,
    optimizer=optimizers.TorchAdam(_LEARNING_RATE, epsilon=_EPSILON),
  )
  merged = folding.StackedRows(
    tf.constant(np.tile(np.arange(classes, dtype=np.int32), clients)),
    tf.constant(rows.reshape(-1, row_dim)),
    tf.constant(np.repeat(weights, classes)),
  )
  state = step.initialize(tf.TensorSpec([classes, row_dim]))
  table = tf.TensorSpec([None, row_dim])
  specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, state)
  stacked = folding.StackedRows(tf.TensorSpec([None], tf.int32), table, tf.TensorSpec([None]))

  # The function takes any number of clients, as in a round.
  @tf.function(input_signature=[specs, table, stacked], autograph=False)
  def take(state, table, merged):
    seed = tf.zeros([2], tf.int32)
    context = server.StepContext(seed, tf.constant(0), merged, lambda: table)
    return step.next(state, table, context)

  def run():
    _, new, measured = take(state, tf.zeros([classes, row_dim]), merged)
    new.numpy()
    names = 'support_vectors', 'pair_similarity'
    return {'check': lambda: {name: float(measured[name]) for name in names}}

  return run


def sklearn_step(rows, weights):
  """Returns a contender with the step that the authors published, without their loops.

  One call of scikit-learn fits the SVMs of all pairs. The normals of the SVMs are read once. For
  each class, the gradient of the spread-out step is a few matrix products.
  """
  from sklearn.svm import SVC  # Only this contender needs scikit-learn.

  clients, classes, size = rows.shape
  machine = SVC(kernel='linear', C=_BOUND, tol=_TOLERANCE, max_iter=_STEPS)
  labels = np.tile(np.arange(classes), clients)

  def run():
    with warnings.catch_warnings():
      # The fit stops at the published bound on steps, with a warning.
      warnings.simplefilter('ignore')
      machine.fit(rows.reshape(-1, size), labels)
    supports = np.zeros(len(labels), bool)
    supports[machine.support_] = True
    supports = supports.reshape(clients, classes)
    # A class without a support vector keeps the mean of its rows.
    chosen = weights[:, None] * np.where(supports.any(axis=0), supports, True)
    new = np.einsum('mnd,mn->nd', rows, chosen) / chosen.sum(axis=0)[:, None]
    loss, gradient = similarities(new, machine.coef_)
    # In the first step of Adam, both bias-corrected moments come from the same gradient.
    new -= _LEARNING_RATE * gradient / (np.abs(gradient) + _EPSILON)
    check = {
      'support_vectors': float(supports.sum() / classes),
      'pair_similarity': float(loss / (classes * (classes - 1) / 2)),
    }
    return {'check': lambda: check}

  return run


def similarities(rows, normals):
  """Returns the sum in eq. (8) and its gradient with respect to the rows.

  With h = normal / |normal| and u = (w_a - w_b) . h, a pair adds exp(-u^2 / 2) to the sum. The
  pair adds -u exp(-u^2 / 2) h to the gradient of w_a, and subtracts the same from the gradient
  of w_b.
  """
  loss, gradient, start = 0.0, np.zeros(rows.shape), 0
  for a in range(len(rows) - 1):
    of_a = normals[start : start + len(rows) - 1 - a]
    start += len(of_a)
    lengths = np.sqrt(np.einsum('bd,bd->b', of_a, of_a))
    along = of_a @ rows[a] - np.einsum('bd,bd->b', of_a, rows[a + 1 :])
    along /= lengths
    terms = np.exp(-0.5 * along**2)
    loss += terms.sum()
    shares = -along * terms / lengths
    gradient[a] += shares @ of_a
    gradient[a + 1 :] -= shares[:, None] * of_a
  return loss, gradient


def build(contender, sizes):
  """Builds a contender NAME@CLASSES in its own process."""
  name, _, classes = contender.partition('@')
  # All processes use the same rows of the clients.
  random, shape = np.random.default_rng(0), [int(classes), sizes.dim + 1]
  common = random.uniform(-1, 1, shape)
  noise = random.uniform(-1, 1, [sizes.clients, *shape])
  rows = ((common + _NOISE * noise) * sizes.dim**-0.5).astype(np.float32)
  weights = random.integers(1, _EXAMPLES, sizes.clients).astype(np.float32)
  if name == 'product':
    return products(rows.reshape(-1, sizes.dim + 1))
  if name == 'sklearn':
    return sklearn_step(rows, weights)
  registry.install('in_process')  # Sets one thread for each op.
  return our_step(rows, weights)


def products(rows):
  """Returns a contender that computes each inner product of rows [R, row_dim] once, in blocks."""

  def run():
    for first in range(0, len(rows), _BLOCK):
      rows[first : first + _BLOCK] @ rows[first:].T
    return {}

  return run
