"""The FEMNIST CNN of LEAF."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks import femnist_round
from launch.benchmarks import plain
from tff_xc import classifier
from tff_xc import heads
from tff_xc.encoders import leaf

RANDOM = np.random.default_rng(0)
NO_SEED = tf.constant([0, 0])


def _conv_relu_pool(x, kernel, bias):
  """Computes a naive 5x5 'same' convolution, ReLU and 2x2 max pooling."""
  side = x.shape[1]
  padded = np.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]])
  out = np.zeros([*x.shape[:3], kernel.shape[-1]]) + bias
  for i in range(5):
    for j in range(5):
      out += padded[:, i : i + side, j : j + side] @ kernel[i, j]
  out = np.maximum(out, 0)
  halves = out.reshape(len(x), side // 2, 2, side // 2, 2, -1)
  return halves.max(axis=(2, 4))


def test_the_embedding_is_the_papers_network_in_numpy():
  encoder = leaf.build_femnist_encoder(embedding_dim=16)
  weights = {k: w.numpy() for k, w in encoder.init(tf.constant([0, 1])).items()}
  x = RANDOM.random([3, 28, 28], np.float32)
  h = _conv_relu_pool(
    x[..., None], weights['conv0/kernel'], weights['conv0/bias']
  )
  h = _conv_relu_pool(h, weights['conv1/kernel'], weights['conv1/bias'])
  assert h.shape == (3, 7, 7, 64)
  h = h.reshape(3, 3136) @ weights['dense/kernel'].T + weights['dense/bias']
  for images in (x, x.reshape(3, 784)):
    embeddings, state = encoder.apply(
      weights, {}, tf.constant(images), training=True, seed=NO_SEED
    )
    np.testing.assert_allclose(embeddings, np.maximum(h, 0), atol=1e-5)
    assert state == {}


def test_with_62_classes_it_has_the_published_number_of_parameters():
  model = classifier.EmbeddingClassifier(
    leaf.build_femnist_encoder(), heads.LinearHead(bias=True), 62
  )
  specs = model.weight_specs()
  sizes = [s.shape.num_elements() for s in tf.nest.flatten(specs)]
  assert sum(sizes) == 6_603_710 == femnist_round.PARAMETERS
  shapes = femnist_round.shapes(2048, 62)
  assert list(specs.encoder) == list(shapes)[:-2]
  for name, spec in specs.encoder.items():
    # The benchmarks write a dense kernel as Keras does, the encoder turns it.
    shape = shapes[name][::-1] if name == 'dense/kernel' else shapes[name]
    assert tuple(spec.shape) == shape


def test_the_benchmarks_forms_of_the_network_compute_the_same():
  settings = femnist_round.Settings(2, 3, 2, embedding_dim=16)
  clients, weights = femnist_round.make_arrays(settings)
  keras = femnist_round.build_keras(settings)
  keras.set_weights(list(weights.values()))
  model = classifier.EmbeddingClassifier(
    leaf.build_femnist_encoder(embedding_dim=16),
    heads.LinearHead(bias=True),
    62,
  )
  embeddings, _ = model.encoder.apply(
    arrays.of_encoder(weights), {}, clients[0].x, training=False, seed=NO_SEED
  )
  logits = model.head.logits(
    embeddings, arrays.class_table(weights), tf.range(62)
  )
  for form in (keras, functools.partial(plain.femnist_cnn, weights)):
    np.testing.assert_allclose(form(clients[0].x), logits, atol=1e-5)


@pytest.mark.parametrize('name', ['conv1/kernel', 'conv1/bias', 'dense/bias'])
def test_the_initial_weights_are_pytorchs(name):
  weights = leaf.build_femnist_encoder().init(tf.constant([0, 1]))
  fan_in = {'conv1': 800, 'dense': 3136}[name.split('/')[0]]
  bound, w = fan_in**-0.5, weights[name].numpy()
  assert np.abs(w).max() <= bound
  assert np.abs(w).max() > 0.9 * bound
  assert np.std(w) == pytest.approx(bound / 3**0.5, rel=0.2)
  assert not np.array_equal(w.ravel()[:9], weights['conv0/bias'][:9])


def test_every_weight_gets_a_gradient():
  encoder = leaf.build_femnist_encoder(embedding_dim=8)
  weights = encoder.init(tf.constant([0, 1]))
  x = RANDOM.random([4, 28, 28], np.float32)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    embeddings, _ = encoder.apply(weights, {}, x, training=True, seed=NO_SEED)
    loss = tf.reduce_sum(embeddings**2)
  for name, gradient in tape.gradient(loss, weights).items():
    assert np.any(gradient.numpy() != 0), name
