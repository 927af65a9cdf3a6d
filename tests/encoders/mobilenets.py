"""Reference networks of the MobileNets, from Keras and from TFF."""

import functools

import numpy as np
import tensorflow as tf

from tff_xc.encoders import mobilenet

L = tf.keras.layers


@functools.cache
def v3_of_keras(side: int, groups: int = 8) -> tf.keras.Model:
  """Returns Keras's MobileNetV3Large with GroupNormalization as BatchNorm."""

  def with_group_norm(layer):
    if isinstance(layer, L.BatchNormalization):
      return L.GroupNormalization(groups, epsilon=1e-3, name=layer.name)
    return layer.__class__.from_config(layer.get_config())

  network = tf.keras.applications.MobileNetV3Large(
    input_shape=(side, side, 3), include_top=False, weights=None, pooling='avg'
  )
  return tf.keras.models.clone_model(network, clone_function=with_group_norm)


@functools.cache
def v2_of_tff(side: int, groups: int = 8) -> tf.keras.Model:
  """Returns TFF's MobileNetV2, of pixels 0 to 255, without the class layer."""
  from tensorflow_federated.python.simulation.models import mobilenet_v2

  whole = mobilenet_v2.create_mobilenet_v2(
    (side, side, 3), num_groups=groups, num_classes=2
  )
  features = tf.keras.Model(whole.inputs, whole.layers[-2].output)
  image = tf.keras.Input((side, side, 3))
  scaled = L.Rescaling(1 / 127.5, -1)(image)
  return tf.keras.Model(image, features(scaled))


REFERENCES = {
  'v2': (mobilenet.V2, v2_of_tff),
  'v3': (mobilenet.V3_LARGE, v3_of_keras),
}


def to_keras(value: np.ndarray) -> np.ndarray:
  """Returns a weight in Keras's form; a dense kernel is a convolution's there."""
  value = np.asarray(value)
  return value.T[None, None] if value.ndim == 2 else value


def random_weights(encoder, seed: int = 0) -> dict[str, np.ndarray]:
  """Returns initial weights with scales and offsets that are not trivial."""
  random = np.random.default_rng(seed)
  return {
    name: w.numpy()
    if name.endswith('kernel')
    else (w + random.normal(0, 0.2, w.shape)).numpy().astype(np.float32)
    for name, w in encoder.init(np.int32([0, seed])).items()
  }
