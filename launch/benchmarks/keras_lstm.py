"""The Shakespeare network of Keras's layers, as a contender."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs

_BIASES = ('bias', 'recurrent_bias')


def _to_keras(weights: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns Keras's weights: kernels transposed, one bias for an LSTM's two.

  The gates have the same order.
  """
  given = [weights['characters']]
  for layer in ('lstm0', 'lstm1'):
    of = lambda name, layer=layer: weights[f'{layer}/{name}']
    given += [of('kernel').T, of('recurrent').T, sum(map(of, _BIASES))]
  return [*given, weights['class/kernel'], weights['class/bias']]


def _changes(before, after) -> list[np.ndarray]:
  """Returns Keras's changes, with each LSTM's bias as two of half the change."""
  changes = []
  for i, (b, a) in enumerate(zip(before, after, strict=True)):
    changes += [(a - b) / 2] * 2 if i in (3, 6) else [a - b]
  return changes


class Steps:
  """Steps of SGD, one graph call each."""

  def __init__(
    self,
    weights: Mapping[str, np.ndarray],
    client: arrays.Client,
    batch_size: int,
    learning_rate: float,
  ):
    self._x, self._y = tf.constant(client.x), tf.constant(client.y)
    self._batch_size, self._rate = batch_size, learning_rate
    (symbols, width), hidden = (
      weights['characters'].shape,
      len(weights['class/kernel']),
    )
    layers = tf.keras.layers
    self._model = tf.keras.Sequential(
      [
        layers.Embedding(symbols, width, input_length=client.x.shape[1]),
        layers.LSTM(hidden, return_sequences=True),
        layers.LSTM(hidden),
        layers.Dense(len(weights['class/bias'])),
      ]
    )
    self._model.build([None, client.x.shape[1]])
    self._before = _to_keras(weights)
    self._model.set_weights(self._before)
    expected = arrays.count(weights) - 2 * 4 * hidden
    if self._model.count_params() != expected:
      raise ValueError(
        f'Keras has {self._model.count_params()} parameters, not {expected}'
      )
    self._step = tf.function(self._one_step, autograph=False)
    self._report = {}

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
    for i, (v, g) in enumerate(zip(variables, gradients, strict=True)):
      # Two biases of which the sum counts move twice as far as one.
      rate = (2 if i in (3, 6) else 1) * self._rate
      tf.raw_ops.ResourceApplyGradientDescent(
        var=v.handle, alpha=rate, delta=tf.convert_to_tensor(g)
      )
    return loss

  def run(self) -> None:
    starts = range(0, len(self._y), self._batch_size)
    losses = [self._step(tf.constant(start)) for start in starts]
    self._loss = float(np.mean(losses))

  def report(self) -> dict:
    if not self._report:
      changes = _changes(self._before, self._model.get_weights())
      norm = inputs.distance(changes, [np.zeros_like(c) for c in changes])
      self._report = {'check': {'loss': self._loss, 'update_norm': norm}}
    return self._report
