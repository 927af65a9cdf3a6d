"""The networks of LEAF, and BatchNorm and LSTM as in PyTorch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import numpy_fedaws
from tff_xc import classifier, errors, heads
from tff_xc.algorithms import fedavg
from tff_xc.encoders import conv, leaf, plain_cnn, resnet
from tff_xc.round import examples, local_training

RANDOM = np.random.default_rng(0)
SEED, NO_SEED = tf.constant([0, 1]), tf.constant([0, 0])


@pytest.mark.parametrize(
  ('encoder', 'classes', 'parameters', 'statistics'),
  [
    (leaf.build_femnist_encoder, 62, 6_603_710, 0),
    (leaf.build_celeba_encoder, 2, 30_498, 256),
    (leaf.build_shakespeare_encoder, 80, 819_920, 0),
    (plain_cnn.build_cifar_encoder, 10, 1_756_426, 0),
  ],
)
def test_they_have_the_published_numbers_of_parameters(encoder, classes, parameters, statistics):
  model = classifier.EmbeddingClassifier(encoder(), heads.LinearHead(), classes)
  specs = model.weight_specs()

  def count(part):
    return sum(s.shape.num_elements() for s in tf.nest.flatten(part))

  assert count(specs.encoder_state) == statistics
  assert count(specs) - statistics == parameters


@pytest.mark.parametrize(
  ('encoder', 'fan_in'),
  [
    (leaf.build_femnist_encoder, {'conv0': 25, 'conv1': 800, 'dense': 3136}),
    (leaf.build_celeba_encoder, {'conv0': 27, **dict.fromkeys(('conv1', 'conv2', 'conv3'), 288)}),
    # The range depends on the length of the state, also for the kernel of 8 inputs.
    (leaf.build_shakespeare_encoder, {'lstm0': 256, 'lstm1': 256}),
  ],
)
def test_the_initial_weights_are_pytorchs(encoder, fan_in):
  drawn = {
    name: w.numpy() for name, w in encoder().init(SEED).items() if name.partition('/')[0] in fan_in
  }
  for name, w in drawn.items():
    bound = fan_in[name.partition('/')[0]] ** -0.5
    assert 0.9 * bound < np.abs(w).max() <= bound, name
    assert np.std(w) == pytest.approx(bound / 3**0.5, rel=0.2), name
  assert len({float(w.ravel()[0]) for w in drawn.values()}) == len(drawn) >= 6


@pytest.mark.parametrize(
  ('encoder', 'image'),
  [
    (leaf.build_femnist_encoder(embedding_dim=8), True),
    (leaf.build_celeba_encoder(side=16), True),
    (leaf.build_shakespeare_encoder(window=5, hidden_dim=4), False),
    (conv.build_conv_encoder(), True),
    (resnet.build_resnet_encoder(image_size=16), True),
    (plain_cnn.build_cifar_encoder(), True),
  ],
)
def test_every_weight_gets_a_gradient(encoder, image):
  spec, weights = encoder.example_spec, encoder.init(SEED)
  initial = encoder.init_non_trainable(SEED)
  x = RANDOM.integers(0, 256 if image else 80, [4, *spec.shape])
  if spec.dtype == tf.float32:
    x = x / 255
  with tf.GradientTape() as tape:
    tape.watch(weights)
    x = tf.constant(x, spec.dtype)
    # In CelebA's training mode, subtracting the batch's mean removes a convolution's bias.
    training = not initial
    embeddings, state = encoder.apply(weights, initial, x, training, NO_SEED)
    loss = tf.reduce_sum(embeddings**2)
  assert list(state) == list(initial)
  for name, gradient in tape.gradient(loss, weights).items():
    gradient = tf.convert_to_tensor(gradient).numpy()
    assert np.isfinite(gradient).all() and np.any(gradient != 0), name


def images(count: int, side: int) -> np.ndarray:
  return RANDOM.integers(0, 256, [count, side, side, 3]).astype(np.uint8)


def as_arrays(weights) -> dict[str, np.ndarray]:
  return {name: np.asarray(w, np.float64) for name, w in weights.items()}


def numpy_block(h, weights, statistics, i: int, training: bool):
  """Computes a block. Returns (activations, the new running mean, the new running variance).

  BatchNorm follows the documentation of `torch.nn.BatchNorm2d`. Epsilon is 1e-5. Training
  normalizes by the biased variance of the batch, and the running statistics move to the unbiased
  variance with momentum 0.1.
  """
  kernel = weights[f'conv{i}/kernel']
  side = h.shape[1]
  padded = np.pad(h, [[0, 0], [1, 1], [1, 1], [0, 0]])
  out = weights[f'conv{i}/bias'] + sum(
    padded[:, a : a + side, b : b + side] @ kernel[a, b] for a in range(3) for b in range(3)
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
  quarters = out[:, : 2 * half, : 2 * half].reshape(len(out), half, 2, half, 2, -1)
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
def test_the_celeba_network_is_the_papers_in_numpy(side, left):
  encoder = leaf.build_celeba_encoder(side=side)
  weights = encoder.init(SEED)
  for i in range(4):  # Replace the initial ones and zeros, because they would hide errors.
    for name, around in (('scale', 1.0), ('offset', 0.0)):
      drawn = around + 0.2 * RANDOM.normal(size=32)
      weights[f'norm{i}/{name}'] = tf.constant(drawn, tf.float32)
  state = encoder.init_non_trainable(SEED)
  x = images(3, side)
  for training in (True, True, False):
    embeddings, after = encoder.apply(weights, state, tf.constant(x), training=training, seed=None)
    expected, expected_after = numpy_network(x, as_arrays(weights), as_arrays(state), training)
    assert embeddings.shape == (3, 32 * left**2) == (3, encoder.embedding_dim)
    np.testing.assert_allclose(embeddings, expected, atol=1e-4)
    assert list(after) == list(state)
    for name, value in after.items():
      np.testing.assert_allclose(value, expected_after[name], atol=1e-5, rtol=1e-5)
    state = after
  with pytest.raises(errors.InputError, match=r'15 pixels.* at least 16'):
    leaf.build_celeba_encoder(side=15)


@pytest.mark.slow
def test_the_server_takes_the_weighted_mean_of_the_statistics(in_process):
  encoder = leaf.build_celeba_encoder(side=16)
  process = fedavg.build_fedavg(
    model=classifier.EmbeddingClassifier(encoder, heads.LinearHead(), 2),
    # Each client does one step, so that both start from the initial weights.
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
    encoder.apply(before.encoder, before.encoder_state, tf.constant(c.x), True, None)[1]
    for c in cohort
  ]
  for name, found in after.encoder_state.items():
    expected = 0.25 * each[0][name] + 0.75 * each[1][name]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


def test_the_shakespeare_network_is_the_papers_in_numpy():
  encoder = leaf.build_shakespeare_encoder(window=6, hidden_dim=5)
  weights = {k: w.numpy() for k, w in encoder.init(SEED).items()}
  x = RANDOM.integers(0, 80, [3, 6]).astype(np.uint8)
  h = weights['characters'][x].transpose(1, 0, 2)
  for layer in ('lstm0', 'lstm1'):

    def of(name, layer=layer):
      return weights[f'{layer}/{name}']

    inputs = h @ of('kernel').T + of('bias') + of('recurrent_bias')
    h = hidden_states(inputs, of('recurrent'))
  embeddings, state = encoder.apply(weights, {}, tf.constant(x), training=True, seed=None)
  np.testing.assert_allclose(embeddings, h[-1], atol=1e-6)
  assert state == {}


def draw(*shape) -> np.ndarray:
  return RANDOM.normal(size=shape).astype(np.float32)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def hidden_states(inputs, recurrent) -> np.ndarray:
  """Returns the hidden states float64 [T, B, H] by PyTorch's formulas.

  The rows of the weights of `torch.nn.LSTM` have the order i, f, g, o.
  """
  h = c = np.zeros([inputs.shape[1], recurrent.shape[1]])
  states = []
  for of_step in np.asarray(inputs, np.float64):
    i, f, g, o = np.split(of_step + h @ recurrent.T, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    states.append(h)
  return np.stack(states)


@pytest.mark.parametrize('steps', [1, 2, 6])
def test_states_and_gradients_equal_numpys(steps):
  inputs, recurrent = draw(steps, 2, 12), draw(12, 3)
  upstream = draw(steps, 2, 3)  # All states have a gradient, not only the last state.
  given = tf.constant(inputs), tf.constant(recurrent)
  with tf.GradientTape() as tape:
    tape.watch(given)
    states = leaf.lstm(*given)
    loss = tf.reduce_sum(states * upstream)
  np.testing.assert_allclose(states, hidden_states(inputs, recurrent), atol=1e-6)
  of_inputs, of_recurrent = tape.gradient(loss, given)
  np.testing.assert_allclose(
    of_inputs,
    numpy_fedaws.numeric_gradient(
      lambda x: np.sum(hidden_states(x, recurrent) * upstream), np.float64(inputs), 1e-5
    ),
    atol=1e-5,
  )
  np.testing.assert_allclose(
    of_recurrent,
    numpy_fedaws.numeric_gradient(
      lambda r: np.sum(hidden_states(inputs, r) * upstream), np.float64(recurrent), 1e-5
    ),
    atol=1e-5,
  )
