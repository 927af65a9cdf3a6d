"""Question 4: what does the server do last?

The server takes an optimizer step on the encoder and on each table. The gradient of this step is
the pseudo-gradient, which is minus the mean change. After that, the server may take further steps
on a table, such as spreadout or aggregation by support vectors.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier


class StepContext(NamedTuple):
  """The inputs of a server step besides the rows that it changes."""

  seed: tf.Tensor  # int32 [2], the round's seed.
  round_number: tf.Tensor  # int32 scalar, counted from 0.
  merged: Any  # The clients' rows (`folding.RowSums`, `folding.StackedRows`).
  # Reads and returns the step's rows before the round, float32 [U, row_dim].
  rows_before: Callable[[], tf.Tensor]


class ServerStep(Protocol):
  """A step that the server takes on rows of one table, after the optimizer's step.

  Attributes:
    on_all_rows: whether the step changes all n rows, or only the rows that the round's clients
      sent. Steps on all rows must come last.
    metrics: names of the metrics that the step returns, which are columns of metrics.csv.
  """

  on_all_rows: bool
  metrics: tuple[str, ...]

  def initialize(self, table_spec: tf.TensorSpec) -> Any:
    """Returns the step's state (a structure of tensors, possibly empty)."""

  def next(
    self, state: Any, rows: tf.Tensor, context: StepContext
  ) -> tuple[Any, tf.Tensor, Mapping[str, tf.Tensor]]:
    """Returns (state, new rows, metrics by name), given rows float32 [U, row_dim].

    If the step changes only the round's rows, and every update was dropped, U is 0.
    """


@dataclasses.dataclass(frozen=True)
class RowStep:
  """A step without state or metrics, which applies a function to rows float32 [U, row_dim]."""

  function: Callable[[tf.Tensor], tf.Tensor]
  on_all_rows: bool = False

  metrics = ()

  def initialize(self, table_spec):
    return ()

  def next(self, state, rows, context):
    return state, self.function(rows), {}


@dataclasses.dataclass(frozen=True)
class DescentStep:
  """An optimizer step on all rows, float32 [n, row_dim]. A function returns the gradient.

  The optimizer's state is kept over rounds, although other steps also move the rows.
  """

  gradient: Callable[[tf.Tensor], tf.Tensor]
  optimizer: tff.learning.optimizers.Optimizer

  on_all_rows = True
  metrics = ()

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec)

  def next(self, state, rows, context):
    state, rows = self.optimizer.next(state, rows, self.gradient(rows))
    return state, rows, {}


def run_steps(
  steps: tuple[ServerStep, ...], states: tuple, rows: tf.Tensor, context: StepContext
) -> tuple[tf.Tensor, tuple[tuple, dict[str, tf.Tensor]]]:
  """Runs the steps in order and returns (rows, (states, metrics by name))."""
  after, measured = [], {}
  for step, state in zip(steps, states, strict=True):
    state, rows, found = step.next(state, rows, context)
    if set(found) != set(step.metrics):
      raise ValueError(
        f'{type(step).__name__} declares the metrics {step.metrics} and returned {tuple(found)}'
      )
    after.append(state)
    measured |= found
  return rows, (tuple(after), measured)


def encoder_step(
  optimizer: tff.learning.optimizers.Optimizer,
  optimizer_state: Any,
  weights: classifier.ModelWeights,
  delta: Mapping[str, tf.Tensor],
  has_update: tf.Tensor,
  moves_state: bool = True,
) -> tuple[Any, Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]:
  """Returns (optimizer state, encoder, encoder state) after the round.

  `delta` has the mean change of each encoder weight, by name. If `moves_state`, the changes of
  weights without gradients are added to these weights. If `has_update` is False, nothing changes.
  """

  def like(names, value):
    return type(names)((k, value(k)) for k in names)

  def step():
    state, encoder = optimizer.next(
      optimizer_state, weights.encoder, like(weights.encoder, lambda name: -delta[name])
    )
    averaged = like(
      weights.encoder_state,
      lambda name: (
        weights.encoder_state[name] + delta[name] if moves_state else weights.encoder_state[name]
      ),
    )
    return state, encoder, averaged

  return tf.cond(
    has_update, step, lambda: (optimizer_state, weights.encoder, weights.encoder_state)
  )
