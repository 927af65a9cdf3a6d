"""Optimizers of all weights, and optimizers of a table's requested rows.

TFF's own Adam adds epsilon before the bias correction and has no AMSGrad. The optimizers here
follow PyTorch: w <- w - lr * m_hat / (sqrt(v_hat) + epsilon).

The clients of a round request U of the n rows of a table. `Dense` updates all n rows. The other
table optimizers change only the U requested rows. These optimizers return each large tensor as one
`tf.tensor_scatter_nd_update` of their input, outside of `tf.cond`, so that a runtime may update the
tensor in place.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

# A power of the momentum below this number changes no float32 digit of a row.
_NEGLIGIBLE = 1e-10


class TorchAdam(tff.learning.optimizers.Optimizer):
  """Adam (Kingma and Ba, 2015, Algorithm 1) or AMSGrad, as in PyTorch.

  In place of a moment, the state has the sum s <- beta s + g. The moment is (1 - beta) s. The step
  size includes the factors 1 - beta, because multiplying a state costs a pass over all weights.
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
    def zeros():
      return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)

    state = collections.OrderedDict(step=tf.constant(0, tf.int32), sum=zeros(), squares=zeros())
    if self._amsgrad:
      state['largest'] = zeros()
    return state

  def next(self, state, weights, gradients):
    step = state['step'] + 1
    each = tf.nest.map_structure
    if self._weight_decay:  # L2, not AdamW's decoupled decay.

      def decayed(g, w):
        return g + self._weight_decay * w

      gradients = each(decayed, gradients, weights)
    total = each(lambda s, g: self._beta_1 * s + g, state['sum'], gradients)
    squares = each(lambda s, g: self._beta_2 * s + tf.square(g), state['squares'], gradients)
    new_state = collections.OrderedDict(step=step, sum=total, squares=squares)
    scale = squares
    if self._amsgrad:
      scale = each(tf.maximum, state['largest'], squares)
      new_state['largest'] = scale
    # The factors that turn a sum into a bias-corrected moment.
    power = tf.cast(step, tf.float32)
    first = (1.0 - self._beta_1) / (1.0 - tf.pow(self._beta_1, power))
    second = (1.0 - self._beta_2) / (1.0 - tf.pow(self._beta_2, power))
    rate = self._learning_rate * first / tf.sqrt(second)
    epsilon = self._epsilon / tf.sqrt(second)

    def move(w, m, s):
      return w - rate * (m / (tf.sqrt(s) + epsilon))

    return new_state, each(move, weights, total, scale)


class Descent(tff.learning.optimizers.Optimizer):
  """SGD for gradients that contain the learning rate: w <- (1 - decay) w - g."""

  def __init__(self, replacement: float | None = None, decay: float | tf.Tensor | None = None):
    """`replacement` replaces numbers that are not finite.

    `decay` is the learning rate times the weight decay. Applying the decay takes one pass over the
    weights, whereas an L2 term in the loss would take two passes.
    """
    self._replacement, self._decay = replacement, decay

  def initialize(self, specs):
    return ()

  def next(self, state, weights, gradients):
    return state, tf.nest.map_structure(self._moved, weights, gradients)

  def _moved(self, weight, gradient):
    kept = weight
    if self._decay is not None:
      kept = (1.0 - self._decay) * weight
    moved = kept - gradient
    if self._replacement is None:
      return moved
    return tf.where(tf.math.is_finite(moved), moved, self._replacement)


def build_sgd(
  learning_rate: float = 1.0, momentum: float = 0.0
) -> tff.learning.optimizers.Optimizer:
  """Returns SGD with momentum, v <- beta v + g, w <- w - lr v (FedAvgM)."""
  # TFF treats a momentum of None as plain SGD, without a velocity in its state.
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)


class Scheduled(tff.learning.optimizers.Optimizer):
  """An optimizer whose learning rate follows a schedule.

  The state is the optimizer's state plus `server_step`, int32, the number of steps taken.
  """

  def __init__(
    self,
    make: Callable[[Any], tff.learning.optimizers.Optimizer],
    learning_rate: float,
    schedule: Callable[[tf.Tensor], tf.Tensor],
  ):
    """`make` takes a learning rate and returns an optimizer, whose state is a dictionary."""
    self._make, self._learning_rate = make, learning_rate
    self._schedule = schedule

  def initialize(self, specs):
    inner = self._make(self._learning_rate).initialize(specs)
    return collections.OrderedDict(server_step=tf.constant(0, tf.int32), **inner)

  def next(self, state, weights, gradients):
    inner = collections.OrderedDict(state)
    step = inner.pop('server_step')
    rate = self._learning_rate * self._schedule(step)
    kept = tff.learning.optimizers.LEARNING_RATE_KEY
    if kept in inner:  # TFF's optimizers read the learning rate from their state.
      inner[kept] = rate
    inner, weights = self._make(rate).next(inner, weights, gradients)
    return collections.OrderedDict(server_step=step + 1, **inner), weights


# A function (ids int32 [U], new rows [U, row_dim]) -> (rows to write, additional results).
After = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, Any]]


def unchanged(ids: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, Any]:
  """Returns the new rows as they are, and no additional results."""
  return rows, ()


class TableOptimizer:
  """An optimizer of a table, which may delay updates of rows that were not requested.

  Between rounds, the table may lack the delayed updates, which the state determines. `reads_state`
  says whether `read` and `read_all` use the state. If `reads_state` is False, callers may pass `()`
  as the state. By default, the table is always up to date.
  """

  reads_state = False

  def initialize(self, table_spec: tf.TensorSpec) -> Any:
    """Returns the initial state for a table [n, row_dim] of this spec."""

  def read(self, state: Any, table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns up-to-date rows: [U, row_dim] for ids [U], or [row_dim] for a scalar id."""
    return tf.gather(table, ids)

  def read_all(self, state: Any, table: tf.Tensor) -> tf.Tensor:
    """Returns the up-to-date table, float32 [n, row_dim]."""
    return self.catch_up(state, table)[1]

  def next(
    self,
    state: Any,
    table: tf.Tensor,
    ids: tf.Tensor,
    gradients: tf.Tensor,
    has_update: tf.Tensor,
    after: After = unchanged,
  ) -> tuple[Any, tf.Tensor, Any]:
    """Returns (state, table, the second result of `after`) after a step.

    `ids` int32 [U] are distinct. `gradients` [U, row_dim] are the gradients of these rows at the
    values that `read` returns. Other rows have zero gradients. If `has_update` is False, nothing
    changes. `after` changes the new rows before the optimizer writes them. If `has_update` is
    False, `after` gets no rows.
    """

  def catch_up(self, state: Any, table: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """Returns (state, table) with all pending row updates applied."""
    return state, table


@dataclasses.dataclass(frozen=True)
class Dense(TableOptimizer):
  """Applies any optimizer to all rows. Rows that were not requested have zero gradients."""

  optimizer: tff.learning.optimizers.Optimizer

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec)

  def next(self, state, table, ids, gradients, has_update, after=unchanged):
    def step():
      scattered = tf.scatter_nd(ids[:, None], gradients, table.shape)
      return self.optimizer.next(state, table, scattered)

    new_state, moved = tf.cond(has_update, step, lambda: (state, table))
    ids = none_without(has_update, ids)
    rows, more = after(ids, tf.gather(moved, ids))
    return new_state, put(moved, ids, rows), more


def none_without(has_update: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
  """Returns `values` [U, ...], or an empty tensor [0, ...] if `has_update` is False."""
  return values[: tf.where(has_update, tf.shape(values)[0], 0)]


def put(old: tf.Tensor, ids: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
  """Returns `old` [n, ...] with the rows `ids` [U] replaced by `new` [U, ...]."""
  return tf.tensor_scatter_nd_update(old, ids[:, None], new)


@dataclasses.dataclass(frozen=True)
class RowMomentum(TableOptimizer):
  """SGD with momentum on all rows, v <- beta v + g, w <- w - lr v.

  A row that no client requested still moves by its momentum (FedSS, Algorithm 1, line 13). This
  optimizer computes the move when the row is read. j steps after the row's last update, its
  velocity is beta^j v, and its value is w - lr v beta (1 - beta^j) / (1 - beta).

  With a schedule, step t has the learning rate lr_t. Let t_0 be the step of the row's last update.
  The row then moves by - (sum over the j later steps of lr_t beta^(t - t_0)) v.

  The state has these entries:

    step: int32, the number of steps taken.
    last_step: int32 [n], the step up to which each row is up to date.
    velocity: float32 [n, row_dim], each row's velocity at its `last_step`.

  Without momentum, the state has only `step` if there is a schedule, and is empty otherwise.
  """

  learning_rate: float = 1.0
  momentum: float = 0.0
  schedule: Callable[[tf.Tensor], tf.Tensor] | None = None

  @property
  def reads_state(self) -> bool:
    return self.momentum > 0

  def initialize(self, table_spec):
    if not self.momentum and self.schedule:
      return collections.OrderedDict(step=tf.constant(0, tf.int32))
    if not self.momentum:
      return ()
    return collections.OrderedDict(
      step=tf.constant(0, tf.int32),
      last_step=tf.zeros(table_spec.shape[:1], tf.int32),
      velocity=tf.zeros(table_spec.shape, table_spec.dtype),
    )

  def _at(self, state, table, ids):
    """Returns the up-to-date (rows, velocity) of these ids."""
    of_rows = (tf.gather(t, ids) for t in (table, state['velocity'], state['last_step']))
    return self._moved(*of_rows, state['step'])

  def read(self, state, table, ids):
    return self._at(state, table, ids)[0] if self.momentum else tf.gather(table, ids)

  def next(self, state, table, ids, gradients, has_update, after=unchanged):
    ids, gradients = (none_without(has_update, t) for t in (ids, gradients))
    rate = self.learning_rate
    if self.schedule:
      rate = rate * self.schedule(state['step'])
    if not self.momentum:
      rows = tf.gather(table, ids) - rate * gradients
      rows, more = after(ids, rows)
      if self.schedule:
        step = state['step'] + tf.cast(has_update, tf.int32)
        state = collections.OrderedDict(step=step)
      return state, put(table, ids, rows), more
    rows, velocity = self._at(state, table, ids)
    velocity = self.momentum * velocity + gradients
    rows -= rate * velocity
    rows, more = after(ids, rows)
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
    table, velocity = self._moved(table, state['velocity'], state['last_step'], state['step'])
    last_step = tf.fill(state['last_step'].shape, state['step'])
    return (
      collections.OrderedDict(step=state['step'], last_step=last_step, velocity=velocity),
      table,
    )

  def _moved(self, rows, velocity, last_step, step):
    """Returns (rows, velocity) [..., row_dim] after the steps since `last_step` [...]."""
    waited = tf.cast(step - last_step, tf.float32)[..., None]
    # Use expm1, because 1 - beta^j loses digits if beta is near one.
    exponent = math.log(self.momentum) * waited
    if self.schedule:
      moved = rows - self._of_schedule(last_step, step)[..., None] * velocity
    else:
      factor = self.learning_rate * self.momentum / (1.0 - self.momentum)
      moved = rows + factor * tf.math.expm1(exponent) * velocity
    return moved, tf.exp(exponent) * velocity

  def _of_schedule(self, last_step, step):
    """Returns float32 [...], the sum of lr_t beta^(t - t_0) over steps since `last_step` [...]."""
    # Compute each distinct sum once, because many rows have the same last step.
    starts, places = tf.unique(tf.reshape(last_step, [-1]))
    most = math.ceil(math.log(_NEGLIGIBLE) / math.log(self.momentum))
    later = tf.maximum(step - tf.reduce_min(starts), 0)
    j = tf.range(tf.minimum(most, later))
    number = starts[:, None] + j  # The number of the step from t_0 + j to t_0 + j + 1.
    powers = tf.exp(math.log(self.momentum) * tf.cast(j + 1, tf.float32))
    terms = tf.where(number < step, self.schedule(number) * powers, 0.0)
    sums = self.learning_rate * tf.reduce_sum(terms, axis=1)
    return tf.reshape(tf.gather(sums, places), tf.shape(last_step))


@dataclasses.dataclass(frozen=True)
class LazyRows(TableOptimizer):
  """Updates only the requested rows, with any coordinate-wise optimizer.

  The result equals the optimizer on the whole table if every row is requested in every step, or if
  the optimizer is Adagrad. With Adam, the result differs. On the whole table, Adam's moments decay
  in every step, and a row moves even if no client requests it. Here, a row and its moments do not
  change until the row is requested again. The bias correction counts all steps. TensorFlow Addons'
  LazyAdam and PyTorch's SparseAdam do the same, except that they add epsilon before the bias
  correction. The state is the optimizer's state for the whole table.
  """

  optimizer: tff.learning.optimizers.Optimizer

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec)

  def next(self, state, table, ids, gradients, has_update, after=unchanged):
    ids, gradients = (none_without(has_update, t) for t in (ids, gradients))

    def of_table(value):
      return tf.convert_to_tensor(value).shape.rank > 0

    of_rows = collections.OrderedDict(
      (name, tf.gather(value, ids) if of_table(value) else value) for name, value in state.items()
    )
    new, rows = self.optimizer.next(of_rows, tf.gather(table, ids), gradients)
    rows, more = after(ids, rows)
    new_state = collections.OrderedDict(
      (
        name,
        put(value, ids, new[name]) if of_table(value) else tf.where(has_update, new[name], value),
      )
      for name, value in state.items()
    )
    return new_state, put(table, ids, rows), more
