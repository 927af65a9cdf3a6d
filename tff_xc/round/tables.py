"""Tables: matrices whose rows the server and clients exchange.

The class rows are one table, and the feature rows of a sparse encoder are another table. A client's
examples name rows of a table. The client requests these rows (question 1) by a federated select
with one key for each row, or receives the whole table by broadcast. The client sends rows back. The
server merges the rows (question 3) and updates the table (question 4). A round treats all tables
alike.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import (
  examples as examples_lib,
  merge as merge_lib,
  optimizers,
  randomness,
  request as request_lib,
  server,
)

# Defaults: the server adds the mean change of the rows to the table, which is SGD with learning
# rate 1.
_SUM, _PLAIN = merge_lib.SumRows(), optimizers.RowMomentum()


class TableState(NamedTuple):
  """The server's state of one table: states of its optimizer and its steps."""

  optimizer: Any
  steps: tuple


@dataclasses.dataclass(frozen=True)
class Table:
  """How the rows of one table are requested, merged and updated.

  Attributes:
    name: 'class', or a name in the encoder's `tables`. Error messages and names of metrics also use
      the name as the word for an item of the table.
    request: which rows a client requests (question 1).
    merge: how the server merges the rows that clients send (question 3).
    optimizer: the server's optimizer of the rows (question 4), if the merge takes one. An optimizer
      of TFF is wrapped in `optimizers.Dense`.
    steps: the server's further steps, in order, after the optimizer.
  """

  name: str
  request: request_lib.AllRows | request_lib.OwnAndSampled
  merge: merge_lib.Merge = _SUM
  optimizer: optimizers.TableOptimizer | tff.learning.optimizers.Optimizer = _PLAIN
  steps: tuple[server.ServerStep, ...] = ()

  def __post_init__(self):
    if isinstance(self.optimizer, tff.learning.optimizers.Optimizer):
      dense = optimizers.Dense(self.optimizer)
      object.__setattr__(self, 'optimizer', dense)
    plain = self.optimizer == _PLAIN
    if not plain and not self.merge.takes_optimizer:
      raise ValueError(
        f'{type(self.merge).__name__} takes no optimizer; table {self.name!r} has one'
      )
    on_all_rows = [step.on_all_rows for step in self.steps]
    if not self.merge.sends_rows and not all(on_all_rows):
      raise ValueError(
        f'{type(self.merge).__name__} sends no rows, so no step can change the'
        " round's; a step on all rows can"
      )
    if on_all_rows != sorted(on_all_rows):
      raise ValueError("steps on all rows come after those on the round's rows")

  @property
  def metrics(self) -> tuple[str, ...]:
    """Names of the steps' metrics."""
    return tuple(name for step in self.steps for name in step.metrics)

  def used(self, rows: tf.Tensor, held: request_lib.SelectedRows) -> tf.Tensor:
    """Returns the received rows. Feature rows lose their padding.

    The argument `rows` is float32 [N, row_dim]. Most clients use far fewer feature rows than there
    are slots. Padding is always last.
    """
    if not self.request.selects or self.name == classifier.CLASS:
      return rows
    used = tf.reduce_sum(tf.cast(held.mask, tf.int32))
    return rows[: tf.maximum(used, 1)]

  def initialize(self, spec: tf.TensorSpec) -> TableState:
    """Returns the initial state for a table [n, row_dim] of this spec."""
    steps = tuple(step.initialize(spec) for step in self.steps)
    return TableState(self.optimizer.initialize(spec), steps)

  def next(
    self,
    state: TableState,
    value: tf.Tensor,
    merged: Any,
    total_weight: tf.Tensor,
    seed: tf.Tensor,
    round_number: tf.Tensor,
  ) -> tuple[TableState, tf.Tensor, dict[str, tf.Tensor]]:
    """Returns (state, table [n, row_dim], metrics by name) after a round.

    If `total_weight`, the sum of the cohort's weights, is zero, nothing changes.
    """
    has_update = total_weight > 0
    first = sum(not step.on_all_rows for step in self.steps)

    def context(rows_before):
      return server.StepContext(seed[:2], round_number, merged, rows_before)

    def after(ids, rows):
      def before():
        return self.optimizer.read(state.optimizer, value, ids)

      return server.run_steps(self.steps[:first], state.steps[:first], rows, context(before))

    optimizer_state, new, (states, measured) = self.merge.next(
      self.optimizer, state.optimizer, value, merged, total_weight, after
    )

    def kept(a, b):
      return tf.where(has_update, a, b)

    states = tf.nest.map_structure(kept, states, state.steps[:first])
    measured = {n: kept(m, float('nan')) for n, m in measured.items()}
    if first == len(self.steps):
      return TableState(optimizer_state, states), new, measured

    def on_all_rows():
      def before():
        return self.optimizer.read_all(state.optimizer, value)

      caught_up, rows = self.optimizer.catch_up(optimizer_state, new)
      rows, (later, found) = server.run_steps(
        self.steps[first:], state.steps[first:], rows, context(before)
      )
      return TableState(caught_up, (*states, *later)), rows, found

    def unchanged():
      nothing = {
        name: tf.constant(float('nan')) for step in self.steps[first:] for name in step.metrics
      }
      later = state.steps[first:]
      return TableState(optimizer_state, (*states, *later)), new, nothing

    after_all, new, found = tf.cond(has_update, on_all_rows, unchanged)
    return after_all, new, measured | found

  def catch_up(self, state: TableState, value: tf.Tensor):
    """Returns (state, table) with all pending row updates applied."""
    optimizer_state, value = self.optimizer.catch_up(state.optimizer, value)
    return state._replace(optimizer=optimizer_state), value


def keys(
  model: classifier.EmbeddingClassifier, name: str, examples: examples_lib.ClientExamples
) -> tf.Tensor:
  """Returns int32 [k], the rows of a table that the client's examples name."""
  if name != classifier.CLASS:
    return model.encoder.tables[name].ids(examples.x)
  # A client without examples in this round requests nothing.
  some = encoder_lib.count(examples.labels) > 0
  size = tf.where(some, tf.size(examples.all_labels), 0)
  rows = _class_rows(model, examples.all_labels[:size], examples.client_id)
  rows = tf.reshape(rows, [-1])
  if model.encoder.targets:  # All items of a history, except the oldest one, are also labels.
    targets, _ = model.encoder.targets(examples.x, tf.fill(tf.shape(examples.labels), -1))
    rows = tf.concat([rows, targets[targets >= 0]], axis=0)
  return rows


def held_rows(
  model: classifier.EmbeddingClassifier,
  tables: tuple[Table, ...],
  examples: examples_lib.ClientExamples,
  round_seed: tf.Tensor,
) -> collections.OrderedDict:
  """Returns the `SelectedRows` that a client requests of each table, by name."""
  return collections.OrderedDict(
    (
      table.name,
      request_of(
        table,
        place,
        keys(model, table.name, examples),
        examples.client_id,
        round_seed,
        None if place else _tied_keys(model, examples),
      ),
    )
    for place, table in enumerate(tables)
  )


def request_of(
  table: Table,
  place: int,
  ids: tf.Tensor,
  client_id,
  round_seed: tf.Tensor,
  features: tf.Tensor | None = None,
) -> request_lib.SelectedRows:
  """Returns a client's request for one table.

  `place` is the index of the table in the algorithm. `ids` are the rows that the client's examples
  name. If the encoder's features are tied to class rows, `features` are the class rows that the
  client's features name.
  """
  purpose = randomness.Purpose.TABLES + place - 1
  if not place:
    purpose = randomness.Purpose.NEGATIVES
  seed, request = round_seed, table.request
  if request.secret:
    seed = randomness.private(seed, request.secret)
  lasting = None
  if request.selects and request.schedule != request_lib.FRESH:
    lasting = randomness.lasting(seed, client_id, purpose)
  return request.held_rows(
    ids, randomness.client_seed(seed, client_id, purpose), client_id, table.name, lasting, features
  )


def _tied_keys(model, examples) -> tf.Tensor | None:
  """Returns int32 [k], the class rows that features name, or None if none are tied."""
  if not model.encoder.tied:
    return None
  return tf.concat([t.ids(examples.x) for t in model.encoder.tied.values()], axis=0)


def localised(
  model: classifier.EmbeddingClassifier,
  name: str,
  examples: examples_lib.ClientExamples,
  slots_of: Callable[[tf.Tensor], tf.Tensor],
) -> examples_lib.ClientExamples:
  """Replaces row ids in the examples by the indices (slots) of these rows among the received rows.

  `slots_of` maps row ids to these indices. If each example has one class row, the new labels are
  int32 [n_k]. Otherwise the new labels are `sparse.LabelSets` with the indices of all rows of an
  example's labels.
  """
  if name != classifier.CLASS:
    table, x = model.encoder.tables[name], examples.x
    return examples._replace(x=table.with_ids(x, slots_of(table.ids(x))))
  for table in model.encoder.tied.values():
    x = table.with_ids(examples.x, slots_of(table.ids(examples.x)))
    examples = examples._replace(x=x)
  labels = examples.labels
  sets = isinstance(labels, sparse.LabelSets)
  rows = _class_rows(model, labels.ids if sets else labels, examples.client_id)
  slots = slots_of(tf.reshape(rows, [-1]))
  if rows.shape.rank > 1 or sets:
    each = rows.shape[1] if rows.shape.rank > 1 else 1
    splits = labels.row_splits if sets else tf.range(tf.size(labels) + 1)
    slots = sparse.LabelSets(splits * each, slots)
  return examples._replace(labels=slots)


def _class_rows(model, labels, client_id):
  """Returns the class rows of labels [k]: [k], or [k, R] if a label has R rows."""
  rows = model.head.rows_of(labels)
  if rows.shape.rank == 1:
    return rows  # `held_rows` and `positions` check these ids.
  # Even invalid labels hash to valid rows, so labels have to be checked here.
  known = request_lib.checked_ids(labels, model.num_classes, 'class', client_id)
  with tf.control_dependencies([known]):
    return tf.identity(rows)


def by_name(tables: tuple[Table, ...]) -> Mapping[str, Table]:
  """Returns the tables by name. Raises ValueError if a name repeats."""
  found = {table.name: table for table in tables}
  if len(found) < len(tables):
    raise ValueError(f'a table name repeats among {[t.name for t in tables]}')
  return found
