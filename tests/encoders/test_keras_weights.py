"""Weights of Keras's files, and BatchNorm as GroupNorm."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tff_xc import errors
from tff_xc.encoders import keras_weights, layers, mobilenet

RANDOM = np.random.default_rng(0)
NETWORKS = {'v2': mobilenet.V2, 'v3': mobilenet.V3_LARGE}


@pytest.mark.parametrize('groups', [1, 4])
def test_group_norm_equals_batch_norm_where_moments_are_the_populations(groups):
  x = RANDOM.normal(2, 3, size=[1, 9, 7, 8]) * RANDOM.uniform(0.1, 4, 8)
  gamma, beta = RANDOM.normal(size=[2, 8])
  mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
  expected = gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta
  scale, offset = keras_weights.group_norm_of(gamma, beta, mean, variance, groups, 1e-3)
  weights = {'n/scale': scale, 'n/offset': offset}
  found = layers.group_norm(tf.constant(x, tf.float32), weights, 'n', groups, 1e-3)
  np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.fixture(scope='module')
def v2():
  """Returns Keras's MobileNetV2 whose running moments are those of images."""
  tf.keras.utils.set_random_seed(0)
  model = tf.keras.applications.MobileNetV2(
    input_shape=(64, 64, 3), include_top=False, weights=None
  )
  for layer in model.layers:
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      layer.momentum = 0.0
      for v in layer.trainable_weights:
        v.assign(v + RANDOM.uniform(-0.3, 0.3, v.shape))
  for _ in range(2):  # A layer's moments depend on those before it.
    model(scaled(photos(32)), training=True)
  return model


def photos(count):
  """Returns images of smooth colours and edges, uint8 [count, 64, 64, 3]."""
  coarse = RANDOM.integers(0, 256, [count, 6, 6, 3]).astype(np.float32)
  smooth = tf.image.resize(coarse, [64, 64], 'bicubic').numpy()
  smooth[:, 20:40, 10:50] += RANDOM.normal(0, 40, [count, 1, 1, 3])
  return np.clip(smooth, 0, 255).astype(np.uint8)


def scaled(images):
  return tf.cast(images, tf.float32) / 127.5 - 1


@pytest.mark.slow
def test_every_weight_of_keras_is_taken_over(v2):
  weights = keras_weights.folded(v2, mobilenet.V2, 8)
  encoder = mobilenet.build(mobilenet.V2, image_size=32, embedding_dim=0)
  drawn = encoder.init(np.int32([0, 1]))
  assert {n: w.shape for n, w in weights.items()} == {n: w.shape for n, w in drawn.items()}
  np.testing.assert_array_equal(
    weights['block3/depthwise/kernel'], v2.get_layer('block_3_depthwise').get_weights()[0]
  )


@pytest.mark.slow
def test_folding_keeps_more_of_the_network_than_copying(v2):
  images = photos(24)
  expected = v2(scaled(images)).numpy().mean((1, 2))
  found = {}
  for groups in (1, 8):
    encoder = mobilenet.build(mobilenet.V2, image_size=64, embedding_dim=0, groups=groups)
    folded = dict(keras_weights.folded(v2, mobilenet.V2, groups))
    copied = dict(folded)
    for name, _, norm in keras_weights.layers_of(mobilenet.V2):
      gamma, beta, *_ = v2.get_layer(norm).get_weights()
      copied |= {f'{name}/scale': gamma, f'{name}/offset': beta}
    for kind, weights in (('folded', folded), ('copied', copied)):
      features, _ = encoder.apply(weights, {}, images, False, None)
      found[kind, groups] = centred_cosine(features.numpy(), expected)
  # Random kernels amplify every deviation more than trained ones.
  assert found['folded', 1] > 0.2 > found['folded', 8]
  assert found['folded', 8] > found['copied', 8] + 0.03
  assert found['folded', 1] > found['copied', 1] + 0.2


def centred_cosine(a, b):
  a, b = a - a.mean(0), b - b.mean(0)
  norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
  return np.mean(np.sum(a * b, axis=1) / norms)


@pytest.mark.slow
@pytest.mark.parametrize('name', NETWORKS)
@pytest.mark.parametrize('top', [False, True])
def test_a_file_becomes_initial_weights(name, top, tmp_path):
  network, path = NETWORKS[name], str(tmp_path / 'weights.h5')
  application = {
    'v2': tf.keras.applications.MobileNetV2,
    'v3': tf.keras.applications.MobileNetV3Large,
  }[name]
  model = application((224, 224, 3), include_top=top, weights=None)
  model.save_weights(path)
  encoder = mobilenet.build(network, image_size=32, embedding_dim=4)
  loaded = keras_weights.with_weights(encoder, network, path)
  seed = np.int32([0, 1])
  drawn, found = encoder.init(seed), loaded.init(seed)
  assert list(found) == list(drawn)
  for name, value in keras_weights.folded(model, network, 8).items():
    np.testing.assert_array_equal(found[name], value)
  np.testing.assert_array_equal(found['bottleneck/kernel'], drawn['bottleneck/kernel'])


@pytest.mark.slow
@pytest.mark.parametrize('what', ['another', 'wider', 'cut', 'text'])
def test_a_wrong_file_is_refused_in_one_sentence(what, tmp_path):
  path = tmp_path / 'weights.h5'
  if what == 'text':
    path.write_text('no HDF5')
  else:
    model = tf.keras.applications.MobileNetV2(
      (96, 96, 3), alpha=0.5 if what == 'wider' else 1.0, include_top=False, weights=None
    )
    model.save_weights(str(path))
  if what == 'cut':
    path.write_bytes(path.read_bytes()[:100_000])
  network = mobilenet.V3_LARGE if what == 'another' else mobilenet.V2
  with pytest.raises(errors.InputError) as refusal:
    keras_weights.read(network, str(path))
  message = str(refusal.value)
  assert '\n' not in message
  assert str(path) in message
  assert ('damaged' if what == 'cut' else 'has not the weights') in message


def test_a_missing_file_and_a_failed_download_are_one_sentence(monkeypatch):
  with pytest.raises(errors.InputError, match=r'no\.h5 is no file'):
    keras_weights.read(mobilenet.V2, 'no.h5')

  def build(**arguments):
    raise Exception('URL fetch failure on https://a.b/c.h5: None -- no route')

  monkeypatch.setattr(tf.keras.applications, 'MobileNetV2', build)
  with pytest.raises(errors.InputError, match=r'c\.h5.* no route'):
    keras_weights.read(mobilenet.V2, 'imagenet')


def test_weights_of_another_file_are_not_read(tmp_path):
  path = tmp_path / 'weights.h5'
  with h5py.File(path, 'w') as file:
    file['Conv1'] = h5py.ExternalLink(str(tmp_path / 'other.h5'), '/x')
  with pytest.raises(errors.InputError, match='another file'):
    keras_weights.read(mobilenet.V2, str(path))
