"""Coordinate-wise medians and trimmed means of the clients' updates.

Yin, Chen, Ramchandran, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, arXiv:1803.01498. For each number of an update, the server sorts the
clients' values, drops the share beta at each end, and takes the mean of the remaining values. beta
= 1/2 gives the median, and beta = 0 gives the mean. The server drops ceil(beta c) of c values at
each end, but keeps at least one value, or two if c is even.

All clients have equal weights. Otherwise a client could claim more examples to get more influence.
A client without examples, or with an update that is not finite, does not count.

The values of a row come only from clients that received the row. If other clients counted as zeros,
the median of a row that fewer than half of the clients received would be zero. Rare classes would
then never be learned.

A merge uses the trimmed mean in place of a mean. `merge.SumRows` multiplies the trimmed mean by
the share of clients that received the row. With beta = 0, the result equals the mean of
`merge.SumRows` with equal weights. `merge.SumRows` with `row_renormalise`, and `merge.ReplaceRows`,
do not multiply by this share.

Because only the clients that received a row decide its change, the row is only as safe as the
majority of these clients. If an attacker is the only client that received a row, the attacker alone
decides the row's change. `merge.SumRows` divides this change by the number of clients. Bounds
(`tff_xc.options.robust`) do not depend on the number of clients that received a row.

The server needs the unencrypted updates of all clients side by side. This takes memory for K
encoders and all rows sent, and secure sums are not possible.
"""

import collections
import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors
from tff_xc.round import folding, merge as merge_lib, optimizers

MEDIAN = 0.5
# The largest number of encoder updates in each stack of an accumulator, see `folding`.
_MOST = (4, 16, 64)


def _left_out(counts: tf.Tensor, fraction: float) -> tf.Tensor:
  """Returns how many of `counts` int32 [...] values are dropped at each end."""
  # A product such as 0.07 * 100 may be just above a whole number.
  wanted = tf.math.ceil(fraction * tf.cast(counts, tf.float64) - 1e-9)
  most = tf.maximum(counts - 1, 0) // 2
  return tf.minimum(tf.cast(wanted, tf.int32), most)


def trimmed_mean(values: tf.Tensor, fraction: float) -> tf.Tensor:
  """Returns the trimmed means over the first axis of float32 [K, ...]; 0 if K is 0."""
  count = tf.shape(values)[0]
  out = _left_out(count, fraction)
  kept = tf.sort(values, axis=0)[out : count - out]
  return tf.math.divide_no_nan(tf.reduce_sum(kept, 0), tf.cast(count - 2 * out, tf.float32))


def trimmed_rows(stacked: folding.StackedRows, fraction: float) -> folding.RowSums:
  """Returns the trimmed mean of each row, times the weight of the clients that sent the row.

  The function sorts all numbers of the stack, which needs a few times the stack's memory.
  """
  order = tf.argsort(stacked.ids, stable=True)
  ids, place, counts = tf.unique_with_counts(tf.gather(stacked.ids, order))
  values = tf.transpose(tf.gather(stacked.rows, order))
  # Sort each column by row, then by value: a sort by value, then a stable sort by row.
  by_value = tf.argsort(values, axis=1)
  by_row = tf.argsort(tf.gather(place, by_value), axis=1, stable=True)
  by_both = tf.gather(by_value, by_row, batch_dims=1)
  ascending = tf.transpose(tf.gather(values, by_both, batch_dims=1))

  out = _left_out(counts, fraction)
  first = tf.cumsum(counts, exclusive=True)
  rank = tf.range(tf.size(place)) - tf.gather(first, place)
  kept = tf.logical_and(rank >= tf.gather(out, place), rank < tf.gather(counts - out, place))
  sums = tf.math.segment_sum(tf.where(kept[:, None], ascending, 0.0), place)
  weights = tf.math.segment_sum(tf.gather(stacked.weights, order), place)
  scale = tf.math.divide_no_nan(weights, tf.cast(counts - 2 * out, tf.float32))
  return folding.RowSums(ids, sums * scale[:, None], weights)


@dataclasses.dataclass(frozen=True)
class TrimmedRows:
  """Does the same as `merge`, but with trimmed means over the clients that sent a row.

  Attributes:
    merge: the `merge.SumRows` or `merge.ReplaceRows` that sends rows and updates the table.
    fraction: beta, at most 1/2.
  """

  merge: merge_lib.SumRows
  fraction: float

  sends_rows = True

  @property
  def sends_deltas(self) -> bool:
    return self.merge.sends_deltas

  @property
  def takes_optimizer(self) -> bool:
    return self.merge.takes_optimizer

  def sent(self, before, after):
    return self.merge.sent(before, after)

  def build(self, num_rows, row_dim, selects):
    fold = merge_lib.side_by_side(num_rows, row_dim, selects)

    @tff.tensorflow.computation
    def joined(stacked):
      if selects:
        return trimmed_rows(stacked, self.fraction)
      # Each client sent all rows, in order.
      each = tf.reshape(stacked.rows, [-1, num_rows, row_dim])
      weight = tf.reduce_sum(tf.reshape(stacked.weights, [-1, num_rows])[:, 0])
      mean = trimmed_mean(each, self.fraction)
      return folding.all_rows(mean * weight, weight)

    return lambda held, rows, update: tff.federated_map(joined, fold(held, rows, update.weight))

  def next(self, optimizer, state, table, merged, total_weight, after=optimizers.unchanged):
    return self.merge.next(optimizer, state, table, merged, total_weight, after)


class _Stack(NamedTuple):
  """The updates of all clients with positive weight, side by side."""

  ids: tf.Tensor  # int32 [K], zeros; their number is the number of updates.
  value: Any


@dataclasses.dataclass(frozen=True)
class TrimmedMean(tff.aggregators.WeightedAggregationFactory):
  """Aggregates named tensors by trimmed means over clients with positive weight."""

  fraction: float  # beta, at most 1/2.

  def create(self, value_type, weight_type):
    fraction = self.fraction
    spec = collections.OrderedDict(
      (name, tf.TensorSpec(t.shape, t.dtype)) for name, t in tff.structure.iter_elements(value_type)
    )
    entry = _Stack(tf.TensorSpec([], tf.int32), spec)

    def alone(update):
      value, weight = update
      count = tf.cast(weight > 0, tf.int32)
      value = tf.nest.map_structure(lambda t: tf.repeat(t[None], count, axis=0), value)
      return _Stack(tf.zeros([count], tf.int32), value)

    update_type = tff.to_type((value_type, weight_type))
    zero, *functions = folding.aggregation(entry, folding.side_by_side, _MOST, update_type, alone)

    @tff.tensorflow.computation
    def means(stack):
      return tf.nest.map_structure(lambda t: trimmed_mean(t, fraction), stack.value)

    @tff.federated_computation
    def initialize():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      stacked = tff.federated_aggregate(tff.federated_zip((value, weight)), zero(), *functions)
      return tff.templates.MeasuredProcessOutput(
        state, tff.federated_map(means, stacked), tff.federated_value((), tff.SERVER)
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def trimmed(algorithm, fraction: float):
  """Returns the algorithm with trimmed means on the server and equal client weights.

  Raises `errors.InputError` for a table whose merge is not a mean.
  """
  tables = []
  for table in algorithm.tables:
    found = table.merge
    if found.sends_rows:
      if not isinstance(found, merge_lib.SumRows):
        raise errors.InputError(
          f'the server does not average the rows of the table {table.name!r}, so'
          ' there is no median or trimmed mean of them: choose an algorithm other'
          ' than turbosvm, or --robust_aggregation=clipping'
        )
      table = dataclasses.replace(table, merge=TrimmedRows(found, fraction))
    tables.append(table)
  return dataclasses.replace(
    algorithm, tables=tuple(tables), model_aggregator=TrimmedMean(fraction), weighting='uniform'
  )
