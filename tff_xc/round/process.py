"""Composes a round from the answers to its four questions."""

import collections
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.round import encoder_mean
from tff_xc.round import exchange
from tff_xc.round import features
from tff_xc.round import local_training as client_work_lib
from tff_xc.round import losses as objective_lib
from tff_xc.round import merge
from tff_xc.round import randomness
from tff_xc.round import request as request_lib
from tff_xc.round import server as server_lib


class RoundState(NamedTuple):
  """The server's state between rounds.

  Attributes:
    weights: the global model. Rows that were not requested lately may still
      lack momentum updates; `LearningProcess.get_model_weights` applies them.
    server: states of the server's optimizers.
    aggregator: state of the encoder's aggregator.
    round_number: int32, rounds done.
    seed: int32 [2], the run's seed; all randomness derives from it.
  """

  weights: classifier.ModelWeights
  server: server_lib.ServerState
  aggregator: Any
  round_number: tf.Tensor
  seed: tf.Tensor


class ClientExamples(NamedTuple):
  """A client's value in a round.

  Attributes:
    x: [n_k, ...], stored examples, which the encoder decodes, or sparse ones.
    y: int32 [n_k], labels in [0, n).
    client_id: int64 scalar, stable over rounds; seeds the client's randomness.
    all_y: int32 [m_k], the labels of all of the client's examples. They decide
      which rows it requests. `x` and `y` are the examples that it uses this
      round; `all_y` equals `y` if it uses all.
  """

  x: tf.Tensor | sparse.SparseFeatures
  y: tf.Tensor
  client_id: tf.Tensor
  all_y: tf.Tensor


def client_type(model: classifier.EmbeddingClassifier) -> tff.Type:
  """Returns the type of a client's value for this model."""
  return tff.to_type(
    ClientExamples(
      tff.types.tensorflow_to_type(model.encoder.batch_spec()),
      tff.TensorType(np.int32, [None]),
      tff.TensorType(np.int64),
      tff.TensorType(np.int32, [None]),
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
  weighting: str = 'examples',
  max_features: int = 0,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Composes a round into a learning process.

  In one call of `next`, every client derives its class ids from its labels and
  (seed, round, client). It receives the encoder and the rows of these ids, by
  `tff.federated_select` (one key a class) or, if all rows are requested, by
  broadcast. It trains and returns deltas. `model_aggregator` joins the encoder
  deltas, `row_merge` the row deltas by id. Then the server takes its step.

  Args:
    model: the embedding classifier.
    request: which class rows a client requests (question 1).
    objective: the loss that a client minimises on them (question 2).
    local_training: the SGD that minimises it.
    server: the server's step (question 4).
    row_merge: joins the rows (question 3). Default: `merge.AddRows()`.
    model_aggregator: joins the encoder (question 3): any `tff.aggregators`
      factory, weighted if it takes weights. Default: the weighted mean.
    weighting: a client's weight, one of `client_work.WEIGHTINGS`.
    max_features: for an encoder with a feature table. If positive, a client
      selects and sends only the rows of its own features, of which it has at
      most this many.
    seed: seeds the initial weights and all randomness in the rounds.

  Returns:
    A process whose `next` takes `ClientExamples` at clients and whose metrics
    are an ordered dictionary of float32 scalars (see `_measured`).
  """
  specs = model.weight_specs()
  row_merge = row_merge or merge.AddRows()
  aggregate = encoder_mean.EncoderMean(
    model_aggregator, specs, model.encoder.feature_table
  )
  initialize = _build_initialize(model, server, aggregate, specs, seed)
  state_type = initialize.type_signature.result.member
  encoder = features.WholeEncoder()
  if model.encoder.feature_table:
    encoder = features.EncoderByRows(
      model, max_features, server.feature_optimizer, state_type
    )
  class_rows = exchange.RowExchange(
    request,
    server.table_optimizer,
    row_merge,
    state_type.weights.class_table,
    state_type.server.table,
  )
  client_update = client_work_lib.build_client_update(
    model, objective, local_training, weighting
  )

  @tff.tensorflow.computation
  def request_classes(y, client_id, all_y, seed):
    # A client without examples in this round requests nothing.
    labels = all_y[: tf.where(tf.size(y) > 0, tf.size(all_y), 0)]
    return request.held_classes(
      labels,
      randomness.client_seed(seed, client_id, randomness.Purpose.NEGATIVES),
      client_id,
    )

  @tff.tensorflow.computation
  def train(received, encoder_state, rows, held, examples, seed):
    trainable, x = encoder.unpack(received, examples.x)
    weights = classifier.ModelWeights(
      trainable, encoder_state, exchange.as_tensor(rows, request.slots)
    )
    update = client_update(
      weights, held, x, examples.y, seed, examples.client_id
    )
    return encoder.pack(received, update)

  @tff.tensorflow.computation
  def server_step(state, weights, encoder_delta, sums, total_weight):
    merged = sums[0]
    return server.next(
      state,
      weights,
      encoder_delta,
      row_merge.delta(merged, total_weight),
      merged,
      total_weight,
      encoder.server_update(sums[-1], total_weight),
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
      request_classes,
      (examples.y, examples.client_id, examples.all_y, seed),
    )
    received = encoder.receive(state, examples, seed)
    update = tff.federated_map(
      train,
      (
        received,
        tff.federated_broadcast(weights.encoder_state),
        class_rows.receive(state.server.table, weights.class_table, held),
        held,
        examples,
        seed,
      ),
    )
    merged = aggregate(state.aggregator, update)
    stepped = tff.federated_map(
      server_step,
      (
        state.server,
        weights,
        merged.result,
        tff.federated_zip(
          (
            class_rows.merge(held, update.row_delta, update),
            *encoder.merge(received, update),
          )
        ),
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
        tff.federated_max(update.measured),
      ),
    )
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_zip(new_state), measured
    )

  get_weights, set_weights = _build_weights_access(
    server, encoder.table_name, state_type
  )
  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_weights, set_weights
  )


def _build_initialize(model, server, aggregate, specs, seed: int):
  """Returns the computation ( -> RoundState@SERVER)."""
  pair = [seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF]

  @tff.tensorflow.computation
  def initial():
    run_seed = tf.constant(pair, tf.int32)
    return (
      model.init(run_seed),
      server.initialize(specs, model.encoder.feature_table),
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


def _build_weights_access(server, feature_table: str | None, state_type):
  """Returns the computations (state -> weights), (state, weights -> state)."""

  @tff.tensorflow.computation(state_type)
  def get_weights(state):
    return server.settle(state.server, state.weights, feature_table)[1]

  @tff.tensorflow.computation(state_type, get_weights.type_signature.result)
  def set_weights(state, weights):
    # Pending momentum updates of the old rows must not move the new ones.
    settled, _ = server.settle(state.server, state.weights, feature_table)
    return state._replace(weights=weights, server=settled)

  return get_weights, set_weights


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
  accuracy: fraction of examples whose target had the largest logit among the
    held rows, in the step that trained on them.
  class_rows, class_rows_largest: mean and largest number of rows that a client
    requested.
  examples, clients, clients_dropped: counts. Clients without examples are left
    out; the update of a dropped client was not finite.
  feature_rows, feature_rows_largest: as class_rows, for the feature table, if
    the encoder has one.

  A mean or maximum over no clients is nan.
  """
  over_examples = lambda name: sums[name] / sums['examples']
  over_clients = lambda name: sums[name] / sums['clients']
  of_clients = lambda name: tf.where(
    sums['clients'] > 0, largest[name], float('nan')
  )
  measured = collections.OrderedDict(
    loss=over_examples('loss'),
    accuracy=over_examples('correct'),
    class_rows=over_clients('rows'),
    class_rows_largest=of_clients('rows'),
    examples=sums['examples'],
    clients=sums['clients'],
    clients_dropped=sums['dropped'],
  )
  if 'feature_rows' in sums:
    measured['feature_rows'] = over_clients('feature_rows')
    measured['feature_rows_largest'] = of_clients('feature_rows')
  return measured
