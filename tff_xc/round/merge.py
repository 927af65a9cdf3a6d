"""Question 3: how are the clients' row updates joined?

Clients send (ids, rows), and the server adds rows of the same id. Merging thus
never needs all n rows, neither on a client nor in an accumulator. The
accumulator is a few stacks of growing size. A full stack is added by id to the
next one, so the accumulator holds few more rows than the cohort has distinct
ids, and copies each row only a few times. If every row is requested, clients
send no ids, and the server sums the rows in place.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# Most rows in each stack of an accumulator; the last stack has no bound.
_STACK_ROWS = (2**12, 2**14, 2**16)


class RowSums(NamedTuple):
  """Weighted sums of row deltas over a cohort.

  Attributes:
    ids: int32 [U], distinct class ids, ascending.
    rows: float32 [U, row_dim], sum of weight times delta over the clients that
      hold the class.
    weights: float32 [U], sum of the weights of these clients.
  """

  ids: tf.Tensor
  rows: tf.Tensor
  weights: tf.Tensor


class RowUpdate(NamedTuple):
  """One client's row deltas, without padding.

  Attributes:
    ids: int32 [S].
    rows: float32 [S, row_dim], deltas, not yet weighted.
    weight: float32 scalar.
  """

  ids: tf.Tensor
  rows: tf.Tensor
  weight: tf.Tensor


def row_update(held, row_delta: tf.Tensor, weight: tf.Tensor) -> RowUpdate:
  """Returns a client's row update for the classes `held`, padding removed.

  A client of weight zero sends no rows.

  Args:
    held: the classes held, in N slots.
    row_delta: float32 [N, row_dim], or only the rows of the first slots, if all
      other slots are padding.
    weight: float32 scalar.
  """
  slots = tf.shape(row_delta)[0]
  sent = tf.logical_and(held.mask[:slots], weight > 0)
  ids = tf.boolean_mask(held.ids[:slots], sent)
  return RowUpdate(ids, tf.boolean_mask(row_delta, sent), weight)


def add_by_id(*sums: RowSums) -> RowSums:
  """Adds entries of the same id in argument order; the result's ids ascend."""
  ids, place = tf.unique(tf.concat([s.ids for s in sums], axis=0))
  order = tf.argsort(ids)
  place = tf.gather(tf.math.invert_permutation(order), place)
  places = tf.split(place[:, None], [tf.size(s.ids) for s in sums])

  def add(name: str):
    first = getattr(sums[0], name)
    total = tf.zeros([tf.size(ids), *first.shape[1:]], first.dtype)
    # Added one by one and in place: concatenated rows would be one more copy.
    for at, each in zip(places, sums, strict=True):
      total = tf.tensor_scatter_nd_add(total, at, getattr(each, name))
    return total

  return RowSums(tf.gather(ids, order), add('rows'), add('weights'))


def _joined(*sums: RowSums) -> RowSums:
  parts = zip(*sums, strict=True)
  return RowSums(*[tf.concat(part, axis=0) for part in parts])


def _folded(stacks: list[RowSums], level: int = 0) -> list[RowSums]:
  """Returns the stacks of an accumulator, none above its bound."""
  if level == len(_STACK_ROWS):
    return stacks

  def into_the_next():
    following = add_by_id(stacks[level + 1], stacks[level])
    empty = tf.nest.map_structure(lambda t: t[:0], stacks[level])
    changed = [*stacks[:level], empty, following, *stacks[level + 2 :]]
    return _folded(changed, level + 1)

  full = tf.size(stacks[level].ids) > _STACK_ROWS[level]
  return tf.cond(full, into_the_next, lambda: stacks)


def all_rows(rows: tf.Tensor, total_weight: tf.Tensor) -> RowSums:
  """Returns the sums of a cohort in which every client holds every row.

  Args:
    rows: float32 [n, row_dim], the weighted sum of deltas.
    total_weight: float32 scalar.
  """
  count = rows.shape[0]
  return RowSums(tf.range(count), rows, tf.fill([count], total_weight))


@functools.cache  # Building it takes half a second.
def build_sparse_sum(row_dim: int):
  """Returns a federated computation: {RowUpdate}@CLIENTS -> RowSums@SERVER."""
  update_type = tff.to_type(
    RowUpdate(
      tff.TensorType(np.int32, [None]),
      tff.TensorType(np.float32, [None, row_dim]),
      tff.TensorType(np.float32),
    )
  )
  sums_type = tff.to_type(
    RowSums(
      tff.TensorType(np.int32, [None]),
      tff.TensorType(np.float32, [None, row_dim]),
      tff.TensorType(np.float32, [None]),
    )
  )

  def of_any_length(tensor):  # Drops the static length: the type has none.
    return tf.raw_ops.PlaceholderWithDefault(
      input=tensor, shape=[None, *tensor.shape[1:]]
    )

  @tff.tensorflow.computation
  def zero():
    empty = RowSums(
      of_any_length(tf.zeros([0], tf.int32)),
      of_any_length(tf.zeros([0, row_dim])),
      of_any_length(tf.zeros([0])),
    )
    return [empty] * (len(_STACK_ROWS) + 1)

  accumulator_type = tff.to_type([sums_type] * (len(_STACK_ROWS) + 1))

  @tff.tensorflow.computation(accumulator_type, update_type)
  def accumulate(stacks, update):
    weights = tf.fill([tf.size(update.ids)], update.weight)
    new = RowSums(update.ids, update.rows * update.weight, weights)
    return _folded([_joined(stacks[0], new), *stacks[1:]])

  @tff.tensorflow.computation(accumulator_type, accumulator_type)
  def merge(a, b):
    empty = tf.nest.map_structure(lambda t: of_any_length(t[:0]), a[0])
    total = add_by_id(*reversed(a), *reversed(b))
    return [empty] * len(_STACK_ROWS) + [total]

  @tff.tensorflow.computation(accumulator_type)
  def report(stacks):
    return add_by_id(*reversed(stacks))

  @tff.federated_computation(tff.FederatedType(update_type, tff.CLIENTS))
  def sparse_sum(updates):
    return tff.federated_aggregate(updates, zero(), accumulate, merge, report)

  return sparse_sum


@dataclasses.dataclass(frozen=True)
class AddRows:
  """Averages row deltas over the weight of the whole cohort.

  A client that does not hold a class counts as a zero delta (FedSS, Algorithm
  1, line 7, with n_tot over all K clients).

  Another merge (such as one that keeps every client's rows separately) defines
  the same two methods. The server's table steps receive its result.

  Attributes:
    row_renormalise: divide by the weight of only those clients that hold the
      class; not in the paper.
  """

  row_renormalise: bool = False

  def _weight(self, update):
    """Returns the weight@CLIENTS of a client's rows in the sums."""
    return update.weight

  def build(self, row_dim: int, selects: bool):
    """Returns a function from values at clients to RowSums@SERVER.

    It takes (held: `HeldClasses`, row_delta, update: `ClientUpdate`). Call it
    within a federated computation.

    Args:
      row_dim: length of a class row.
      selects: whether clients hold selected rows; otherwise they hold all.
    """
    if selects:
      message = tff.tensorflow.computation(row_update)
      sparse_sum = build_sparse_sum(row_dim)
      return lambda held, row_delta, update: sparse_sum(
        tff.federated_map(message, (held, row_delta, self._weight(update)))
      )
    weighted = tff.tensorflow.computation(lambda rows, weight: rows * weight)
    as_sums = tff.tensorflow.computation(all_rows)

    def dense_sum(held, row_delta, update):
      del held  # Every client holds every row.
      weight = self._weight(update)
      rows = tff.federated_map(weighted, (row_delta, weight))
      return tff.federated_map(
        as_sums, (tff.federated_sum(rows), tff.federated_sum(weight))
      )

    return dense_sum

  def delta(self, sums: RowSums, total_weight: tf.Tensor) -> tf.Tensor:
    """Returns float32 [U, row_dim], the mean deltas of `sums.ids`."""
    if self.row_renormalise:
      return tf.math.divide_no_nan(sums.rows, sums.weights[:, None])
    return tf.math.divide_no_nan(sums.rows, total_weight)


@dataclasses.dataclass(frozen=True)
class ReplaceRows(AddRows):
  """A row becomes the mean of the rows that its class's clients sent (FedAwS).

  Rows are averaged with the clients' example counts as weights, whatever
  `weighting` the encoder uses. If a single client holds a class, its row
  replaces the old one (FedAwS, Algorithm 1, line 13). Rows of absent classes
  do not change. The server's table optimizer must be SGD of rate 1 without
  momentum.
  """

  row_renormalise: bool = True

  def _weight(self, update):
    return update.measured['examples']


@dataclasses.dataclass(frozen=True)
class KeepRows(AddRows):
  """Clients send no rows; the table does not change (FedAwS's Baseline-2)."""

  def build(self, row_dim: int, selects: bool):
    del selects

    @tff.tensorflow.computation
    def nothing():
      return RowSums(
        tf.zeros([0], tf.int32), tf.zeros([0, row_dim]), tf.zeros([0])
      )

    return lambda held, row_delta, update: tff.federated_eval(
      nothing, tff.SERVER
    )
