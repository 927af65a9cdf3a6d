"""FedAwS in TurboSVM-FL's form, beside NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tests.algorithms import numpy_fedavg
from tests.algorithms import test_fedavg
from tff_xc.algorithms import spreadout

pytestmark = pytest.mark.usefixtures('tff_worker')


def penalty(rows):
  """Returns sum_{i < j} max(0, cos(w_i, w_j)), by loops."""
  total = 0.0
  for i in range(len(rows)):
    for j in range(i):
      norms = np.linalg.norm(rows[i]) * np.linalg.norm(rows[j])
      total += max(0.0, rows[i] @ rows[j] / norms)
  return total


def penalty_gradient(rows):
  """Returns the penalty's gradient by central differences, float64."""
  gradient = np.zeros_like(rows)
  for place in np.ndindex(*rows.shape):
    step = np.zeros_like(rows)
    step[place] = 1e-6
    gradient[place] = (penalty(rows + step) - penalty(rows - step)) / 2e-6
  return gradient


def test_the_gradient_is_that_of_the_penalty():
  rows = np.random.default_rng(0).normal(size=[7, 4])
  cosines = spreadout.Spreadout(
    1.0, nearest=0, distance=spreadout.POSITIVE_COSINE, tangent=True
  )
  found = cosines.gradient(tf.constant(rows, tf.float32))
  np.testing.assert_allclose(found, penalty_gradient(rows), atol=1e-5)


def test_three_rounds_equal_the_numpy_reference():
  """FedAvg, then one Adam step whose state lasts over the rounds."""
  process = tiny.process(
    'fedaws_softmax',
    local_training=test_fedavg.FULL_BATCH,
    logits_learning_rate=0.05,
    logits_epsilon=1e-2,
  )
  adam = numpy_fedavg.Server('adam', 0.05, epsilon=1e-2)

  def server(weights, gradients):
    kernel, bias, table = (
      w - g for w, g in zip(weights, gradients, strict=True)
    )
    [table] = adam([table], [penalty_gradient(table)])
    return [kernel, bias, table]

  test_fedavg.check_three_rounds(process, server)
