"""Optimizers in the form that the papers' code uses.

TFF's own Adam adds epsilon before the bias correction and has no AMSGrad; these
follow PyTorch: w <- w - lr * m_hat / (sqrt(v_hat) + epsilon).
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff


class TorchAdam(tff.learning.optimizers.Optimizer):
  """Adam (Kingma and Ba, 2015, Algorithm 1) or AMSGrad, as in PyTorch.

  Its state has sums in place of the moments, s <- beta s + g; a moment is
  (1 - beta) s. The factors are in the step size, since every multiplication here
  is a pass over all weights.
  """

  def __init__(
    self,
    learning_rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-8,
    amsgrad: bool = False,
    weight_decay: float = 0.0,
  ):
    self._learning_rate = learning_rate
    self._beta_1 = beta_1
    self._beta_2 = beta_2
    self._epsilon = epsilon
    self._amsgrad = amsgrad
    self._weight_decay = weight_decay

  def initialize(self, specs):
    zeros = lambda: tf.nest.map_structure(
      lambda s: tf.zeros(s.shape, s.dtype), specs
    )
    state = collections.OrderedDict(
      step=tf.constant(0, tf.int32), sum=zeros(), squares=zeros()
    )
    if self._amsgrad:
      state['largest'] = zeros()
    return state

  def next(self, state, weights, gradients):
    step = state['step'] + 1
    each = tf.nest.map_structure
    if self._weight_decay:  # L2, not AdamW's decoupled decay.
      decayed = lambda g, w: g + self._weight_decay * w
      gradients = each(decayed, gradients, weights)
    total = each(lambda s, g: self._beta_1 * s + g, state['sum'], gradients)
    squares = each(
      lambda s, g: self._beta_2 * s + tf.square(g), state['squares'], gradients
    )
    new_state = collections.OrderedDict(step=step, sum=total, squares=squares)
    scale = squares
    if self._amsgrad:
      scale = each(tf.maximum, state['largest'], squares)
      new_state['largest'] = scale
    # The factors that turn a sum into a moment, corrected for its bias.
    power = tf.cast(step, tf.float32)
    first = (1.0 - self._beta_1) / (1.0 - tf.pow(self._beta_1, power))
    second = (1.0 - self._beta_2) / (1.0 - tf.pow(self._beta_2, power))
    rate = self._learning_rate * first / tf.sqrt(second)
    epsilon = self._epsilon / tf.sqrt(second)
    move = lambda w, m, s: w - rate * (m / (tf.sqrt(s) + epsilon))
    return new_state, each(move, weights, total, scale)


class Descent(tff.learning.optimizers.Optimizer):
  """SGD for gradients that contain the learning rate: w <- (1 - decay) w - g."""

  def __init__(self, replacement: float | None = None, decay: float = 0.0):
    """Describes the step.

    Args:
      replacement: replaces numbers that are not finite, or None.
      decay: the learning rate times the weight decay. It takes one pass over the
        weights; L2 in the loss or in the gradients would take two.
    """
    self._replacement, self._decay = replacement, decay

  def initialize(self, specs):
    del specs
    return ()

  def next(self, state, weights, gradients):
    return state, tf.nest.map_structure(self._moved, weights, gradients)

  def _moved(self, weight, gradient):
    kept = (1.0 - self._decay) * weight if self._decay else weight
    moved = kept - gradient
    if self._replacement is None:
      return moved
    return tf.where(tf.math.is_finite(moved), moved, self._replacement)


def build_sgd(
  learning_rate: float = 1.0, momentum: float = 0.0
) -> tff.learning.optimizers.Optimizer:
  """SGD with momentum, v <- beta v + g, w <- w - lr v (FedAvgM)."""
  # TFF treats a momentum of None as plain SGD, without a velocity in its state.
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)
