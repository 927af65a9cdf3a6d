"""Keras networks as encoders: values, gradients, statistics, and both runtimes."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tff_xc import classifier, errors, heads
from tff_xc.algorithms import fedavg
from tff_xc.encoders import keras_model
from tff_xc.round import examples, frozen, local_training, process as process_lib

L = tf.keras.layers
RANDOM = np.random.default_rng(0)
SHAPE = (8, 8, 3)
IMAGES = RANDOM.integers(0, 256, [6, *SHAPE], np.uint8)
SEED = np.int32([5, 6])


def network(*more, side=8):
  """Returns a network with BatchNorm whose statistics are not 0 and 1."""
  image = tf.keras.Input((side, side, 3))
  h = L.Rescaling(1 / 255)(image)
  h = L.BatchNormalization()(L.Conv2D(4, 3, use_bias=False)(h))
  h = L.Lambda(lambda t: tf.nn.relu(t) + 0.1)(h)
  for layer in more:
    h = layer(h)
  h = L.GlobalAveragePooling2D()(h)
  model = tf.keras.Model(image, L.Dense(5)(h))
  for v in model.weights:
    v.assign(v + 0.3 * RANDOM.random(v.shape))
  return model


def row(*layers):
  return tf.keras.Sequential([L.Input(SHAPE), *layers])


def weights_of(encoder):
  return dict(encoder.init(SEED)), dict(encoder.init_non_trainable(SEED))


def test_embeddings_gradients_and_statistics_are_those_of_keras():
  model = network()
  encoder = keras_model.build_keras_encoder(model, SHAPE)
  trainable, state = weights_of(encoder)
  assert encoder.embedding_dim == 5
  assert list(trainable) == ['000/kernel', '001/gamma', '002/beta', '005/kernel', '006/bias']
  assert list(state) == ['003/moving_mean', '004/moving_variance']
  assert encoder.last_layer == ('005/kernel', '006/bias')
  x = tf.constant(IMAGES)
  at_test, unchanged = encoder.apply(trainable, state, x, False, None)
  np.testing.assert_allclose(at_test, model(IMAGES), atol=1e-6)
  for name, value in unchanged.items():
    np.testing.assert_array_equal(value, state[name])
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    embeddings, after = encoder.apply(trainable, state, x, True, SEED)
    loss = tf.reduce_sum(embeddings**3)
  found = tape.gradient(loss, trainable)
  with tf.GradientTape() as tape:
    expected = model(IMAGES, training=True)  # This call assigns to the network's statistics.
    loss = tf.reduce_sum(expected**3)
  np.testing.assert_allclose(embeddings, expected, atol=1e-6)
  gradients = tape.gradient(loss, model.trainable_weights)
  for (name, ours), theirs in zip(found.items(), gradients, strict=True):
    scale = np.abs(theirs).max()
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * scale, err_msg=name)
  for (name, ours), theirs in zip(after.items(), model.non_trainable_weights, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=name)
    assert not np.allclose(ours, state[name])


def test_the_weights_given_are_used_and_the_networks_own_stay():
  model = network()
  before = [v.numpy() for v in model.weights]
  encoder = keras_model.build_keras_encoder(model, SHAPE)
  trainable, state = weights_of(encoder)
  other = {name: 2 * value for name, value in trainable.items()}
  found, _ = encoder.apply(other, state, tf.constant(IMAGES), True, SEED)
  for v, value in zip(model.weights, before, strict=True):
    np.testing.assert_array_equal(v, value)
  for v in model.trainable_weights:
    v.assign(2 * v)
  np.testing.assert_allclose(found, model(IMAGES, training=True), atol=1e-5)


def test_random_layers_draw_by_the_seed_and_in_training_only():
  random = [L.RandomFlip('horizontal'), L.Dropout(0.5), L.GaussianNoise(0.5)]
  model = network(*random)
  encoder = keras_model.build_keras_encoder(model, SHAPE)
  weights, x = weights_of(encoder), tf.constant(IMAGES)

  def draw(seed, training=True):
    return encoder.apply(*weights, x, training, tf.constant(seed))[0].numpy()

  np.testing.assert_array_equal(draw([1, 2]), draw([1, 2]))
  assert np.abs(draw([1, 2]) - draw([1, 3])).max() > 1e-3
  np.testing.assert_array_equal(draw([1, 2], False), draw([1, 3], False))
  np.testing.assert_allclose(draw([1, 2], False), model(IMAGES), atol=1e-5)
  # The network has its own random generator again.
  a, b = (model(IMAGES, training=True).numpy() for _ in range(2))
  assert np.abs(a - b).max() > 1e-3


def sampled(function):
  return function(tf.constant([[3]], tf.int64), 1, 4, False, 9)[0]


DRAWS = {
  'uniform': lambda: tf.random.uniform([]),
  'poisson': lambda: tf.random.poisson([], 3.0),
  'sampler': lambda: sampled(tf.random.uniform_candidate_sampler),
  'unigrams': lambda: sampled(tf.random.learned_unigram_candidate_sampler),
  'box': lambda: tf.image.sample_distorted_bounding_box(
    [8, 8, 3], [[[0.0, 0.0, 1.0, 1.0]]], min_object_covered=0.5
  )[0],
  'clock': tf.timestamp,
}


class _Bad(L.Layer):
  """A layer that draws random numbers itself, calls Python, counts, fails, or reads a variable."""

  def __init__(self, kind):
    super().__init__()
    self.kind = kind
    if kind == 'number':
      self.steps = self.add_weight(
        name='steps', dtype='int64', initializer='zeros', trainable=False
      )

    if kind == 'trained':
      self.scale = self.add_weight(name='scale')

  def call(self, x, training=None):
    if self.kind == 'trained':
      return x * self.scale.assign(tf.abs(self.scale))
    if self.kind == 'fails' and training:
      raise KeyError('odd')
    if self.kind in DRAWS:
      return x + tf.cast(tf.reduce_sum(DRAWS[self.kind]()), x.dtype)
    if self.kind == 'python':
      return tf.ensure_shape(tf.py_function(lambda t: t, [x], x.dtype), x.shape)
    if self.kind == 'number' and training:
      self.steps.assign_add(1)
    if self.kind == 'outside':
      with tf.init_scope():
        if not OUTSIDE:
          OUTSIDE.append(tf.Variable(2.0))
      return x * OUTSIDE[0]
    return x


OUTSIDE = []


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: 3, 'returned int'),
    (lambda: tf.keras.Sequential([L.Dense(3)]), 'without an input'),
    (lambda: network(side=9), '--image_size'),
    (lambda: row(L.Conv2D(3, 3)), 'one float32'),
    (lambda: row(L.Flatten()), 'no trainable weights'),
    (lambda: network(L.Conv2D(2, 1, kernel_regularizer='l2')), 'weight_decay'),
    *((lambda d=d: network(_Bad(d)), 'random layers') for d in DRAWS),
    (lambda: network(_Bad('python')), 'calls Python'),
    (lambda: network(_Bad('outside')), 'its weights.*bad'),
    (lambda: network(_Bad('number')), 'private__bad'),
    (lambda: network(_Bad('trained')), 'private__bad'),
    (lambda: network(_Bad('fails')), "'private__bad.*odd"),
    (lambda: network(L.SpectralNormalization(L.Conv2D(2, 1))), "'spectral_"),
    (lambda: network(L.Conv2D(2, 1, dtype='float64')), 'float64'),
  ],
)
def test_what_cannot_be_an_encoder_is_refused(make, message):
  with pytest.raises(errors.InputError, match=message):
    keras_model.build_keras_encoder(make(), SHAPE, 'a:b')


def test_complex_examples_are_refused():
  with pytest.raises(errors.InputError, match='complex64'):
    keras_model.build_keras_encoder(numbers(), tf.TensorSpec([12], tf.complex64))


class _Branching(L.Layer):
  """A layer with Python's `if` and `while` on tensors, and a dtype as positional argument."""

  def call(self, x, training=None):
    i = tf.constant(0)
    # TensorFlow marks this op as stateful.
    tf.debugging.Assert(tf.size(x) > 0, [x])
    while i < 3:
      x, i = x + 0.1, i + 1
    if tf.reduce_mean(x) > 0:
      x = 2.0 * x
    return x


def numbers(*layers):
  return tf.keras.Sequential([L.Input([12]), *layers, L.Dense(5)])


@pytest.mark.parametrize(
  ('make', 'x'),
  [
    (lambda: network(_Branching(), L.RandomCrop(2, 2)), IMAGES),
    (lambda: network(L.RandomRotation(0.2)), IMAGES / np.float32(255)),
    (lambda: network(L.RandomZoom(0.5)), IMAGES / np.float64(255)),
    (lambda: row(L.Flatten(), L.Dropout(0.5), L.Dense(5)), IMAGES.astype(np.int16)),
    (
      lambda: numbers(L.BatchNormalization(), L.GaussianNoise(0.5)),
      RANDOM.normal(size=[6, 12]).astype(np.float32),
    ),
    (
      lambda: numbers(L.Embedding(9, 4), L.LSTM(4, dropout=0.5)),
      np.arange(72, dtype=np.int32).reshape(6, 12) % 9,
    ),
    (
      lambda: tf.keras.Sequential(
        [L.Input([12, 1]), L.Conv1D(4, 3), L.Flatten(), L.Dropout(0.5), L.Dense(5)]
      ),
      RANDOM.random([6, 12]) > 0.5,
    ),
  ],
)
def test_examples_of_any_shape_and_type(make, x):
  model, spec = make(), tf.TensorSpec(x.shape[1:], x.dtype)
  encoder = keras_model.build_keras_encoder(model, spec)
  assert encoder.example_spec == spec
  weights = weights_of(encoder)
  apply = tf.function(encoder.apply, autograph=False)
  at_test, _ = apply(*weights, tf.constant(x), False, SEED)
  shape = [-1, *model.input_shape[1:]]
  expected = model(x.astype(np.float32).reshape(shape), training=False)
  np.testing.assert_allclose(at_test, expected, atol=1e-5)
  a, again, b = (
    apply(*weights, tf.constant(x), True, tf.constant(seed))[0].numpy()
    for seed in ([1, 2], [1, 2], [5, 3])
  )
  np.testing.assert_array_equal(a, again)
  assert np.abs(a - b).max() > 1e-6


@pytest.mark.slow
def test_a_nested_network_and_a_recurrent_one():
  inner = network()
  rows = row(L.Lambda(lambda t: tf.reshape(t, [-1, 8, 24]) / 255), L.GRU(4, dropout=0.2))
  image = tf.keras.Input(SHAPE)
  joined = L.Concatenate()([inner(image), rows(image)])
  for end, last in ((L.Dense(3), ('kernel', 'bias')), (L.Activation('tanh'), ())):
    model = tf.keras.Model(image, end(joined))
    encoder = keras_model.build_keras_encoder(model, SHAPE)
    trainable, state = weights_of(encoder)
    found, _ = encoder.apply(trainable, state, IMAGES, False, None)
    np.testing.assert_allclose(found, model(IMAGES), atol=1e-5)
    assert tuple(n[4:] for n in encoder.last_layer) == last
    with tf.GradientTape() as tape:
      tape.watch(trainable)
      found, _ = encoder.apply(trainable, state, IMAGES, True, SEED)
      loss = tf.reduce_sum(found**2)
    for name, gradient in tape.gradient(loss, trainable).items():
      assert np.any(np.asarray(gradient) != 0), name


def test_the_last_layer_is_found_behind_an_activation_that_is_used_twice():
  image, relu = tf.keras.Input(SHAPE), L.ReLU()
  first = relu(L.Dense(9, name='first')(L.Flatten()(image)))
  model = tf.keras.Model(image, relu(L.Dense(5, name='last')(first)))
  # The network may also end in operations of its last layer with itself or with a constant.
  unit = tf.keras.Model(image, 10.0 * model.output / tf.norm(model.output, axis=1, keepdims=True))
  several = tf.keras.Model(image, model.output + L.Dense(5)(L.Flatten()(image)))
  assert keras_model.build_keras_encoder(several, SHAPE).last_layer == ()
  for each in (model, unit):
    encoder = keras_model.build_keras_encoder(each, SHAPE)
    last = [encoder.init(SEED)[name].shape.as_list() for name in encoder.last_layer]
    assert last == [[9, 5], [5]]


def cohort():
  return [
    examples.ClientExamples(IMAGES[:size], labels, np.int64(client), labels)
    for client, size in enumerate((5, 3))
    for labels in [np.arange(size, dtype=np.int32)]
  ]


def run(train: str):
  """Returns the weights before and after two rounds of FedAvg."""
  encoder = keras_model.build_keras_encoder(network_of_runs(), SHAPE)
  model = classifier.EmbeddingClassifier(encoder, heads.CosineHead(4.0), 6)
  algorithm = fedavg.FedAvg.made(
    model=model, local_training=local_training.LocalTraining(0.1, 2, 2)
  )
  process = process_lib.build_process(frozen.train_only(algorithm, train))
  before = process.get_model_weights(process.initialize())
  return before, tiny.weights_after(process, 2, lambda _: cohort())


def network_of_runs():
  tf.keras.utils.set_random_seed(3)
  outside = tf.range(3.0) / 8  # A tensor outside of the layers, like that of Keras's Normalization.
  return row(
    L.Rescaling(1 / 255),
    L.Lambda(lambda t: t - outside),
    L.Conv2D(3, 3),
    L.BatchNormalization(momentum=0.5),
    L.Dropout(0.3),
    L.Flatten(),
    L.Dense(4),
  )


@pytest.mark.slow
@pytest.mark.parametrize('train', ['all', 'bottleneck'])
def test_both_runtimes_train_it_alike(train, in_process_context, tff_worker):
  found = []
  for context in (in_process_context, tff_worker):
    tff.framework.set_default_context(context)
    try:
      found.append(run(train))
    finally:
      tff.framework.set_default_context(tff_worker)
  (before, ours), (_, theirs) = found
  tiny.assert_same_weights(ours, theirs, 1e-4)
  parts = collections.ChainMap(dict(ours.encoder), dict(ours.encoder_state))
  at_first = collections.ChainMap(dict(before.encoder), dict(before.encoder_state))
  moved = {n[4:] for n in parts if not np.allclose(parts[n], at_first[n])}
  kinds = {'kernel', 'bias'}
  if train == 'all':
    kinds |= {'gamma', 'beta', 'moving_mean', 'moving_variance'}
  assert moved == kinds
