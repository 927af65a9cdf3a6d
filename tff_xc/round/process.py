"""The one place where a round is composed from its four answers."""

import collections
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import client_work as client_work_lib
from tff_xc.round import merge
from tff_xc.round import objective as objective_lib
from tff_xc.round import randomness
from tff_xc.round import request as request_lib
from tff_xc.round import server as server_lib


class RoundState(NamedTuple):
  """The server's state between rounds.

  Attributes:
    weights: the global model, but that rows of its class table may lack some
      movement, which `LearningProcess.get_model_weights` adds.
    server: states of the server's optimizers.
    aggregator: state of the encoder's aggregator.
    round_number: int32, rounds done.
    seed: int32 [2], the run's; all randomness derives from it.
  """

  weights: classifier.ModelWeights
  server: server_lib.ServerState
  aggregator: Any
  round_number: tf.Tensor
  seed: tf.Tensor


class ClientExamples(NamedTuple):
  """A client's value in a round.

  Attributes:
    x: [n_k, ...], examples as stored; the encoder decodes them.
    y: int32 [n_k], labels in [0, n).
    client_id: int64 scalar, stable over rounds; its randomness derives from it.
  """

  x: tf.Tensor
  y: tf.Tensor
  client_id: tf.Tensor


def client_type(model: classifier.EmbeddingClassifier) -> tff.Type:
  """Returns the type of a client's value for this model."""
  spec = model.encoder.example_spec
  return tff.to_type(
    ClientExamples(
      tff.TensorType(spec.dtype.as_numpy_dtype, [None, *spec.shape]),
      tff.TensorType(np.int32, [None]),
      tff.TensorType(np.int64),
    )
  )


def build_process(
  *,
  model: classifier.EmbeddingClassifier,
  request: request_lib.AllClasses | request_lib.OwnAndSampled,
  objective: objective_lib.Objective,
  local_training: client_work_lib.LocalTraining,
  server: server_lib.Server,
  row_merge: merge.AddRows | None = None,
  model_aggregator: tff.aggregators.AggregationFactory | None = None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Composes a round into a learning process.

  One call of `next`: every client derives its class ids from its labels and
  (seed, round, client), receives the encoder and the rows of these ids (by
  `tff.federated_select`, one key a class, or by broadcast where all rows are
  requested), trains, and returns deltas; the encoder's are joined by
  `model_aggregator`, the rows' by id; the server steps.

  Args:
    model: the embedding classifier.
    request: question 1.
    objective: question 2.
    local_training: how the objective is minimised.
    server: question 4.
    row_merge: question 3 for the rows. Default: `merge.AddRows()`.
    model_aggregator: question 3 for the encoder: any `tff.aggregators` factory,
      weighted by examples where it takes weights. Default: the weighted mean.
    seed: of the initial weights and everything random in the rounds.

  Returns:
    A process whose `next` takes `ClientExamples` at clients and whose metrics
    are an ordered dictionary of float32 scalars (see `_measured`).
  """
  specs = model.weight_specs()
  row_merge = row_merge or merge.AddRows()
  aggregate = _Aggregate(model_aggregator, specs)
  initialize = _build_initialize(model, server, aggregate, specs, seed)
  state_type = initialize.type_signature.result.member
  receive_rows = _build_receive_rows(
    request, server.table_optimizer, state_type
  )
  merge_rows = row_merge.build(model.row_dim, request.selects)
  client_update = client_work_lib.build_client_update(
    model, objective, local_training
  )

  @tff.tensorflow.computation
  def request_classes(labels, client_id, seed):
    return request.held_classes(
      labels,
      randomness.client_seed(seed, client_id, randomness.Purpose.NEGATIVES),
    )

  @tff.tensorflow.computation
  def train(encoder, encoder_state, rows, held, examples, seed):
    weights = classifier.ModelWeights(
      encoder, encoder_state, _as_tensor(rows, request.slots)
    )
    return client_update(
      weights, held, examples.x, examples.y, seed, examples.client_id
    )

  @tff.tensorflow.computation
  def server_step(state, weights, encoder_delta, merged, total_weight):
    row_delta = row_merge.delta(merged, total_weight)
    return server.next(
      state, weights, encoder_delta, row_delta, merged, total_weight
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(client_type(model), tff.CLIENTS),
  )
  def next_fn(state, examples):
    weights = state.weights
    seed = tff.federated_broadcast(
      tff.federated_map(_round_seed, (state.seed, state.round_number))
    )
    held = tff.federated_map(
      request_classes, (examples.y, examples.client_id, seed)
    )
    update = tff.federated_map(
      train,
      (
        tff.federated_broadcast(weights.encoder),
        tff.federated_broadcast(weights.encoder_state),
        receive_rows(state.server.table, weights.class_table, held),
        held,
        examples,
        seed,
      ),
    )
    merged = aggregate(state.aggregator, update.encoder_delta, update.weight)
    stepped = tff.federated_map(
      server_step,
      (
        state.server,
        weights,
        merged.result,
        merge_rows(held, update),
        tff.federated_sum(update.weight),
      ),
    )
    new_state = RoundState(
      weights=stepped[1],
      server=stepped[0],
      aggregator=merged.state,
      round_number=tff.federated_map(_following, state.round_number),
      seed=state.seed,
    )
    measured = tff.federated_map(
      _measured,
      (
        tff.federated_sum(update.measured),
        tff.federated_max(update.measured['rows']),
      ),
    )
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_zip(new_state), measured
    )

  get_weights, set_weights = _build_weights_access(
    server.table_optimizer, state_type
  )
  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_weights, set_weights
  )


class _Aggregate:
  """Joins the encoder's deltas by any `tff.aggregators` factory."""

  def __init__(self, factory, specs: classifier.ModelWeights):
    if factory is None:
      factory = tff.aggregators.MeanFactory(no_nan_division=True)
    value_type = tff.types.tensorflow_to_type(
      classifier.merged(specs.encoder, specs.encoder_state)
    )
    self._weighted = isinstance(
      factory, tff.aggregators.WeightedAggregationFactory
    )
    extra = [tff.TensorType(np.float32)] if self._weighted else []
    self._process = factory.create(value_type, *extra)

  @property
  def initialize(self):
    return self._process.initialize

  def __call__(self, state, delta, weight):
    extra = [weight] if self._weighted else []
    return self._process.next(state, delta, *extra)


def _build_initialize(model, server, aggregate, specs, seed: int):
  """Returns the computation ( -> RoundState@SERVER)."""
  pair = [seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF]

  @tff.tensorflow.computation
  def initial():
    run_seed = tf.constant(pair, tf.int32)
    return (
      model.init(run_seed),
      server.initialize(specs),
      tf.constant(0, tf.int32),
      run_seed,
    )

  @tff.federated_computation
  def initialize():
    weights, server_state, round_number, run_seed = tff.federated_eval(
      initial, tff.SERVER
    )
    return tff.federated_zip(
      RoundState(
        weights,
        server_state,
        aggregate.initialize(),
        round_number,
        run_seed,
      )
    )

  return initialize


def _build_receive_rows(request, optimizer, state_type):
  """Returns (table_state, table)@SERVER, held@CLIENTS -> rows@CLIENTS."""
  # What rows are read from: the table, with the optimizer's state if need be.
  lazy = optimizer.reads_state
  table_type = state_type.weights.class_table
  source_type = (
    tff.to_type((state_type.server.table, table_type)) if lazy else table_type
  )
  parts = lambda source: source if lazy else ((), source)

  @tff.tensorflow.computation(source_type, np.int32)
  def select_row(source, class_id):
    return optimizer.read(*parts(source), class_id)

  @tff.tensorflow.computation(source_type)
  def read_all(source):
    return optimizer.read_all(*parts(source))

  def receive_rows(table_state, table, held):
    source = tff.federated_zip((table_state, table)) if lazy else table
    if request.selects:
      max_key = tff.federated_value(request.num_classes, tff.SERVER)
      return tff.federated_select(held.ids, max_key, source, select_row)
    if lazy:
      source = tff.federated_map(read_all, source)
    return tff.federated_broadcast(source)

  return receive_rows


def _build_weights_access(optimizer, state_type):
  """Returns the computations (state -> weights), (state, weights -> state)."""

  @tff.tensorflow.computation(state_type)
  def get_weights(state):
    table = optimizer.read_all(state.server.table, state.weights.class_table)
    return state.weights._replace(class_table=table)

  @tff.tensorflow.computation(state_type, get_weights.type_signature.result)
  def set_weights(state, weights):
    # What the old rows still lack is not to move the new ones.
    table_state, _ = optimizer.settle(
      state.server.table, state.weights.class_table
    )
    return state._replace(
      weights=weights, server=state.server._replace(table=table_state)
    )

  return get_weights, set_weights


def _as_tensor(rows, slots: int) -> tf.Tensor:
  """Returns the rows [slots, row_dim] of a select (a sequence) or broadcast."""
  if isinstance(rows, tf.data.Dataset):
    rows = rows.batch(slots).get_single_element()
  return tf.ensure_shape(rows, [slots, rows.shape[-1]])


@tff.tensorflow.computation(tff.TensorType(np.int32, [2]), np.int32)
def _round_seed(seed, round_number):
  return randomness.round_seed(seed, round_number)


@tff.tensorflow.computation(np.int32)
def _following(round_number):
  return round_number + 1


@tff.tensorflow.computation
def _measured(sums, largest):
  """Turns a cohort's sums into the metrics of a round.

  loss: mean over examples of the objective during local training.
  accuracy: fraction of examples whose best logit among the rows held, at the
    step that trained on them, was the target's.
  class_rows, class_rows_largest: mean and largest number of rows that a client
    requested.
  examples, clients, clients_dropped: counts; a dropped client's update was not
    finite.
  """
  over_examples = lambda name: tf.math.divide_no_nan(
    sums[name], sums['examples']
  )
  return collections.OrderedDict(
    loss=over_examples('loss'),
    accuracy=over_examples('correct'),
    class_rows=tf.math.divide_no_nan(sums['rows'], sums['clients']),
    class_rows_largest=largest,
    examples=sums['examples'],
    clients=sums['clients'],
    clients_dropped=sums['dropped'],
  )
