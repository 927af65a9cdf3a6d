"""The Shakespeare network of Keras's layers, as a contender."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks import keras_steps

_BIASES = ('bias', 'recurrent_bias')
# A Keras LSTM has one bias, the sum of our two.
_SUMMED = (1, 1, 1, 2, 1, 1, 2, 1, 1)


def _to_keras(weights: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns Keras's weights: kernels transposed, one bias for an LSTM's two.

  The gates have the same order.
  """
  given = [weights['characters']]
  for layer in ('lstm0', 'lstm1'):
    of = lambda name, layer=layer: weights[f'{layer}/{name}']
    given += [of('kernel').T, of('recurrent').T, sum(map(of, _BIASES))]
  return [*given, weights['class/kernel'], weights['class/bias']]


def steps(
  weights: Mapping[str, np.ndarray], client: arrays.Client, *rest
) -> keras_steps.Steps:
  """Returns training steps of the network; see `keras_steps.Steps`."""
  (symbols, width), hidden = (
    weights['characters'].shape,
    len(weights['class/kernel']),
  )
  layers = tf.keras.layers
  model = tf.keras.Sequential(
    [
      layers.Embedding(symbols, width, input_length=client.x.shape[1]),
      layers.LSTM(hidden, return_sequences=True),
      layers.LSTM(hidden),
      layers.Dense(len(weights['class/bias'])),
    ]
  )
  model.build([None, client.x.shape[1]])
  model.set_weights(_to_keras(weights))
  return keras_steps.Steps(model, weights, client, *rest, summed=_SUMMED)
