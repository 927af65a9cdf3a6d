"""Learning processes as contenders, on any runtime. Imports TensorFlow."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs
from tff_xc import classifier
from tff_xc import heads
from tff_xc.algorithms import fedss
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import examples as examples_lib
from tff_xc.round import local_training
from tff_xc.round import optimizers
from tff_xc.runtime import registry


class LearningRounds:
  """Runs rounds of a learning process, always with the same cohort."""

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    state: Any,
    cohort: Sequence[Any],
    check: Callable[[Any, Any], Mapping[str, float]],
  ):
    """Keeps the arguments.

    Args:
      process: the learning process.
      state: the state before the first round.
      cohort: the clients' values, the same in every round.
      check: (state, metrics) after the first round -> the numbers to compare.
    """
    self._process = process
    self._state = state
    self._cohort = cohort
    self._check = check
    self._report = {}

  def run(self) -> None:
    # As in `tff_xc.experiment.loop`: the old state is not needed again, so the
    # runtime may update it in place.
    self._state = registry.donate(self._state)
    self._state, self._metrics = self._process.next(self._state, self._cohort)
    _materialise((self._state, self._metrics))

  def report(self) -> dict:
    if not self._report:
      self._report = {'check': dict(self._check(self._state, self._metrics))}
    return self._report


def _materialise(structure) -> None:
  """Waits for every result; eager tensors on a CPU are complete already."""
  for leaf in tf.nest.flatten(structure):
    if isinstance(leaf, tf.Tensor) and leaf.shape.rank == 0:
      leaf.numpy()


def as_clients(clients: Sequence[arrays.Client]):
  """Returns the clients as a cohort of `process.build_process`."""
  return [
    examples_lib.ClientExamples(c.x, c.y, np.int64(i), c.y)
    for i, c in enumerate(clients)
  ]


def fullsoftmax_rounds(
  encoder: encoder_lib.Encoder,
  weights: Mapping[str, np.ndarray],
  clients: Sequence[arrays.Client],
  batch_size: int,
  learning_rate: float,
  shuffle: bool = True,
) -> LearningRounds:
  """Returns this package's FedAvg, started from the given weights.

  Args:
    encoder: the encoder.
    weights: the encoder's weights by name, 'class/kernel' [d, n] and
      'class/bias' [n].
    clients: the cohort.
    batch_size: of the clients' SGD, one epoch.
    learning_rate: of the clients' SGD; the server's is 1, without momentum.
    shuffle: whether the clients visit their examples in random order.
  """
  process = fedss.build_fullsoftmax(
    model=_model(encoder, weights),
    local_training=local_training.LocalTraining(
      learning_rate, batch_size, epochs=1, shuffle=shuffle
    ),
    encoder_optimizer=optimizers.build_sgd(1.0),
    table_optimizer=optimizers.build_sgd(1.0),
  )
  return _rounds_from(weights, process, clients)


def fedss_rounds(
  encoder: encoder_lib.Encoder,
  weights: Mapping[str, np.ndarray],
  clients: Sequence[arrays.Client],
  batch_size: int,
  learning_rate: float,
  max_positives: int,
  negatives: int,
) -> LearningRounds:
  """Returns FedSS, started from the given weights.

  Args:
    encoder: as of `fullsoftmax_rounds`, like the next four.
    weights: see above.
    clients: see above.
    batch_size: see above.
    learning_rate: see above.
    max_positives: the largest number of classes of a client.
    negatives: rows that a client samples.
  """
  process = fedss.build_fedss(
    model=_model(encoder, weights),
    max_positives=max_positives,
    negatives=negatives,
    local_training=local_training.LocalTraining(learning_rate, batch_size, 1),
    encoder_optimizer=optimizers.build_sgd(1.0),
    table_optimizer=optimizers.RowMomentum(1.0),
  )
  return _rounds_from(weights, process, clients)


def _model(encoder, weights) -> classifier.EmbeddingClassifier:
  return classifier.EmbeddingClassifier(
    encoder, heads.LinearHead(bias=True), weights['class/bias'].size
  )


def _rounds_from(weights, process, clients) -> LearningRounds:
  """Returns rounds of a process of this package that starts at `weights`."""
  state = process.initialize()
  initial = process.get_model_weights(state)
  of_encoder = arrays.of_encoder(weights)
  start = classifier.ModelWeights(
    type(initial.encoder)((name, of_encoder[name]) for name in initial.encoder),
    initial.encoder_state,
    collections.OrderedDict([(classifier.CLASS, arrays.class_table(weights))]),
  )
  expected, given = tf.nest.flatten(initial), tf.nest.flatten(start)
  if [w.shape for w in expected] != [w.shape for w in given]:
    raise ValueError('the weights given are not the shapes of the model')

  def check(state, metrics):
    after = tf.nest.flatten(process.get_model_weights(state))
    norm = inputs.distance(after, tf.nest.flatten(start))
    return {'loss': float(metrics['loss']), 'update_norm': norm}

  return LearningRounds(
    process,
    process.set_model_weights(state, start),
    as_clients(clients),
    check,
  )


def tff_fedavg_rounds(
  build_keras: Callable[[], tf.keras.Model],
  weights: Mapping[str, np.ndarray],
  clients: Sequence[arrays.Client],
  batch_size: int,
  learning_rate: float,
) -> LearningRounds:
  """Returns TFF's own weighted federated averaging of a Keras model.

  Args:
    build_keras: builds the model; its weights have the order of `weights`.
    weights: the initial weights.
    clients: the cohort.
    batch_size: of the clients' SGD, one epoch.
    learning_rate: of the clients' SGD; the server's is 1, without momentum.
  """
  spec = (
    tf.TensorSpec([None, 28, 28], tf.float32),
    tf.TensorSpec([None], tf.int32),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      build_keras(),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(learning_rate),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
  )
  start = list(weights.values())
  state = process.set_model_weights(
    process.initialize(), tff.learning.models.ModelWeights(start, [])
  )
  cohort = [
    tf.data.Dataset.from_tensor_slices((c.x, c.y))
    .shuffle(len(c.y), seed=0)
    .batch(batch_size)
    for c in clients
  ]

  def check(state, metrics):
    after = list(state.global_model_weights.trainable)
    if arrays.count(weights) != sum(np.size(w) for w in after):
      raise ValueError('TFF does not train all parameters')
    return {
      'loss': float(metrics['client_work']['train']['loss']),
      'update_norm': inputs.distance(after, start),
    }

  return LearningRounds(process, state, cohort, check)
