"""Builds the learning process of an algorithm. Each call of its `next` runs one round."""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier, deep_messages
from tff_xc.round import (
  algorithm as algorithm_lib,
  client_update,
  examples as examples_lib,
  frozen,
  merge,
  optimizers,
  parts,
  randomness,
  request as request_lib,
  server,
  tables as tables_lib,
)

deep_messages.allow()


class ServerState(NamedTuple):
  """The state of the encoder's optimizer, and the states of the tables by name."""

  encoder: Any
  tables: collections.OrderedDict


class RoundState(NamedTuple):
  """The server's state between rounds."""

  # The global model. Rows that were not requested recently may still lack momentum updates.
  # `LearningProcess.get_model_weights` applies these updates.
  weights: classifier.ModelWeights
  server: ServerState  # States of the server's optimizers and steps.
  aggregator: Any  # State of the encoder's aggregator.
  round_number: tf.Tensor  # int32, the number of rounds done.
  seed: tf.Tensor  # int32 [2], the run's seed; all randomness derives from it.
  parts: Any = ()  # States of the parts by name, see `parts.Part`.


def build_process(
  algorithm: algorithm_lib.Algorithm, seed: int = 0
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process of an algorithm.

  The process's `next` takes `ClientExamples` at clients and runs one round:

    1. Every client computes which rows it requests, from its examples and (seed, round, client).
    2. The client receives the encoder and these rows. The rows arrive by `tff.federated_select`
       with one key for each row, or by broadcast if clients request all rows.
    3. The client trains, and returns encoder changes and rows.
    4. The aggregator averages the encoder changes, and each table's merge combines the table's
       rows.
    5. The server takes optimizer steps on the encoder and the tables, and then the algorithm's
       further steps, such as spreadout.

  `seed` determines the initial weights and the random numbers of all rounds.

  A round's metrics are an ordered dictionary of float32 scalars:

    loss: mean over examples of the loss during local training, without penalties.
    local_accuracy: share of examples that the client classified correctly among its received rows,
      in the training step that used the example.
    class_rows, class_rows_largest: mean and largest number of class rows that a client requested.
      Every other table has two such metrics.
    examples, clients, clients_dropped: the numbers of examples, of clients and of dropped clients.
      Clients without examples do not count. A client is dropped if its update is not finite.
    local_batches: the largest number of minibatches of any client.
    clients_rows_clipped: with secure sums, the number of clients that had to clip a number in their
      rows to the bound.
    loss_largest: if the algorithm measures it, the largest mean loss of any client whose update is
      not dropped.
    client_states: if the algorithm has client states, `examples.KeptStates`. The caller stores the
      states, and passes them back as `ClientExamples.state`.
    aggregator/...: the scalars that `model_aggregator` measures, under the aggregator's own names,
      such as aggregator/zeroing/zeroed_count.

  A mean or maximum over no clients is nan, except `local_batches`, which is then 0. Some parts,
  such as bounds, and some server steps add metrics.
  """
  pair = randomness.pair(seed)
  for part in algorithm.parts:
    algorithm = part.of_run(algorithm, pair)
  fixed = frozen.Fixed(algorithm, pair)
  aggregate = algorithm.model_aggregator
  if not isinstance(aggregate, merge.EncoderMean):
    sending = [table.name for table in algorithm.tables if table.merge.sends_rows]
    aggregate = merge.EncoderMean(aggregate, fixed.trained_specs(), sending)
  initialize = _build_initialize(algorithm, aggregate, fixed, pair)
  state_type = initialize.type_signature.result.member
  next_fn = _build_next(algorithm, aggregate, fixed, state_type)
  get_weights, set_weights = _build_weights_access(algorithm, fixed, state_type)
  return tff.learning.templates.LearningProcess(initialize, next_fn, get_weights, set_weights)


def _build_next(algorithm, aggregate, fixed, state_type) -> tff.Computation:
  """Returns the computation (`RoundState`@SERVER, examples@CLIENTS) -> output."""
  beside = next((part.beside for part in algorithm.parts if part.beside is not None), None)
  exchanges = collections.OrderedDict(
    (
      table.name,
      _Exchange(
        table,
        state_type.weights.tables[i],
        state_type.server.tables[i],
        beside if table.name == classifier.CLASS else None,
        fixed.tables.get(table.name),
      ),
    )
    for i, table in enumerate(algorithm.tables)
  )

  def of_tables(call):
    return tff.federated_zip(
      collections.OrderedDict((name, call(name, of)) for name, of in exchanges.items())
    )

  request = tff.tensorflow.computation(
    lambda examples, seed: tables_lib.held_rows(algorithm.model, algorithm.tables, examples, seed)
  )
  train = _build_training(algorithm)
  server_step = _build_server_step(algorithm)
  state_spec = algorithm.client_state and algorithm.client_state.spec
  collect = state_spec and examples_lib.build_collect(state_spec)
  client = examples_lib.client_type(algorithm.model, state_spec)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER), tff.FederatedType(client, tff.CLIENTS)
  )
  def next_fn(state, examples):
    seed = tff.federated_map(_round_seed, (state.seed, state.round_number))
    clients_seed = tff.federated_broadcast(seed)
    held = tff.federated_map(request, (examples, clients_seed))
    update = tff.federated_map(
      train,
      (
        *fixed.receive(state.weights),
        of_tables(
          lambda name, of: of.receive(
            state.server.tables[name], state.weights.tables[name], held[name]
          )
        ),
        held,
        examples,
        clients_seed,
        tff.federated_broadcast(state.parts),
      ),
    )
    joined = aggregate(state.aggregator, update)
    told = tff.federated_sum(update.told)
    merged = of_tables(lambda name, of: of.merge(held[name], update.rows[name], update))
    stepped = tff.federated_map(server_step, (state, joined.result, merged, told, seed))
    new_state = RoundState(
      weights=stepped[1],
      server=stepped[0],
      aggregator=joined.state,
      round_number=tff.federated_map(_following, state.round_number),
      seed=state.seed,
      parts=stepped[2],
    )
    sums = tff.federated_sum(update.measured)
    largest = tff.federated_max(update.measured)
    measured = tff.federated_map(_measured, (sums, largest, stepped[3]))
    measured = aggregate.measured(measured, joined.measurements)
    if collect:
      measured = collect(measured, examples.client_id, update.state)
    return tff.learning.templates.LearningProcessOutput(tff.federated_zip(new_state), measured)

  return next_fn


class _Exchange:
  """Sends the rows of one table to clients and merges the rows that clients return.

  Use this class within a federated computation.
  """

  def __init__(
    self,
    table: tables_lib.Table,
    value_type: tff.TensorType,
    state_type: tff.Type,
    beside: np.ndarray | None = None,
    own: np.ndarray | None = None,
  ):
    """Prepares the exchange of a table.

    `beside` [n] has one number for each row, which clients receive with the row, or is None. `own`
    [n, row_dim] has the rows of a frozen table that clients use as a whole. Their computations
    contain this table as a constant, so it is not sent. For all other tables, `own` is None.
    """
    optimizer = table.optimizer
    self._request = table.request
    # Rows are read from the table, or from a lazy optimizer's state and the table.
    self._lazy = optimizer.reads_state
    source_type = value_type
    if self._lazy:
      source_type = tff.to_type((state_type.optimizer, value_type))

    def parts(source):
      return source if self._lazy else ((), source)

    @tff.tensorflow.computation(source_type, np.int32)
    def select_row(source, row_id):
      row = optimizer.read(*parts(source), row_id)
      return row if beside is None else (row, tf.gather(beside, row_id))

    @tff.tensorflow.computation(source_type)
    def read_all(source):
      return optimizer.read_all(*parts(source))

    self._beside = self._own = None
    if own is not None:
      self._own = tff.tensorflow.computation(lambda: tf.constant(own))
    if beside is not None:
      self._beside = tff.tensorflow.computation(lambda: tf.constant(beside))
    self._select_row, self._read_all = select_row, read_all
    # See `merge.Merge.build`.
    self.merge = table.merge.build(*value_type.shape, selects=table.request.selects)

  def receive(self, state, value, held):
    """Returns rows@CLIENTS, or (rows, their numbers of `beside`)@CLIENTS.

    If clients select rows, the result is a sequence of the selected rows, else the whole table.
    """
    source = value
    if self._lazy:
      source = tff.federated_zip((state.optimizer, value))
    if self._request.selects:
      max_key = tff.federated_value(int(self._request.num_rows), tff.SERVER)
      return tff.federated_select(held.ids, max_key, source, self._select_row)
    if self._lazy:
      source = tff.federated_map(self._read_all, source)
    if self._own:
      rows = tff.federated_eval(self._own, tff.CLIENTS)
    else:
      rows = tff.federated_broadcast(source)
    if not self._beside:
      return rows
    beside = tff.federated_eval(self._beside, tff.SERVER)
    return tff.federated_zip((rows, tff.federated_broadcast(beside)))


def _as_tensors(
  table: tables_lib.Table, rows: Any, held: request_lib.SelectedRows
) -> tuple[tf.Tensor, tf.Tensor | None]:
  """Returns (received rows float32 [N, row_dim], their numbers of `beside` [N] or None)."""
  slots = table.request.slots
  if isinstance(rows, tf.data.Dataset):
    rows = rows.batch(slots).get_single_element()
  rows, beside = rows if isinstance(rows, tuple) else (rows, None)
  rows = tf.ensure_shape(rows, [slots, rows.shape[-1]])
  return table.used(rows, held), beside


def _build_training(algorithm):
  """Returns the computation of a client's `ClientUpdate`."""
  on_client = client_update.build(algorithm)

  @tff.tensorflow.computation
  def train(encoder, encoder_state, rows, held, examples, seed, messages):
    received = collections.OrderedDict(
      (t.name, _as_tensors(t, rows[t.name], held[t.name])) for t in algorithm.tables
    )
    tables = collections.OrderedDict((name, own) for name, (own, _) in received.items())
    weights = classifier.ModelWeights(encoder, encoder_state, tables)
    messages = dict(messages)
    for part in algorithm.parts:
      if part.beside is not None:
        messages[part.name] = received[classifier.CLASS][1]
    return on_client(weights, held, examples, seed, messages)

  return train


def _build_server_step(algorithm):
  """Returns the computation of (`ServerState`, `ModelWeights`, parts, metrics)."""

  @tff.tensorflow.computation
  def server_step(state, encoder_delta, merged, told, seed):
    merged = parts.Merged(
      encoder=encoder_delta,
      tables=merged,
      weight=told.of_round.weight,
      clients=told.of_round.counted,
      weights=state.weights,
      seed=seed,
    )
    following, merged, of_parts = parts.on_server(algorithm, state.parts, told, merged)
    optimizer, tables = _of_clients(algorithm, merged.clients)
    optimizer_state, encoder, encoder_state = server.encoder_step(
      optimizer,
      state.server.encoder,
      frozen.trained_part(algorithm, state.weights),
      merged.encoder,
      merged.weight > 0,
      algorithm.moves_encoder_state,
    )
    states, values = collections.OrderedDict(), collections.OrderedDict()
    measured = collections.OrderedDict()
    # The tables are updated outside of `tf.cond`, see `tff_xc.round.optimizers`.
    for table in tables:
      name = table.name
      states[name], values[name], found = table.next(
        state.server.tables[name],
        state.weights.tables[name],
        merged.tables[name],
        merged.weight,
        seed,
        state.round_number,
      )
      measured.update(found)
    measured.update(of_parts)
    return (
      ServerState(optimizer_state, states),
      classifier.ModelWeights(
        classifier.replaced(state.weights.encoder, encoder),
        classifier.replaced(state.weights.encoder_state, encoder_state),
        values,
      ),
      following,
      measured,
    )

  return server_step


def _of_clients(algorithm, clients):
  """Returns (the server's optimizer of the encoder, the tables) for a round.

  An optimizer may have a method `of_clients`, which returns the optimizer for this round. The
  argument `clients` of this method is the number of clients whose updates are averaged, a float32
  scalar. The returned optimizer also replaces the original optimizer in tables.
  """
  usual = algorithm.encoder_optimizer
  if not hasattr(usual, 'of_clients'):
    return usual, algorithm.tables
  found, dense = usual.of_clients(clients), optimizers.Dense(usual)
  return found, [
    dataclasses.replace(t, optimizer=found) if t.optimizer == dense else t for t in algorithm.tables
  ]


@tff.tensorflow.computation
def _measured(sums, largest, of_steps):
  """Returns a round's metrics from sums and maxima over its clients."""
  of_clients = sums['clients'] > 0
  measured = collections.OrderedDict(
    loss=sums['loss'] / sums['examples'], local_accuracy=sums['correct'] / sums['examples']
  )
  for name in sums:
    if name.endswith('_rows'):
      measured[name] = sums[name] / sums['clients']
      measured[f'{name}_largest'] = tf.where(of_clients, largest[name], float('nan'))
  measured['examples'] = sums['examples']
  measured['clients'] = sums['clients']
  measured['clients_dropped'] = sums['dropped']
  if 'rows_clipped' in sums:
    measured['clients_rows_clipped'] = sums['rows_clipped']
  if 'mean_loss' in largest:
    of_kept = sums['examples'] > 0
    measured['loss_largest'] = tf.where(of_kept, largest['mean_loss'], float('nan'))
  measured['local_batches'] = tf.where(of_clients, largest['batches'], 0.0)
  measured.update(of_steps)
  return measured


def _build_initialize(algorithm, aggregate, fixed, pair: list[int]):
  """Returns the computation () -> `RoundState`@SERVER."""
  specs = algorithm.model.weight_specs()

  @tff.tensorflow.computation
  def initial():
    run_seed = tf.constant(pair, tf.int32)
    server_state = ServerState(
      algorithm.encoder_optimizer.initialize(fixed.trained_specs().encoder),
      collections.OrderedDict(
        (table.name, table.initialize(specs.tables[table.name])) for table in algorithm.tables
      ),
    )
    weights = algorithm.model.init(run_seed)
    number = tf.constant(0, tf.int32)
    states = parts.initial(algorithm)
    return weights, server_state, number, run_seed, states

  @tff.federated_computation
  def initialize():
    weights, server_state, round_number, run_seed, states = tff.federated_eval(initial, tff.SERVER)
    return tff.federated_zip(
      RoundState(weights, server_state, aggregate.initialize(), round_number, run_seed, states)
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
    # Pending momentum updates of the old rows must not move the new rows.
    server_state = caught_up(state)[0]
    weights = fixed.checked(weights, state.weights)
    return state._replace(weights=weights, server=server_state)

  return get_weights, set_weights


_round_seed = tff.tensorflow.computation(
  randomness.round_seed, tff.TensorType(np.int32, [2]), np.int32
)
_following = tff.tensorflow.computation(lambda round_number: round_number + 1, np.int32)
