"""Adds up or collects the rows that the clients of a cohort send.

Rows with the same id are added, or all rows are kept side by side. An accumulator has a few stacks
of growing size, so each row is copied only a few times. If rows are added, the accumulator has only
a few more rows than there are distinct ids.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# The largest number of rows in each stack of an accumulator, except the last stack, which has no
# bound.
_STACK_ROWS = (2**12, 2**14, 2**16)


class RowSums(NamedTuple):
  """Weighted sums of rows over a cohort."""

  ids: tf.Tensor  # int32 [U], distinct row ids, ascending.
  # float32 [U, row_dim], the sum of weight times row over the clients that sent the row.
  rows: tf.Tensor
  weights: tf.Tensor  # float32 [U], the sum of the weights of these clients.


class StackedRows(NamedTuple):
  """All clients' rows, side by side."""

  # int32 [R], row ids. If several clients sent a row, its id repeats.
  ids: tf.Tensor
  rows: tf.Tensor  # float32 [R, row_dim], as the clients sent them.
  weights: tf.Tensor  # float32 [R], the weight of the client that sent the row.


class RowUpdate(NamedTuple):
  """One client's rows, without padding."""

  ids: tf.Tensor  # int32 [S].
  rows: tf.Tensor  # float32 [S, row_dim], not yet weighted.
  weight: tf.Tensor  # float32 scalar.


def row_update(held, rows: tf.Tensor, weight: tf.Tensor) -> RowUpdate:
  """Returns a client's update without padding. A client with weight zero sends no rows.

  `held` describes N places for rows. `rows` has a row for each place, or only for the first places
  if all other places are padding.
  """
  slots = tf.shape(rows)[0]
  sent = tf.logical_and(held.mask[:slots], weight > 0)
  ids = tf.boolean_mask(held.ids[:slots], sent)
  return RowUpdate(ids, tf.boolean_mask(rows, sent), weight)


def add_by_id(*sums: RowSums) -> RowSums:
  """Adds entries with the same id, in argument order. The ids of the result ascend."""
  ids, place = tf.unique(tf.concat([s.ids for s in sums], axis=0))
  order = tf.argsort(ids)
  place = tf.gather(tf.math.invert_permutation(order), place)

  # `tf.zeros` could become a constant, but `_with` changes these tensors in place.
  def zeros(like):
    return tf.raw_ops.Empty(shape=[tf.size(ids), *like.shape[1:]], dtype=like.dtype, init=True)

  first = sums[0]
  total = RowSums(tf.gather(ids, order), zeros(first.rows), zeros(first.weights))
  places = tf.split(place, [tf.size(s.ids) for s in sums])
  for at, each in zip(places, sums, strict=True):
    total = _with(each, at, total)
  return total


def grown(sums: RowSums, more: RowSums) -> RowSums:
  """Adds `more` to `sums`, whose ids are distinct, and appends new ids.

  The function adds in the same order as `add_by_id`, in less time.
  """
  held = tf.size(sums.ids)
  ids, place = tf.unique(tf.concat([sums.ids, more.ids], axis=0))
  # Add at least one row. `tf.pad` by zero rows would return its argument, not a copy.
  new = tf.maximum(tf.size(ids) - held, 1)
  # Without this stateful op, two calls with the same sums and ids would share one tensor.
  new += tf.raw_ops.Empty(shape=[], dtype=tf.int32, init=True)

  def longer(t):
    return tf.pad(t, [[0, new], *[[0, 0]] * (t.shape.rank - 1)])

  total = RowSums(ids, longer(sums.rows), longer(sums.weights))
  total = _with(more, place[held:], total)
  return RowSums(ids, total.rows[: tf.size(ids)], total.weights[: tf.size(ids)])


def _with(more: RowSums, place: tf.Tensor, total: RowSums) -> RowSums:
  """Returns `total` with the k entries `more` added one by one at the indices `place` int32 [k].

  The rows and weights of `total` change in place, so no other code may use them.
  """
  pairs = ((total.rows, more.rows), (total.weights, more.weights))

  def apart():
    return [tf.raw_ops.InplaceAdd(x=x, i=place, v=v) for x, v in pairs]

  def repeated():
    # On a GPU, `InplaceAdd` would lose additions to a repeated place. `tensor_scatter_nd_add` takes
    # four times as long.
    at = place[:, None]
    return [tf.tensor_scatter_nd_add(x, at, v) for x, v in pairs]

  distinct = tf.equal(tf.size(tf.unique(place).y), tf.size(place))
  return RowSums(total.ids, *tf.cond(distinct, apart, repeated))


def side_by_side(*stacks):
  """Returns the entries of all stacks, one after the other."""
  return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *stacks)


def pushed(stacks: list, new, grow: Callable, most: Sequence[int]) -> list:
  """Returns the stacks of an accumulator after adding the entries `new`.

  `most` has the largest number of entries of each stack, except the last one. A stack with more
  entries is merged into the next stack by `grow`. The last stack has the oldest entries. The tensor
  `ids` of a stack counts its entries.
  """

  def folded(stacks: list, level: int) -> list:
    if level == len(most):
      return stacks

    def into_the_next():
      following = grow(stacks[level + 1], stacks[level])
      empty = tf.nest.map_structure(lambda t: t[:0], stacks[level])
      changed = [*stacks[:level], empty, following, *stacks[level + 2 :]]
      return folded(changed, level + 1)

    full = tf.size(stacks[level].ids) > most[level]
    return tf.cond(full, into_the_next, lambda: stacks)

  return folded([side_by_side(stacks[0], new), *stacks[1:]], 0)


def all_rows(rows: tf.Tensor, total_weight: tf.Tensor) -> RowSums:
  """Returns `RowSums` if every client of a cohort sends all n rows. `rows` are the sums."""
  count = rows.shape[0]
  return RowSums(tf.range(count), rows, tf.fill([count], total_weight))


def aggregation(
  entry: Any,
  join: Callable,
  most: Sequence[int],
  value_type: tff.Type | None = None,
  entries_of: Callable = lambda value: value,
  grow: Callable | None = None,
):
  """Returns (zero, accumulate, merge, report) for `tff.federated_aggregate` with stacks.

  Args:
    entry: a structure of `tf.TensorSpec`s for one entry. One spec has the name `ids`. The tensors
      of a stack have one more axis.
    join: merges all stacks into the report.
    most: the largest number of entries of each stack, see `pushed`.
    value_type: the type of a client's value. None: the value is a stack.
    entries_of: converts a client's value to a stack.
    grow: merges two stacks into one. None: `join`.
  """
  grow = grow or join
  # The type of an accumulator leaves the lengths of its stacks open.
  stack_type = tff.to_type(
    tf.nest.map_structure(lambda s: tff.TensorType(s.dtype.as_numpy_dtype, [None, *s.shape]), entry)
  )
  stacks_type = tff.to_type([stack_type] * (len(most) + 1))

  @tff.tensorflow.computation
  def zero():
    def empty(s):
      return tf.raw_ops.PlaceholderWithDefault(
        input=tf.zeros([0, *s.shape], s.dtype), shape=[None, *s.shape]
      )

    return [tf.nest.map_structure(empty, entry)] * (len(most) + 1)

  @tff.tensorflow.computation(stacks_type, value_type or stack_type)
  def accumulate(stacks, value):
    return pushed(stacks, entries_of(value), grow, most)

  @tff.tensorflow.computation(stacks_type, stacks_type)
  def merge(a, b):
    return pushed(a, join(*reversed(b)), grow, most)

  @tff.tensorflow.computation(stacks_type)
  def report(stacks):
    return join(*reversed(stacks))

  return zero, accumulate, merge, report


@functools.cache  # Building the computation takes half a second.
def build(row_dim: int, stacked: bool = False, num_rows: int | None = None):
  """Returns a federated computation {RowUpdate}@CLIENTS -> `RowSums`@SERVER.

  With `stacked`, the result is `StackedRows` with all clients' rows. With `num_rows`,
  clients send all rows, and `()` in place of ids.
  """
  kind = StackedRows if stacked else RowSums
  entry = kind(tf.TensorSpec([], tf.int32), tf.TensorSpec([row_dim]), tf.TensorSpec([]))
  update_type = tff.to_type(
    RowUpdate(
      () if num_rows else tff.TensorType(np.int32, [None]),
      tff.TensorType(np.float32, [num_rows, row_dim]),
      tff.TensorType(np.float32),
    )
  )

  def entries_of(update):
    ids, rows, weight = update.ids, update.rows, update.weight
    if num_rows:
      size = tf.where(weight > 0, num_rows, 0)
      ids, rows = tf.range(size), rows[:size]
    weights = tf.fill([tf.size(ids)], weight)
    return kind(ids, rows if stacked else rows * weight, weights)

  join, grow = (side_by_side, None) if stacked else (add_by_id, grown)
  zero, *functions = aggregation(entry, join, _STACK_ROWS, update_type, entries_of, grow)

  @tff.federated_computation(tff.FederatedType(update_type, tff.CLIENTS))
  def fold(updates):
    return tff.federated_aggregate(updates, zero(), *functions)

  return fold
