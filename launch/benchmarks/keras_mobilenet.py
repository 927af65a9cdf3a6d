"""MobileNetV3-Large of Keras's layers, as a contender."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks import keras_steps

_GROUPS = 8


def embedding_model(
  side: int, embedding_dim: int, batch_norm: bool
) -> tf.keras.Model:
  """Returns Keras's network, from pixels 0 to 255 to embeddings.

  Args:
    side: of the images.
    embedding_dim: of the last layer, which is linear.
    batch_norm: Keras's BatchNorm; otherwise GroupNormalization in its place.
  """

  def clone(layer):
    if isinstance(layer, tf.keras.layers.BatchNormalization) and not batch_norm:
      return tf.keras.layers.GroupNormalization(
        _GROUPS, epsilon=layer.epsilon, name=layer.name
      )
    return layer.__class__.from_config(layer.get_config())

  network = tf.keras.applications.MobileNetV3Large(
    input_shape=(side, side, 3), include_top=False, weights=None, pooling='avg'
  )
  network = tf.keras.models.clone_model(network, clone_function=clone)
  embedding = tf.keras.layers.Dense(embedding_dim)(network.output)
  return tf.keras.Model(network.input, embedding)


def _to_keras(weights: Mapping[str, np.ndarray]) -> list[np.ndarray]:
  """Returns the trainable weights in Keras's forms, in its order."""
  return [
    _transposed(name, value)
    for name, value in weights.items()
    if not name.startswith('class/')
  ]


def _transposed(name: str, value: np.ndarray) -> np.ndarray:
  """Returns a dense kernel [outputs, inputs] as Keras has it."""
  if value.ndim != 2:
    return value
  return value.T if name == 'bottleneck/kernel' else value.T[None, None]


def adapted(weights: Mapping[str, np.ndarray], side: int):
  """Returns (Keras's network as an encoder, all weights by its names)."""
  from tff_xc.encoders import keras_model

  model = embedding_model(side, len(weights['bottleneck/bias']), False)
  encoder = keras_model.build_keras_encoder(model, (side, side, 3))
  names = encoder.init(np.int32([0, 0]))
  renamed = dict(zip(names, _to_keras(weights), strict=True))
  of_class = {n: w for n, w in weights.items() if n.startswith('class/')}
  return encoder, renamed | of_class


def steps(
  weights: Mapping[str, np.ndarray],
  client: arrays.Client,
  *rest,
  batch_norm: bool,
) -> keras_steps.Steps:
  """Returns training steps of the network; see `keras_steps.Steps`."""
  kernel, bias = weights['class/kernel'], weights['class/bias']
  model = embedding_model(client.x.shape[1], len(kernel), batch_norm)
  for v, value in zip(model.trainable_weights, _to_keras(weights), strict=True):
    v.assign(value)
  classes = tf.keras.layers.Dense(len(bias))
  model = tf.keras.Sequential([model, classes])
  model.build([None, *client.x.shape[1:]])
  classes.set_weights([kernel, bias])
  return keras_steps.Steps(model, weights, client, *rest)
