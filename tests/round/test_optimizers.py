"""Compares the server's optimizers with their formulas."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.round import local_training
from tff_xc.round import optimizers

GRADIENTS = [
  np.array([1e-4, -0.5]),
  np.array([2.0, 0.3]),
  np.array([0.0, 1e-3]),
]


def trajectory(optimizer, scale=1.0):
  weights = tf.constant([1.0, -1.0])
  state = optimizer.initialize(tf.TensorSpec([2]))
  for gradient in GRADIENTS:
    state, weights = optimizer.next(
      state, weights, tf.constant(scale * gradient, tf.float32)
    )
  return weights.numpy()


@pytest.mark.parametrize('amsgrad', [False, True])
def test_adam_is_pytorchs(amsgrad):
  w, m, v, largest = np.array([1.0, -1.0]), 0.0, 0.0, 0.0
  for t, g in enumerate(GRADIENTS, 1):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    largest = np.maximum(largest, v)
    second = (largest if amsgrad else v) / (1 - 0.999**t)
    w = w - 0.01 * m / (1 - 0.9**t) / (np.sqrt(second) + 1e-5)
  adam = optimizers.TorchAdam(0.01, epsilon=1e-5, amsgrad=amsgrad)
  np.testing.assert_allclose(trajectory(adam), w, rtol=1e-5)


@pytest.mark.parametrize('name', ['sgd', 'adam'])
@pytest.mark.parametrize('decay', [0.0, 0.3])
def test_weight_decay_is_pytorchs(name, decay):
  """torch.optim: d = g + weight_decay w takes the gradient's place."""
  w, m, v, rate = np.array([1.0, -1.0]), 0.0, 0.0, 0.1
  for t, g in enumerate(GRADIENTS, 1):
    d = g + decay * w
    m, v = 0.9 * m + 0.1 * d, 0.999 * v + 0.001 * d**2
    unit = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    w = w - rate * (d if name == 'sgd' else unit)
  training = local_training.LocalTraining(
    rate, optimizer_name=name, weight_decay=decay
  )
  scaled = trajectory(training.optimizer(), training.loss_scale)
  np.testing.assert_allclose(scaled, w, rtol=1e-5)


def test_a_first_small_step_shows_where_epsilon_is():
  """One step, gradient 1e-4, epsilon 1e-5: PyTorch moves by 0.0091."""
  adam = optimizers.TorchAdam(0.01, epsilon=1e-5)
  state = adam.initialize(tf.TensorSpec([1]))
  _, moved = adam.next(state, tf.zeros([1]), tf.constant([1e-4]))
  np.testing.assert_allclose(moved, [-0.0091], atol=2e-5)


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_sgd_with_momentum(momentum):
  w, v = np.array([1.0, -1.0]), 0.0
  for g in GRADIENTS:
    v = momentum * v + g
    w = w - 0.5 * v
  np.testing.assert_allclose(
    trajectory(optimizers.build_sgd(0.5, momentum)), w, rtol=1e-6, atol=1e-7
  )
