"""The TFF computations of a round: request, local training, server step."""

import collections
from typing import Any
from typing import NamedTuple

import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import client_update
from tff_xc.round import exchange
from tff_xc.round import frozen
from tff_xc.round import randomness
from tff_xc.round import server
from tff_xc.round import tables as tables_lib


class ServerState(NamedTuple):
  """States of the encoder's optimizer, and by name of the tables."""

  encoder: Any
  tables: collections.OrderedDict


def build_request(algorithm):
  """Returns the computation (examples, seed) -> `SelectedRows` by table."""

  @tff.tensorflow.computation
  def request(examples, seed):
    held = collections.OrderedDict()
    for i, table in enumerate(algorithm.tables):
      purpose = randomness.Purpose.TABLES + i - 1
      if not i:
        purpose = randomness.Purpose.NEGATIVES
      held[table.name] = table.request.held_rows(
        tables_lib.keys(algorithm.model, table.name).of(examples),
        randomness.client_seed(seed, examples.client_id, purpose),
        examples.client_id,
        table.name,
      )
    return held

  return request


def build_training(algorithm):
  """Returns a client's computation of its update.

  It takes (encoder, encoder state, received rows by table, `SelectedRows` by
  table, `ClientExamples`, seed), and of an algorithm with bounds also these by
  name, and returns a `ClientUpdate`.
  """
  on_client = client_update.build(algorithm)

  def updated(encoder, encoder_state, rows, held, examples, seed, bounds=None):
    received = collections.OrderedDict(
      (t.name, exchange.as_tensors(t, rows[t.name], held[t.name]))
      for t in algorithm.tables
    )
    tables = collections.OrderedDict(
      (name, own) for name, (own, _) in received.items()
    )
    weights = classifier.ModelWeights(encoder, encoder_state, tables)
    target = received[classifier.CLASS][1]
    return on_client(weights, held, examples, seed, target, bounds)

  @tff.tensorflow.computation
  def train(encoder, encoder_state, rows, held, examples, seed):
    return updated(encoder, encoder_state, rows, held, examples, seed)

  @tff.tensorflow.computation
  def bounded(encoder, encoder_state, rows, held, examples, seed, bounds):
    return updated(encoder, encoder_state, rows, held, examples, seed, bounds)

  return bounded if algorithm.robust else train


def build_server_step(algorithm):
  """Returns the server's computation at the end of a round.

  It takes (`RoundState`, encoder delta, merged rows by table, total weight,
  seed) and returns (`ServerState`, `ModelWeights`, the steps' metrics).
  """

  @tff.tensorflow.computation
  def server_step(state, encoder_delta, merged, total_weight, seed):
    optimizer_state, encoder, encoder_state = server.encoder_step(
      algorithm.encoder_optimizer,
      state.server.encoder,
      frozen.trained_part(algorithm, state.weights),
      encoder_delta,
      total_weight > 0,
      algorithm.moves_encoder_state,
    )
    states, values = collections.OrderedDict(), collections.OrderedDict()
    measured = collections.OrderedDict()
    for table in algorithm.tables:  # Outside `tf.cond`: see table_optimizers.
      name = table.name
      states[name], values[name], found = table.next(
        state.server.tables[name],
        state.weights.tables[name],
        merged[name],
        total_weight,
        seed,
        state.round_number,
      )
      measured.update(found)
    return (
      ServerState(optimizer_state, states),
      classifier.ModelWeights(
        classifier.replaced(state.weights.encoder, encoder),
        classifier.replaced(state.weights.encoder_state, encoder_state),
        values,
      ),
      measured,
    )

  return server_step
