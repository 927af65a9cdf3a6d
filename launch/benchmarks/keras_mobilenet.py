"""MobileNetV3-Large of Keras's layers, as a contender."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs

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


class Steps:
  """Steps of SGD, one graph call each."""

  def __init__(
    self,
    weights: Mapping[str, np.ndarray],
    client: arrays.Client,
    batch_size: int,
    learning_rate: float,
    batch_norm: bool,
  ):
    self._x, self._y = tf.constant(client.x), tf.constant(client.y)
    self._batch_size, self._rate = batch_size, learning_rate
    kernel, bias = weights['class/kernel'], weights['class/bias']
    model = embedding_model(client.x.shape[1], len(kernel), batch_norm)
    for v, value in zip(
      model.trainable_weights, _to_keras(weights), strict=True
    ):
      v.assign(value)
    classes = tf.keras.layers.Dense(len(bias))
    self._model = tf.keras.Sequential([model, classes])
    self._model.build([None, *client.x.shape[1:]])
    classes.set_weights([kernel, bias])
    self._before = [v.numpy() for v in self._model.trainable_weights]
    if sum(w.size for w in self._before) != arrays.count(weights):
      raise ValueError('Keras has another number of parameters')
    self._step = tf.function(self._one_step, autograph=False)
    self._report = {}

  def _one_step(self, start):
    end = start + self._batch_size
    variables = self._model.trainable_variables
    with tf.GradientTape() as tape:
      x = tf.cast(self._x[start:end], tf.float32)
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=self._y[start:end], logits=self._model(x, training=True)
        )
      )
    gradients = tape.gradient(loss, variables)
    for v, g in zip(variables, gradients, strict=True):
      tf.raw_ops.ResourceApplyGradientDescent(
        var=v.handle, alpha=self._rate, delta=g
      )
    return loss

  def run(self) -> None:
    starts = range(0, len(self._y), self._batch_size)
    losses = [self._step(tf.constant(start)) for start in starts]
    self._loss = float(np.mean(losses))

  def report(self) -> dict:
    if not self._report:
      after = [v.numpy() for v in self._model.trainable_weights]
      norm = inputs.distance(after, self._before)
      self._report = {'check': {'loss': self._loss, 'update_norm': norm}}
    return self._report
