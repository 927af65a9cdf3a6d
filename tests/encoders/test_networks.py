"""The small networks: the CIFAR CNN of FedVC, that of handwriting, a perceptron."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import classifier, heads
from tff_xc.encoders import conv, mlp, plain_cnn, resnet

SEED = tf.constant([0, 1])


def test_the_cifar_network_has_the_published_number_of_parameters():
  model = classifier.EmbeddingClassifier(plain_cnn.build_cifar_encoder(), heads.LinearHead(), 10)
  sizes = [s.shape.num_elements() for s in tf.nest.flatten(model.weight_specs())]
  assert sum(sizes) == 1_756_426


def test_the_cifar_network_is_keras():
  encoder = plain_cnn.build_cifar_encoder()
  weights = encoder.init(SEED)
  keras = tf.keras.layers
  network = tf.keras.Sequential(
    [
      keras.Conv2D(64, 5, padding='same', activation='relu'),
      keras.MaxPool2D(),
      keras.Conv2D(64, 5, padding='same', activation='relu'),
      keras.MaxPool2D(),
      keras.Flatten(),
      keras.Dense(384, activation='relu'),
      keras.Dense(192, activation='relu'),
    ]
  )
  x = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3], np.uint8)
  images = resnet.standardized(x, False, SEED)
  network(images)
  network.set_weights(
    [
      np.transpose(w) if n.startswith('dense') and n.endswith('kernel') else w
      for n, w in ((n, w.numpy()) for n, w in weights.items())
    ]
  )
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(weights)
    embeddings, _ = encoder.apply(weights, {}, x, training=False, seed=SEED)
    expected = network(images)
  assert embeddings.shape == [3, encoder.embedding_dim] == [3, 192]
  np.testing.assert_allclose(embeddings, expected, atol=1e-5)
  of_keras = tape.gradient(expected, network.trainable_weights)
  for (name, gradient), wanted in zip(
    tape.gradient(embeddings, weights).items(), of_keras, strict=True
  ):
    if name.startswith('dense') and name.endswith('kernel'):
      wanted = tf.transpose(wanted)
    np.testing.assert_allclose(gradient, wanted, atol=1e-3, err_msg=name)


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
