"""The CelebA CNN of LEAF, and BatchNorm as in PyTorch."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import classifier
from tff_xc import errors
from tff_xc import heads
from tff_xc.algorithms import fedavg
from tff_xc.encoders import leaf
from tff_xc.encoders import normalization
from tff_xc.round import examples
from tff_xc.round import local_training

RANDOM = np.random.default_rng(0)
SEED = tf.constant([0, 1])


def images(count: int, side: int) -> np.ndarray:
  return RANDOM.integers(0, 256, [count, side, side, 3]).astype(np.uint8)


def arrays(weights) -> dict[str, np.ndarray]:
  return {name: np.asarray(w, np.float64) for name, w in weights.items()}


def numpy_block(h, weights, statistics, i: int, training: bool):
  """Computes a block; returns (activations, its new mean and variance).

  BatchNorm as `torch.nn.BatchNorm2d` documents it: epsilon 1e-5; in training
  the biased variance of the batch normalises, and the unbiased one enters the
  running statistics with momentum 0.1.
  """
  kernel = weights[f'conv{i}/kernel']
  side = h.shape[1]
  padded = np.pad(h, [[0, 0], [1, 1], [1, 1], [0, 0]])
  out = weights[f'conv{i}/bias'] + sum(
    padded[:, a : a + side, b : b + side] @ kernel[a, b]
    for a in range(3)
    for b in range(3)
  )
  mean, variance = (statistics[f'norm{i}/{n}'] for n in ('mean', 'variance'))
  if training:
    flat = out.reshape(-1, out.shape[-1])
    used = flat.mean(0), flat.var(0)
    mean = 0.9 * mean + 0.1 * used[0]
    variance = 0.9 * variance + 0.1 * flat.var(0, ddof=1)
  else:
    used = mean, variance
  out = (out - used[0]) / np.sqrt(used[1] + 1e-5)
  out = out * weights[f'norm{i}/scale'] + weights[f'norm{i}/offset']
  half = side // 2
  quarters = out[:, : 2 * half, : 2 * half].reshape(
    len(out), half, 2, half, 2, -1
  )
  return np.maximum(quarters.max((2, 4)), 0), mean, variance


def numpy_network(x, weights, statistics, training: bool):
  """Returns (embeddings, new statistics by name)."""
  h, after = x / 255.0, {}
  for i in range(4):
    h, after[f'norm{i}/mean'], after[f'norm{i}/variance'] = numpy_block(
      h, weights, statistics, i, training
    )
  return h.reshape(len(x), -1), after


@pytest.mark.parametrize(('side', 'left'), [(84, 5), (33, 2)])
def test_the_network_is_the_papers_in_numpy(side, left):
  encoder = leaf.build_celeba_encoder(side=side)
  weights = encoder.init(SEED)
  for i in range(4):  # Not the initial ones and zeros, which could be missed.
    for name, around in (('scale', 1.0), ('offset', 0.0)):
      drawn = around + 0.2 * RANDOM.normal(size=32)
      weights[f'norm{i}/{name}'] = tf.constant(drawn, tf.float32)
  state = encoder.init_non_trainable(SEED)
  x = images(3, side)
  for training in (True, True, False):
    embeddings, after = encoder.apply(
      weights, state, tf.constant(x), training=training, seed=None
    )
    expected, expected_after = numpy_network(
      x, arrays(weights), arrays(state), training
    )
    assert embeddings.shape == (3, 32 * left**2) == (3, encoder.embedding_dim)
    np.testing.assert_allclose(embeddings, expected, atol=1e-4)
    assert list(after) == list(state)
    for name, value in after.items():
      np.testing.assert_allclose(
        value, expected_after[name], atol=1e-5, rtol=1e-5
      )
    state = after


def test_too_small_images_are_refused():
  with pytest.raises(errors.InputError, match=r'15 pixels.* at least 16'):
    leaf.build_celeba_encoder(side=15)


def test_the_variance_that_is_kept_is_unbiased():
  # With 2 numbers a channel it is twice the biased one.
  x = tf.constant([1.0, 5.0], shape=[2, 1, 1, 1])
  one, zero = tf.ones([1]), tf.zeros([1])
  normalised, mean, variance = normalization.batch_norm(
    x, one, zero, mean=zero, variance=one, training=True
  )
  np.testing.assert_allclose(tf.squeeze(normalised), [-1, 1], atol=1e-5)
  np.testing.assert_allclose(mean, [0.3], rtol=1e-6)
  np.testing.assert_allclose(variance, [0.9 + 0.1 * 8.0], rtol=1e-6)


def test_with_2_classes_it_has_the_published_number_of_parameters():
  model = classifier.EmbeddingClassifier(
    leaf.build_celeba_encoder(), heads.LinearHead(bias=True), 2
  )
  specs = model.weight_specs()
  count = lambda part: sum(
    s.shape.num_elements() for s in tf.nest.flatten(part)
  )
  assert count(specs.encoder_state) == 256
  assert count(specs) - 256 == 30_498


@pytest.mark.parametrize(
  ('name', 'fan_in'),
  [('conv0/kernel', 27), ('conv1/kernel', 288), ('conv3/bias', 288)],
)
def test_the_initial_weights_are_pytorchs(name, fan_in):
  w, bound = leaf.build_celeba_encoder().init(SEED)[name].numpy(), fan_in**-0.5
  assert 0.9 * bound < np.abs(w).max() <= bound
  assert np.std(w) == pytest.approx(bound / 3**0.5, rel=0.2)


def test_every_weight_gets_a_gradient():
  encoder = leaf.build_celeba_encoder(side=16)
  weights, state = encoder.init(SEED), encoder.init_non_trainable(SEED)
  # In training, a convolution's bias leaves with the mean of the batch.
  for training in (True, False):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      embeddings, _ = encoder.apply(
        weights, state, tf.constant(images(4, 16)), training, seed=None
      )
      loss = tf.reduce_sum(embeddings**2)
    for name, gradient in tape.gradient(loss, weights).items():
      largest = np.abs(gradient).max()
      if training and name.startswith('conv') and name.endswith('bias'):
        assert largest < 1e-3, name
      else:
        assert largest > 1e-3, name


@pytest.mark.slow
def test_the_server_takes_the_weighted_mean_of_the_statistics(in_process):
  encoder = leaf.build_celeba_encoder(side=16)
  process = fedavg.build_fedavg(
    model=classifier.EmbeddingClassifier(encoder, heads.LinearHead(), 2),
    # One step a client, so that both start from the initial weights.
    local_training=local_training.LocalTraining(0.1, 8, 1),
  )
  cohort = [
    examples.ClientExamples(images(size, 16), y, np.int64(i), y)
    for i, size in enumerate((2, 6))
    for y in [np.arange(size, dtype=np.int32) % 2]
  ]
  state = process.initialize()
  before = process.get_model_weights(state)
  after = process.get_model_weights(process.next(state, cohort).state)
  each = [
    numpy_network(
      c.x, arrays(before.encoder), arrays(before.encoder_state), training=True
    )[1]
    for c in cohort
  ]
  for name, found in after.encoder_state.items():
    expected = 0.25 * each[0][name] + 0.75 * each[1][name]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
