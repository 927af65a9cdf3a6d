"""Weights from Keras's files, with BatchNorm converted to GroupNorm."""

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
  folded = keras_weights.folded(model, network, 8)
  assert {n: w.shape for n, w in drawn.items() if n in folded} == {
    n: w.shape for n, w in folded.items()
  }
  assert drawn.keys() - folded.keys() == {'bottleneck/kernel', 'bottleneck/bias'}
  for each, value in folded.items():
    np.testing.assert_array_equal(found[each], value)
  theirs = 'block_3_depthwise' if name == 'v2' else 'expanded_conv_3/depthwise'
  own = model.get_layer(theirs).get_weights()[0]
  np.testing.assert_array_equal(folded['block3/depthwise/kernel'], own)
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
