"""The small networks for FEMNIST, CIFAR, handwriting and rows."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.encoders import conv, leaf, mlp, plain_cnn, resnet

SEED = tf.constant([0, 1])


FILTERS = {'femnist': (32, 64), 'cifar': (64, 64)}
DENSE = {'femnist': (16,), 'cifar': (384, 192)}


@pytest.mark.parametrize('name', FILTERS)
def test_the_networks_of_femnist_and_cifar_are_kerass(name):
  """The papers' networks equal Keras networks, also in gradients. LEAF's flat images also work."""
  if name == 'femnist':
    encoder = leaf.build_femnist_encoder(embedding_dim=16)
    x = np.random.default_rng(0).random([3, 28, 28], np.float32)
    images, flat = x[..., None], x.reshape(3, 784)
  else:
    encoder = plain_cnn.build_cifar_encoder()
    x = flat = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3], np.uint8)
    images = resnet.standardized(x, False, SEED)
  keras = tf.keras.layers
  network = tf.keras.Sequential()
  for filters in FILTERS[name]:
    network.add(keras.Conv2D(filters, 5, padding='same', activation='relu'))
    network.add(keras.MaxPool2D())
  network.add(keras.Flatten())
  for width in DENSE[name]:
    network.add(keras.Dense(width, activation='relu'))
  network(images)
  weights = encoder.init(SEED)
  network.set_weights([to_keras(n, w).numpy() for n, w in weights.items()])
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(weights)
    embeddings, state = encoder.apply(weights, {}, tf.constant(x), training=False, seed=SEED)
    expected = network(images)
  assert embeddings.shape == [3, encoder.embedding_dim] == [3, DENSE[name][-1]]
  assert state == {}
  np.testing.assert_allclose(embeddings, expected, atol=1e-5)
  again, _ = encoder.apply(weights, {}, tf.constant(flat), training=False, seed=SEED)
  np.testing.assert_array_equal(again, embeddings)
  of_keras = tape.gradient(expected, network.trainable_weights)
  gradients = tape.gradient(embeddings, weights)
  for (weight, gradient), wanted in zip(gradients.items(), of_keras, strict=True):
    np.testing.assert_allclose(to_keras(weight, gradient), wanted, atol=1e-3, err_msg=weight)


def to_keras(name, weight):
  """Returns a weight in Keras's format, where a dense kernel is transposed."""
  return tf.transpose(weight) if name.startswith('dense') and weight.shape.rank == 2 else weight


@pytest.mark.parametrize(('side', 'channels', 'dim'), [(8, None, 7), (28, None, 64), (32, 3, 5)])
def test_the_conv_network_has_the_dimension_asked_for(side, channels, dim):
  encoder = conv.build_conv_encoder(image_size=side, channels=channels, embedding_dim=dim)
  assert encoder.example_spec.shape == [side, side] + [3] * bool(channels)
  x = np.random.default_rng(0).integers(0, 256, [3, *encoder.example_spec.shape], np.uint8)
  embeddings, state = encoder.apply(encoder.init(SEED), {}, x, True, SEED)
  assert embeddings.shape == [3, dim]
  assert np.isfinite(embeddings).all()
  assert state == {}


def test_the_perceptron_is_two_hidden_layers_and_a_linear_one():
  encoder = mlp.build_dense_mlp_encoder(5, 7, 3)
  weights = encoder.init(tf.constant([1, 2]))
  x = np.random.default_rng(0).normal(size=[4, 5]).astype(np.float32)
  found, state = encoder.apply(weights, {}, x, True, tf.constant([0, 0]))
  h = x
  for layer in ('hidden0', 'hidden1'):
    h = np.maximum(h @ weights[f'{layer}/kernel'].numpy().T, 0)
  np.testing.assert_allclose(found, h @ weights['dense/kernel'].numpy().T, rtol=1e-5, atol=1e-6)
  assert not state
  assert encoder.batch_spec() == tf.TensorSpec([None, 5], tf.float32)
