"""A tiny embedding classifier, and client data, for tests of rounds."""

import collections
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tff_xc import classifier, heads
from tff_xc.algorithms import base, registry
from tff_xc.encoders import encoder
from tff_xc.options import privacy
from tff_xc.round import examples as examples_lib, local_training

FEATURES, DIM = 5, 3


def linear_encoder() -> encoder.Encoder:
  """Returns the encoder g(x) = x A + b for examples float32 [5]."""

  def init(seed):
    return collections.OrderedDict(
      kernel=tf.random.stateless_normal([FEATURES, DIM], seed), bias=tf.zeros([DIM])
    )

  def apply(trainable, non_trainable, x, training, seed):
    return x @ trainable['kernel'] + trainable['bias'], non_trainable

  return encoder.Encoder(
    example_spec=tf.TensorSpec([FEATURES], tf.float32),
    embedding_dim=DIM,
    init=init,
    apply=apply,
    last_layer=('bias',),
  )


def without_part(algorithm, name: str):
  """Returns the algorithm without the part of this name, if it has one."""
  kept = tuple(part for part in algorithm.parts if part.name != name)
  return dataclasses.replace(algorithm, parts=kept)


def model(num_classes: int = 12, head=None) -> classifier.EmbeddingClassifier:
  """Returns the classifier. Equal arguments return the same object."""
  return _model(num_classes, head or heads.CosineHead(4.0))


@functools.cache
def _model(num_classes, head):
  return classifier.EmbeddingClassifier(linear_encoder(), head, num_classes)


@functools.cache
def model_with_statistics() -> classifier.EmbeddingClassifier:
  """Returns g(x) = (x - mean) A, where the clients compute a running mean of x."""

  def init(seed):
    kernel = tf.random.stateless_normal([FEATURES, DIM], seed)
    return collections.OrderedDict(kernel=kernel)

  def apply(trainable, non_trainable, x, training, seed):
    mean = non_trainable['mean']
    if training:
      mean = 0.5 * mean + 0.5 * tf.reduce_mean(x, axis=0)
    return ((x - non_trainable['mean']) @ trainable['kernel'], collections.OrderedDict(mean=mean))

  statistics = encoder.Encoder(
    example_spec=tf.TensorSpec([FEATURES], tf.float32),
    embedding_dim=DIM,
    init=init,
    apply=apply,
    init_non_trainable=lambda seed: collections.OrderedDict(mean=tf.zeros([FEATURES])),
  )
  return classifier.EmbeddingClassifier(statistics, heads.CosineHead(4.0), 12)


def cohort(label_lists, seed: int = 0) -> list[examples_lib.ClientExamples]:
  """Makes one client for each list of labels, with random examples."""
  random = np.random.default_rng(seed)

  def client(index, labels):
    x = random.normal(size=[len(labels), FEATURES]).astype(np.float32)
    y = np.asarray(labels, np.int32)
    return examples_lib.ClientExamples(x, y, np.int64(index), y)

  return [client(index, labels) for index, labels in enumerate(label_lists)]


def settings(**changes) -> dict:
  """Returns settings of local training so strong that three rounds have a visible effect."""
  return {'local_training': local_training.LocalTraining(0.1, 4, 2), **changes}


def process(name: str, **changes):
  """Returns the learning process of a registered algorithm on `model()`.

  Tests share the process. For equal arguments, it is built once, and each runtime compiles it once.
  Compiling takes seconds, and a round takes milliseconds.

  Args:
    name: the algorithm's name.
    **changes: arguments of `build_<algorithm>`, such as `max_positives`. The defaults are
      `model` and `settings()`.
  """
  arguments = {'model': model(), **settings(), **changes}
  return _process(name, **dict(sorted(arguments.items())))


@functools.lru_cache(maxsize=32)
def _process(name, **arguments):
  return base.builder(registry.get(name))(**arguments)


def shared_process():
  """Returns the process for tests that need any process, so that only one is built for them."""
  return process('fullsoftmax', largest_loss=True)


def run(learning_process, rounds: int, cohort_of):
  """Returns the state after `rounds` rounds, and the metrics of the last round."""
  state, metrics = learning_process.initialize(), None
  for round_number in range(rounds):
    state, metrics = learning_process.next(state, cohort_of(round_number))
  return state, metrics


def weights_after(learning_process, rounds: int, cohort_of):
  """Returns the global model after `rounds` rounds."""
  state, _ = run(learning_process, rounds, cohort_of)
  return learning_process.get_model_weights(state)


def as_numpy(weights) -> list[np.ndarray]:
  """Returns (kernel, bias, table) of `model()`, float64."""
  return [np.array(w, np.float64) for w in (*weights.encoder.values(), weights.class_table)]


def assert_near(found, expected, tolerance: float = 2e-5) -> None:
  """Checks that arrays are near those of a reference implementation."""
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=tolerance)


def assert_same_weights(a, b, tolerance: float) -> None:
  for left, right in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
    np.testing.assert_allclose(left, right, atol=tolerance, rtol=tolerance)


def hidden(noise, clip, cohort, quantile=0.0, *, kind='central', secret=False, **more):
  """Returns differential privacy with noise z, norm C and m clients; see `privacy.Privacy`."""
  return privacy.Privacy(
    dp=kind,
    dp_noise_multiplier=noise,
    dp_clip=clip,
    clients_per_round=float(cohort),
    dp_clip_quantile=quantile,
    dp_noise_seed='secret' if secret else 'public',
    **more,
  )
