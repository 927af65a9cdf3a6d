"""The MobileNets equal those of Keras and TFF with GroupNorm."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import errors
from tff_xc.encoders import mobilenet

L = tf.keras.layers


@functools.cache
def v3_of_keras(side: int, groups: int = 8) -> tf.keras.Model:
  """Returns Keras's MobileNetV3Large with GroupNormalization instead of BatchNorm."""

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
  """Returns TFF's MobileNetV2 for pixels from 0 to 255, without the class layer."""
  from tensorflow_federated.python.simulation.models import mobilenet_v2

  whole = mobilenet_v2.create_mobilenet_v2((side, side, 3), num_groups=groups, num_classes=2)
  features = tf.keras.Model(whole.inputs, whole.layers[-2].output)
  image = tf.keras.Input((side, side, 3))
  scaled = L.Rescaling(1 / 127.5, -1)(image)
  return tf.keras.Model(image, features(scaled))


REFERENCES = {'v2': (mobilenet.V2, v2_of_tff), 'v3': (mobilenet.V3_LARGE, v3_of_keras)}


def to_keras(value: np.ndarray) -> np.ndarray:
  """Returns a weight in Keras's format, where a dense kernel is that of a convolution."""
  value = np.asarray(value)
  return value.T[None, None] if value.ndim == 2 else value


def random_weights(encoder, seed: int = 0) -> dict[str, np.ndarray]:
  """Returns random weights with scales different from 1 and offsets different from 0."""
  random = np.random.default_rng(seed)
  return {
    name: w.numpy()
    if name.endswith('kernel')
    else (w + random.normal(0, 0.2, w.shape)).numpy().astype(np.float32)
    for name, w in encoder.init(np.int32([0, seed])).items()
  }


RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, [3, 32, 32, 3], np.uint8)
# The numbers of parameters without the bottleneck. Keras has the same with include_top=False,
# without running moments.
PARAMETERS = {'v2': 2_223_872, 'v3': 2_971_952}
# The first two blocks, and two blocks that together have all features of blocks.
FEW = mobilenet.V3_LARGE._replace(
  blocks=(
    *mobilenet.V3_LARGE.blocks[:2],
    mobilenet.V3_LARGE.blocks[4]._replace(inputs=24),
    mobilenet.V3_LARGE.blocks[6],
  ),
  last=16,
)


def test_the_papers_sizes():
  # In FedSS, the shares of figure 8 imply about 3.71 million parameters with 64 dimensions. Neither
  # this network nor Keras's has so many. FedVC has 1280 features and a bottleneck of 64.
  def count(network, dim):
    encoder = mobilenet.build(network, embedding_dim=dim)
    weights = encoder.init(np.int32([0, 1]))
    return sum(w.shape.num_elements() for w in weights.values())

  assert count(mobilenet.V3_LARGE, 64) == 2_971_952 + 960 * 64 + 64 == 3_033_456
  assert count(mobilenet.V3_LARGE, 1280) == 4_202_032
  assert count(mobilenet.V2, 64) == 2_223_872 + 1280 * 64 + 64 == 2_305_856


@pytest.mark.slow
@pytest.mark.parametrize('name', ['v2', 'v3'])
def test_features_and_gradients_are_those_of_the_reference(name):
  network, reference = REFERENCES[name]
  encoder = mobilenet.build(network, image_size=32, embedding_dim=0)
  weights = random_weights(encoder)
  assert sum(w.size for w in weights.values()) == PARAMETERS[name]
  model = reference(32)
  model.set_weights([to_keras(w) for w in weights.values()])
  direction = RANDOM.normal(size=[3, network.last]).astype(np.float32)

  @tf.function(autograph=False)
  def ours(x, weights):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      features, _ = encoder.apply(weights, {}, x, True, None)
      loss = tf.reduce_sum(features * direction)
    return features, tape.gradient(loss, weights)

  @tf.function(autograph=False)
  def theirs(x):
    with tf.GradientTape() as tape:
      features = model(x, training=True)
      loss = tf.reduce_sum(features * direction)
    return features, tape.gradient(loss, model.trainable_weights)

  given = {name: tf.constant(w) for name, w in weights.items()}
  features, gradients = ours(tf.constant(IMAGES), given)
  expected, of_keras = theirs(tf.constant(IMAGES, tf.float32))
  scale = np.abs(expected).max()
  assert scale > 0.1
  np.testing.assert_allclose(features, expected, atol=2e-4 * scale)
  for (weight, found), reference in zip(gradients.items(), of_keras, strict=True):
    wanted = np.asarray(reference)
    found = to_keras(found)
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error < 5e-3, weight


def test_bad_arguments_are_refused_and_the_seed_draws_initial_weights():
  for given, message in (({'image_size': 31}, 'at least 32'), ({'groups': 3}, 'divide 8')):
    with pytest.raises(errors.InputError, match=message):
      mobilenet.build(mobilenet.V2, **given)
  encoder = mobilenet.build(FEW, image_size=32, embedding_dim=5)
  first, again, other = (encoder.init(np.int32([0, i])) for i in (1, 1, 2))
  kernels = [k for k in first if k.endswith('kernel')]
  assert len({first[k].numpy().ravel()[0] for k in kernels}) == len(kernels)
  for name in first:
    np.testing.assert_array_equal(first[name], again[name])
    assert name not in kernels or not np.array_equal(first[name], other[name])
  # The variance is He's. A depthwise filter has one input channel.
  kernel = first['block3/depthwise/kernel'].numpy()
  assert kernel.shape == (3, 3, 240, 1)
  assert kernel.std() == pytest.approx((2 / 9) ** 0.5, rel=0.1)
