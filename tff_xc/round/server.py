"""Question 4: what does the server do last?

It takes an optimizer step on the encoder and one on the class table, each with
the pseudo-gradient (minus the mean delta). Then it takes any number of further
steps on the round's class rows and on the class table (spreadout, SVM
aggregation).
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Protocol

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import merge
from tff_xc.round import optimizers
from tff_xc.round import table_optimizers


class TableStep(Protocol):
  """A step of the server on the class table alone, after the optimizer."""

  def initialize(self, table_spec: tf.TensorSpec) -> Any:
    """Returns the step's state (a structure of tensors, possibly empty)."""

  def next(self, state: Any, table: tf.Tensor, merged: merge.RowSums):
    """Returns (state, table).

    Args:
      state: as returned before.
      table: float32 [n, row_dim].
      merged: the clients' rows as merged; its `ids` are this round's classes.
    """


@dataclasses.dataclass(frozen=True)
class OnAllRows:
  """A table step that applies row steps to all n rows."""

  steps: tuple[Callable[[tf.Tensor], tf.Tensor], ...]

  def initialize(self, table_spec: tf.TensorSpec) -> tuple:
    del table_spec
    return ()

  def next(self, state: tuple, table: tf.Tensor, merged: merge.RowSums):
    del merged
    for step in self.steps:
      table = step(table)
    return state, table


class FeatureUpdate(NamedTuple):
  """Mean deltas [U, feature_dim] of the rows `ids` of the weight `name`."""

  name: str
  ids: tf.Tensor
  delta: tf.Tensor


class ServerState(NamedTuple):
  """States of the optimizers (of the encoder, the class table and the feature
  table) and of the table steps."""

  encoder: Any
  table: Any
  table_steps: tuple[Any, ...]
  features: Any = ()


@dataclasses.dataclass(frozen=True)
class Server:
  """The server's step at the end of a round.

  Attributes:
    encoder_optimizer: updates the encoder's trainable weights.
    feature_optimizer: updates the encoder's feature table, if it has one.
    table_optimizer: updates the class table. Default: momentum on all rows. If
      clients request few rows, `table_optimizers.RowMomentum` computes the same
      at the cost of these rows. An optimizer of TFF is wrapped in
      `table_optimizers.Dense`.
    row_steps: applied in order after the optimizer to the rows of the classes
      that the round's clients held, float32 [U, row_dim] -> the same.
    table_steps: applied in order after these, to all rows.
  """

  encoder_optimizer: tff.learning.optimizers.Optimizer = dataclasses.field(
    default_factory=lambda: optimizers.build_sgd(1.0, 0.9)
  )
  table_optimizer: (
    table_optimizers.TableOptimizer | tff.learning.optimizers.Optimizer
  ) = dataclasses.field(default_factory=lambda: optimizers.build_sgd(1.0, 0.9))
  feature_optimizer: table_optimizers.TableOptimizer = dataclasses.field(
    default_factory=table_optimizers.RowMomentum
  )
  row_steps: tuple[Callable[[tf.Tensor], tf.Tensor], ...] = ()
  table_steps: tuple[TableStep, ...] = ()

  def __post_init__(self):
    if isinstance(self.table_optimizer, tff.learning.optimizers.Optimizer):
      dense = table_optimizers.Dense(self.table_optimizer)
      object.__setattr__(self, 'table_optimizer', dense)

  def initialize(
    self, specs: classifier.ModelWeights, feature_table: str | None = None
  ) -> ServerState:
    """Returns the initial state for weights of these specs.

    Args:
      specs: the specs of all weights.
      feature_table: the encoder weight whose rows are sent separately, if any.
    """
    return ServerState(
      self.encoder_optimizer.initialize(without(specs.encoder, feature_table)),
      self.table_optimizer.initialize(specs.class_table),
      tuple(s.initialize(specs.class_table) for s in self.table_steps),
      self.feature_optimizer.initialize(specs.encoder[feature_table])
      if feature_table
      else (),
    )

  def next(
    self,
    state: ServerState,
    weights: classifier.ModelWeights,
    encoder_delta,
    row_delta: tf.Tensor,
    merged: merge.RowSums,
    total_weight: tf.Tensor,
    features: FeatureUpdate | None = None,
  ) -> tuple[ServerState, classifier.ModelWeights]:
    """Returns the state and weights after the round.

    Args:
      state: as returned before.
      weights: the weights that the round began with.
      encoder_delta: mean delta of every encoder weight by name, except the
        feature table when its rows are sent separately.
      row_delta: float32 [U, row_dim], mean deltas of the rows `merged.ids`.
      merged: the clients' rows as merged, for the table steps.
      total_weight: float32 scalar, the sum of the cohort's weights. If it is
        zero, no client's update is left, and nothing changes.
      features: mean deltas of the feature rows, when sent separately.
    """
    counts = total_weight > 0
    name = features.name if features else None
    others = weights._replace(encoder=without(weights.encoder, name))
    encoder_state, encoder, averaged = tf.cond(
      counts,
      lambda: self._encoder_step(state.encoder, others, encoder_delta),
      lambda: (state.encoder, others.encoder, weights.encoder_state),
    )
    # Outside any `tf.cond`: see `table_optimizers`.
    feature_state = state.features
    if features:
      feature_state, encoder[name] = self.feature_optimizer.next(
        feature_state,
        weights.encoder[name],
        features.ids,
        -features.delta,
        counts,
      )
      encoder = type(encoder)((n, encoder[n]) for n in weights.encoder)
    table_state, table = self.table_optimizer.next(
      state.table,
      weights.class_table,
      merged.ids,
      -row_delta,
      counts,
      after=self._row_steps if self.row_steps else table_optimizers.unchanged,
    )
    new_state = ServerState(
      encoder_state, table_state, state.table_steps, feature_state
    )
    if self.table_steps:
      new_state, table = tf.cond(
        counts,
        lambda: self._table_steps(new_state, table, merged),
        lambda: (new_state, table),
      )
    return new_state, classifier.ModelWeights(encoder, averaged, table)

  def settle(
    self,
    state: ServerState,
    weights: classifier.ModelWeights,
    feature_table: str | None = None,
  ) -> tuple[ServerState, classifier.ModelWeights]:
    """Returns (state, weights) with all pending row updates applied.

    Args:
      state: as returned before.
      weights: likewise.
      feature_table: the encoder weight whose rows are sent separately, if any.
    """
    table_state, table = self.table_optimizer.settle(
      state.table, weights.class_table
    )
    state, encoder = state._replace(table=table_state), weights.encoder
    if feature_table:
      feature_state, rows = self.feature_optimizer.settle(
        state.features, encoder[feature_table]
      )
      state = state._replace(features=feature_state)
      encoder = type(encoder)(
        (n, rows if n == feature_table else encoder[n]) for n in encoder
      )
    return state, weights._replace(encoder=encoder, class_table=table)

  def _encoder_step(self, optimizer_state, weights, delta):
    like = lambda names, value: type(names)((k, value(k)) for k in names)
    optimizer_state, encoder = self.encoder_optimizer.next(
      optimizer_state,
      weights.encoder,
      like(weights.encoder, lambda name: -delta[name]),
    )
    averaged = like(
      weights.encoder_state,
      lambda name: weights.encoder_state[name] + delta[name],
    )
    return optimizer_state, encoder, averaged

  def _row_steps(self, rows: tf.Tensor) -> tf.Tensor:
    for step in self.row_steps:
      rows = step(rows)
    return rows

  def _table_steps(self, state: ServerState, table, merged):
    table_state, table = self.table_optimizer.settle(state.table, table)
    step_states = []
    for step, old in zip(self.table_steps, state.table_steps, strict=True):
      new, table = step.next(old, table, merged)
      step_states.append(new)
    new_state = state._replace(
      table=table_state, table_steps=tuple(step_states)
    )
    return new_state, table


def without(weights, name: str | None):
  """Returns the weights by name, except `name` (all of them if it is None)."""
  return type(weights)((n, weights[n]) for n in weights if n != name)
