"""Composes a round from an algorithm's answers to its four questions."""

import collections
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import client_states
from tff_xc.round import computations
from tff_xc.round import encoder_mean
from tff_xc.round import examples as examples_lib
from tff_xc.round import exchange
from tff_xc.round import frozen
from tff_xc.round import importance
from tff_xc.round import metrics
from tff_xc.round import randomness
from tff_xc.round import robust


class RoundState(NamedTuple):
  """The server's state between rounds.

  Attributes:
    weights: the global model. Rows that were not requested lately may still
      lack momentum updates; `LearningProcess.get_model_weights` applies them.
    server: states of the server's optimizers and steps.
    aggregator: state of the encoder's aggregator; `robust.State` with bounds.
    round_number: int32, rounds done.
    seed: int32 [2], the run's seed; all randomness derives from it.
  """

  weights: classifier.ModelWeights
  server: computations.ServerState
  aggregator: Any
  round_number: tf.Tensor
  seed: tf.Tensor


def build_process(
  algorithm: algorithm_lib.Algorithm, seed: int = 0
) -> tff.learning.templates.LearningProcess:
  """Composes an algorithm's rounds into a learning process.

  In one call of `next`, every client derives the rows that it requests from its
  examples and (seed, round, client). It receives the encoder and these rows, by
  `tff.federated_select` (one key a row) or, if all rows are requested, by
  broadcast. It trains and returns deltas and rows. The aggregator joins the
  encoder deltas, and each table's merge its rows. Then the server takes its
  steps.

  Args:
    algorithm: the answers.
    seed: seeds the initial weights and all randomness in the rounds.

  Returns:
    A process whose `next` takes `ClientExamples` at clients. Its metrics are an
    ordered dictionary of float32 scalars (see `metrics.of_round`). With client
    state, 'client_states' are the participants' ids, int64
    [K], and states, [K, ...] each: the caller keeps them, and gives them back
    as `ClientExamples.state`.
  """
  pair = [seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF]
  fixed = frozen.Fixed(algorithm, pair)
  aggregate = encoder_mean.EncoderMean(
    algorithm.model_aggregator,
    fixed.trained_specs(),
    [table.name for table in algorithm.tables if table.merge.sends_rows],
  )
  initialize = _build_initialize(algorithm, aggregate, fixed, pair)
  state_type = initialize.type_signature.result.member
  next_fn = _build_next(algorithm, aggregate, fixed, state_type)
  get_weights, set_weights = _build_weights_access(algorithm, fixed, state_type)
  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_weights, set_weights
  )


def _build_next(algorithm, aggregate, fixed, state_type) -> tff.Computation:
  """Returns the computation (RoundState@SERVER, examples@CLIENTS) -> output."""
  limits = robust.Limits(algorithm.robust)
  exchanges = exchange.Exchanges(
    algorithm.tables, state_type, importance.beside_rows(algorithm)
  )
  request = computations.build_request(algorithm)
  train = computations.build_training(algorithm)
  server_step = computations.build_server_step(algorithm)
  state_spec = algorithm.client_state and algorithm.client_state.spec
  collect = state_spec and client_states.build_collect(state_spec)
  given = algorithm.example_weights == algorithm_lib.GIVEN
  client = examples_lib.client_type(algorithm.model, given, state_spec)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(client, tff.CLIENTS),
  )
  def next_fn(state, examples):
    seed = tff.federated_map(_round_seed, (state.seed, state.round_number))
    clients_seed = tff.federated_broadcast(seed)
    held = tff.federated_map(request, (examples, clients_seed))
    update = tff.federated_map(
      train,
      (
        *fixed.receive(state.weights),
        exchanges.receive(state, held),
        held,
        examples,
        clients_seed,
        *limits.at_clients(state.aggregator),
      ),
    )
    joined = aggregate(limits.of_encoder(state.aggregator), update)
    weight = tff.federated_sum(update.weight)
    merged = exchanges.merge(held, update)
    stepped = tff.federated_map(
      server_step, (state, joined.result, merged, weight, seed)
    )
    new_state = RoundState(
      weights=stepped[1],
      server=stepped[0],
      aggregator=limits.next(state.aggregator, joined.state, update, weight),
      round_number=tff.federated_map(_following, state.round_number),
      seed=state.seed,
    )
    measured = limits.measured(
      metrics.of_round(update, stepped[2]), state.aggregator, update
    )
    if collect:
      measured = collect(measured, examples.client_id, update.state)
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_zip(new_state), measured
    )

  return next_fn


def _build_initialize(algorithm, aggregate, fixed, pair: list[int]):
  """Returns the computation ( -> RoundState@SERVER)."""
  specs = algorithm.model.weight_specs()

  @tff.tensorflow.computation
  def initial():
    run_seed = tf.constant(pair, tf.int32)
    server_state = computations.ServerState(
      algorithm.encoder_optimizer.initialize(fixed.trained_specs().encoder),
      collections.OrderedDict(
        (table.name, table.initialize(specs.tables[table.name]))
        for table in algorithm.tables
      ),
    )
    weights = algorithm.model.init(run_seed)
    return weights, server_state, tf.constant(0, tf.int32), run_seed

  @tff.federated_computation
  def initialize():
    weights, server_state, round_number, run_seed = tff.federated_eval(
      initial, tff.SERVER
    )
    return tff.federated_zip(
      RoundState(
        weights,
        server_state,
        robust.Limits(algorithm.robust).initialize(aggregate.initialize()),
        round_number,
        run_seed,
      )
    )

  return initialize


def _build_weights_access(algorithm, fixed, state_type):
  """Returns the computations (state -> weights), (state, weights -> state)."""

  def caught_up(state):
    states, values = collections.OrderedDict(), collections.OrderedDict()
    for table in algorithm.tables:
      name = table.name
      states[name], values[name] = table.catch_up(
        state.server.tables[name], state.weights.tables[name]
      )
    return state.server._replace(tables=states), values

  @tff.tensorflow.computation(state_type)
  def get_weights(state):
    return state.weights._replace(tables=caught_up(state)[1])

  @tff.tensorflow.computation(state_type, get_weights.type_signature.result)
  def set_weights(state, weights):
    # Pending momentum updates of the old rows must not move the new ones.
    server = caught_up(state)[0]
    weights = fixed.checked(weights, state.weights)
    return state._replace(weights=weights, server=server)

  return get_weights, set_weights


@tff.tensorflow.computation(tff.TensorType(np.int32, [2]), np.int32)
def _round_seed(seed, round_number):
  return randomness.round_seed(seed, round_number)


@tff.tensorflow.computation(np.int32)
def _following(round_number):
  return round_number + 1
