"""Training steps of a Keras network, as a contender."""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs


class Steps:
  """Steps of SGD, one graph call each."""

  def __init__(
    self,
    model: tf.keras.Model,
    weights: Mapping[str, np.ndarray],
    client: arrays.Client,
    batch_size: int,
    learning_rate: float,
    summed: Sequence[int] | None = None,
  ):
    """Prepares the steps, from the present weights of a network.

    Args:
      model: images or windows -> logits [B, n].
      weights: those of the other contenders.
      client: the examples.
      batch_size: examples of a step.
      learning_rate: of the other contenders.
      summed: for each of the model's trainable weights, how many of `weights`
        have it as their sum; 1 if not given.

    Raises:
      ValueError: the model has another number of parameters than `weights`.
    """
    self._x, self._y = tf.constant(client.x), tf.constant(client.y)
    self._batch_size, self._rate = batch_size, learning_rate
    self._model = model
    self._summed = summed or [1] * len(model.trainable_weights)
    self._before = self._weights()
    found = sum(
      w.size * n for w, n in zip(self._before, self._summed, strict=True)
    )
    if found != arrays.count(weights):
      raise ValueError(
        f'Keras has {found} parameters, not {arrays.count(weights)}'
      )
    self._step = tf.function(self._one_step, autograph=False)
    self._report = {}

  def _weights(self) -> list[np.ndarray]:
    return [v.numpy() for v in self._model.trainable_weights]

  def _one_step(self, start):
    end = start + self._batch_size
    variables = self._model.trainable_variables
    with tf.GradientTape() as tape:
      logits = self._model(self._x[start:end], training=True)
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=self._y[start:end], logits=logits
        )
      )
    gradients = tape.gradient(loss, variables)
    for v, g, n in zip(variables, gradients, self._summed, strict=True):
      # Each of n weights has the gradient of their sum, which moves n times as far.
      tf.raw_ops.ResourceApplyGradientDescent(
        var=v.handle, alpha=n * self._rate, delta=tf.convert_to_tensor(g)
      )
    return loss

  def run(self) -> None:
    starts = range(0, len(self._y), self._batch_size)
    losses = [self._step(tf.constant(start)) for start in starts]
    self._loss = float(np.mean(losses))

  def report(self) -> dict:
    if not self._report:
      # The n weights of a sum change alike: together by its change over sqrt(n).
      after, before = (
        [w / n**0.5 for w, n in zip(values, self._summed, strict=True)]
        for values in (self._weights(), self._before)
      )
      norm = inputs.distance(after, before)
      self._report = {'check': {'loss': self._loss, 'update_norm': norm}}
    return self._report
