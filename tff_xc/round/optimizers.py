"""Optimizers of all weights, in the papers' form, and of a table's requested rows.

TFF's own Adam adds epsilon before the bias correction and has no AMSGrad; these
follow PyTorch: w <- w - lr * m_hat / (sqrt(v_hat) + epsilon).

A round's clients request U of the n rows of a table. `Dense` updates all n rows. The
other table optimizers touch only the U requested rows: they return each large tensor
as one `tf.tensor_scatter_nd_update` of their input, never inside `tf.cond`, so that a
runtime may apply it in place.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any
from typing import Protocol

import tensorflow as tf
import tensorflow_federated as tff


class TorchAdam(tff.learning.optimizers.Optimizer):
  """Adam (Kingma and Ba, 2015, Algorithm 1) or AMSGrad, as in PyTorch.

  Its state has sums in place of the moments, s <- beta s + g; a moment is
  (1 - beta) s. The factors are in the step size, since every multiplication here
  is a pass over all weights.
  """

  def __init__(
    self,
    learning_rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-8,
    amsgrad: bool = False,
    weight_decay: float = 0.0,
  ):
    self._learning_rate, self._epsilon = learning_rate, epsilon
    self._beta_1, self._beta_2 = beta_1, beta_2
    self._amsgrad, self._weight_decay = amsgrad, weight_decay

  def initialize(self, specs):
    zeros = lambda: tf.nest.map_structure(
      lambda s: tf.zeros(s.shape, s.dtype), specs
    )
    state = collections.OrderedDict(
      step=tf.constant(0, tf.int32), sum=zeros(), squares=zeros()
    )
    if self._amsgrad:
      state['largest'] = zeros()
    return state

  def next(self, state, weights, gradients):
    step = state['step'] + 1
    each = tf.nest.map_structure
    if self._weight_decay:  # L2, not AdamW's decoupled decay.
      decayed = lambda g, w: g + self._weight_decay * w
      gradients = each(decayed, gradients, weights)
    total = each(lambda s, g: self._beta_1 * s + g, state['sum'], gradients)
    squares = each(
      lambda s, g: self._beta_2 * s + tf.square(g), state['squares'], gradients
    )
    new_state = collections.OrderedDict(step=step, sum=total, squares=squares)
    scale = squares
    if self._amsgrad:
      scale = each(tf.maximum, state['largest'], squares)
      new_state['largest'] = scale
    # The factors that turn a sum into a moment, corrected for its bias.
    power = tf.cast(step, tf.float32)
    first = (1.0 - self._beta_1) / (1.0 - tf.pow(self._beta_1, power))
    second = (1.0 - self._beta_2) / (1.0 - tf.pow(self._beta_2, power))
    rate = self._learning_rate * first / tf.sqrt(second)
    epsilon = self._epsilon / tf.sqrt(second)
    move = lambda w, m, s: w - rate * (m / (tf.sqrt(s) + epsilon))
    return new_state, each(move, weights, total, scale)


class Descent(tff.learning.optimizers.Optimizer):
  """SGD for gradients that contain the learning rate: w <- (1 - decay) w - g."""

  def __init__(self, replacement: float | None = None, decay: float = 0.0):
    """Replaces numbers that are not finite; `decay` is learning rate times weight decay.

    The decay takes one pass over the weights; L2 in the loss would take two.
    """
    self._replacement, self._decay = replacement, decay

  def initialize(self, specs):
    del specs
    return ()

  def next(self, state, weights, gradients):
    return state, tf.nest.map_structure(self._moved, weights, gradients)

  def _moved(self, weight, gradient):
    kept = (1.0 - self._decay) * weight if self._decay else weight
    moved = kept - gradient
    if self._replacement is None:
      return moved
    return tf.where(tf.math.is_finite(moved), moved, self._replacement)


def build_sgd(
  learning_rate: float = 1.0, momentum: float = 0.0
) -> tff.learning.optimizers.Optimizer:
  """SGD with momentum, v <- beta v + g, w <- w - lr v (FedAvgM)."""
  # TFF treats a momentum of None as plain SGD, without a velocity in its state.
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)


# (ids int32 [U], new rows [U, row_dim]) -> (rows to write, anything else).
After = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, Any]]


class TableOptimizer(Protocol):
  """An optimizer of a table, which may update rows lazily.

  The table kept between rounds may lack updates of rows that were not requested,
  which the state then determines. `reads_state`: whether `read` and `read_all` use the
  state; if not, callers may pass `()` for it.
  """

  reads_state: bool

  def initialize(self, table_spec: tf.TensorSpec) -> Any:
    """Returns the initial state for a table [n, row_dim] of this spec."""

  def read(self, state: Any, table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns rows, up to date: [U, row_dim] of ids [U], or [row_dim] of a scalar."""

  def read_all(self, state: Any, table: tf.Tensor) -> tf.Tensor:
    """Returns the table float32 [n, row_dim], up to date."""

  def next(
    self,
    state: Any,
    table: tf.Tensor,
    ids: tf.Tensor,
    gradients: tf.Tensor,
    has_update: tf.Tensor,
    after: After | None = None,
  ) -> tuple[Any, tf.Tensor, Any]:
    """Returns (state, table, what else `after` returned) after a step.

    `ids` int32 [U] are distinct; `gradients` [U, row_dim] are at the values that
    `read` returns, and zero for others. Without `has_update` nothing changes. `after`
    changes the new rows before they are written, so that they are written once; it
    gets no rows if there is no update.
    """

  def catch_up(self, state: Any, table: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """Returns (state, table) with all pending row updates applied."""


class _UpToDate:
  """Base of the table optimizers whose table is always up to date."""

  reads_state = False

  def read(self, state, table, ids):
    return tf.gather(table, ids)

  def read_all(self, state, table):
    return table

  def catch_up(self, state, table):
    return state, table


@dataclasses.dataclass(frozen=True)
class Dense(_UpToDate):
  """Any optimizer, on all rows; rows not requested have a zero gradient."""

  optimizer: tff.learning.optimizers.Optimizer

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec)

  def next(self, state, table, ids, gradients, has_update, after=None):
    def step():
      scattered = tf.scatter_nd(ids[:, None], gradients, table.shape)
      return self.optimizer.next(state, table, scattered)

    new_state, moved = tf.cond(has_update, step, lambda: (state, table))
    if after is None:
      return new_state, moved, ()
    ids = none_without(has_update, ids)
    rows, more = after(ids, tf.gather(moved, ids))
    return new_state, put(moved, ids, rows), more


def none_without(has_update: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns `values` [U, ...], or none of them if `has_update` is False."""
  return values[: tf.where(has_update, tf.shape(values)[0], 0)]


def changed(after: After | None, ids: tf.Tensor, rows: tf.Tensor):
  """Returns (rows to write, what else `after` returned)."""
  return (rows, ()) if after is None else after(ids, rows)


def put(old: tf.Tensor, ids: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
  """Returns `old` [n, ...] with rows `ids` [U] from `new` [U, ...]."""
  return tf.tensor_scatter_nd_update(old, ids[:, None], new)


@dataclasses.dataclass(frozen=True)
class RowMomentum:
  """SGD with dense momentum, v <- beta v + g, w <- w - lr v, row by row.

  Rows that no client requested still move by their momentum (FedSS, Algorithm
  1, line 13). These updates are applied when a row is read: j steps after its
  last update, with no gradient since, its velocity is beta^j v and its value
  w - lr v beta (1 - beta^j) / (1 - beta).

  The state has, by name, `step` (int32, steps taken), `last_step` (int32 [n],
  the step up to which a row is up to date) and `velocity` (float32 [n,
  row_dim], at `last_step`). Without momentum the state is empty.
  """

  learning_rate: float = 1.0
  momentum: float = 0.0

  @property
  def reads_state(self) -> bool:
    return self.momentum > 0

  def initialize(self, table_spec):
    if not self.momentum:
      return ()
    return collections.OrderedDict(
      step=tf.constant(0, tf.int32),
      last_step=tf.zeros(table_spec.shape[:1], tf.int32),
      velocity=tf.zeros(table_spec.shape, table_spec.dtype),
    )

  def read(self, state, table, ids):
    at = lambda t: tf.gather(t, ids)
    if not self.momentum:
      return at(table)
    waited = state['step'] - at(state['last_step'])
    return self._moved(at(table), at(state['velocity']), waited)[0]

  def read_all(self, state, table):
    return self.catch_up(state, table)[1]

  def next(self, state, table, ids, gradients, has_update, after=None):
    ids, gradients = (none_without(has_update, t) for t in (ids, gradients))
    at = lambda t: tf.gather(t, ids)
    if not self.momentum:
      rows = at(table) - self.learning_rate * gradients
      rows, more = changed(after, ids, rows)
      return state, put(table, ids, rows), more
    waited = state['step'] - at(state['last_step'])
    rows, velocity = self._moved(at(table), at(state['velocity']), waited)
    velocity = self.momentum * velocity + gradients
    rows -= self.learning_rate * velocity
    rows, more = changed(after, ids, rows)
    step = state['step'] + tf.cast(has_update, tf.int32)
    new_state = collections.OrderedDict(
      step=step,
      last_step=put(state['last_step'], ids, tf.fill([tf.size(ids)], step)),
      velocity=put(state['velocity'], ids, velocity),
    )
    return new_state, put(table, ids, rows), more

  def catch_up(self, state, table):
    if not self.momentum:
      return state, table
    waited = state['step'] - state['last_step']
    table, velocity = self._moved(table, state['velocity'], waited)
    last_step = tf.fill(state['last_step'].shape, state['step'])
    return (
      collections.OrderedDict(
        step=state['step'], last_step=last_step, velocity=velocity
      ),
      table,
    )

  def _moved(self, rows, velocity, waited):
    """Returns (rows, velocity) [..., row_dim] after `waited` [...] steps."""
    # expm1, because 1 - beta^j loses digits if beta is near one.
    exponent = math.log(self.momentum) * tf.cast(waited, tf.float32)[..., None]
    factor = self.learning_rate * self.momentum / (1.0 - self.momentum)
    moved = rows + factor * tf.math.expm1(exponent) * velocity
    return moved, tf.exp(exponent) * velocity


@dataclasses.dataclass(frozen=True)
class LazyRows(_UpToDate):
  """Updates only the requested rows, with any coordinate-wise optimizer.

  If every row is requested in every step, and with Adagrad always, this equals
  the optimizer on the whole table. Adam differs: there, the moments of a row not
  requested decay, and they move the row. Here, moments and row do not change until the
  row is requested again; the bias correction counts all steps. TensorFlow Addons'
  LazyAdam and PyTorch's SparseAdam do the same, except that they add epsilon before the
  bias correction. The state is that of the optimizer on the table.
  """

  optimizer: tff.learning.optimizers.Optimizer

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec)

  def next(self, state, table, ids, gradients, has_update, after=None):
    ids, gradients = (none_without(has_update, t) for t in (ids, gradients))
    of_table = lambda value: tf.convert_to_tensor(value).shape.rank > 0
    of_rows = collections.OrderedDict(
      (name, tf.gather(value, ids) if of_table(value) else value)
      for name, value in state.items()
    )
    new, rows = self.optimizer.next(of_rows, tf.gather(table, ids), gradients)
    rows, more = changed(after, ids, rows)
    new_state = collections.OrderedDict(
      (
        name,
        put(value, ids, new[name])
        if of_table(value)
        else tf.where(has_update, new[name], value),
      )
      for name, value in state.items()
    )
    return new_state, put(table, ids, rows), more
