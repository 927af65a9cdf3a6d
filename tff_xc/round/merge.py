"""Question 3: how are the clients' row updates joined?

Rows travel as (ids, rows) and are added up on the server by id, so that neither
a client nor an accumulator ever holds n rows because of them. Where every row
is requested there are no ids, and rows are summed in place.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class RowSums(NamedTuple):
  """Weighted sums of row deltas over a cohort.

  Attributes:
    ids: int32 [U], distinct class ids, ascending.
    rows: float32 [U, row_dim], sum over the clients that hold the class of
      weight times delta.
    weights: float32 [U], sum of the weights of these clients.
  """

  ids: tf.Tensor
  rows: tf.Tensor
  weights: tf.Tensor


class RowUpdate(NamedTuple):
  """One client's rows, without padding.

  Attributes:
    ids: int32 [S].
    rows: float32 [S, row_dim], deltas, not yet weighted.
    weight: float32 scalar.
  """

  ids: tf.Tensor
  rows: tf.Tensor
  weight: tf.Tensor


def row_update(held, row_delta: tf.Tensor, weight: tf.Tensor) -> RowUpdate:
  """Returns the message of a client that holds `held`, padding removed.

  A client of weight zero sends no rows.
  """
  sent = tf.logical_and(held.mask, weight > 0)
  return RowUpdate(
    tf.boolean_mask(held.ids, sent), tf.boolean_mask(row_delta, sent), weight
  )


def add_by_id(sums: RowSums) -> RowSums:
  """Adds up entries of the same id; ids come out ascending."""
  order = tf.argsort(sums.ids, stable=True)
  ids, segment = tf.unique(tf.gather(sums.ids, order))
  count = tf.size(ids)
  add = lambda t: tf.math.unsorted_segment_sum(
    tf.gather(t, order), segment, count
  )
  return RowSums(ids, add(sums.rows), add(sums.weights))


def all_rows(rows: tf.Tensor, total_weight: tf.Tensor) -> RowSums:
  """Returns the sums of a cohort in which everybody holds every row.

  Args:
    rows: float32 [n, row_dim], the weighted sum of deltas.
    total_weight: float32 scalar.
  """
  count = rows.shape[0]
  return RowSums(tf.range(count), rows, tf.fill([count], total_weight))


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

  def of_any_length(tensor):  # Forgets the static length, as the type asks.
    return tf.raw_ops.PlaceholderWithDefault(
      input=tensor, shape=[None, *tensor.shape[1:]]
    )

  @tff.tensorflow.computation
  def zero():
    return RowSums(
      of_any_length(tf.zeros([0], tf.int32)),
      of_any_length(tf.zeros([0, row_dim])),
      of_any_length(tf.zeros([0])),
    )

  def joined(a, b):
    parts = zip(a, b, strict=True)
    return RowSums(*[tf.concat(pair, axis=0) for pair in parts])

  @tff.tensorflow.computation(sums_type, update_type)
  def accumulate(sums, update):
    weights = tf.fill([tf.size(update.ids)], update.weight)
    return joined(
      sums, RowSums(update.ids, update.rows * update.weight, weights)
    )

  @tff.tensorflow.computation(sums_type, sums_type)
  def merge(a, b):
    return joined(a, b)

  @tff.tensorflow.computation(sums_type)
  def report(sums):
    return add_by_id(sums)

  @tff.federated_computation(tff.FederatedType(update_type, tff.CLIENTS))
  def sparse_sum(updates):
    return tff.federated_aggregate(updates, zero(), accumulate, merge, report)

  return sparse_sum


@dataclasses.dataclass(frozen=True)
class AddRows:
  """Row deltas are added up, and averaged over the whole cohort's examples.

  A client that does not hold a class counts as a zero delta (FedSS, Algorithm
  1, line 7, with n_tot over all K clients).

  Another merge (one that keeps every client's rows side by side, say) gives the
  same two methods; what it merges reaches the server's table steps.

  Attributes:
    row_renormalise: divide by the examples of the clients that hold the class
      instead; not in the paper.
  """

  row_renormalise: bool = False

  def _weight(self, update):
    """Returns the weight@CLIENTS that a client's rows are added with."""
    return update.weight

  def build(self, row_dim: int, selects: bool):
    """Returns a function of values at clients that gives RowSums@SERVER.

    It takes (held: `HeldClasses`, row_delta, update: `ClientUpdate`).

    Call it within a federated computation.

    Args:
      row_dim: length of a class row.
      selects: whether clients hold a selection of the rows, or all of them.
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

  The mean is weighted by the clients' examples, however the clients count in
  the mean of the encoder. With one client a class its row takes the place of
  the old one (FedAwS, Algorithm 1, line 13); rows of absent classes stay. The
  server's optimizer is to be SGD of rate 1 without momentum for that.
  """

  row_renormalise: bool = True

  def _weight(self, update):
    return update.measured['examples']


@dataclasses.dataclass(frozen=True)
class KeepRows(AddRows):
  """Clients send no rows, and the table stays as it is (Baseline-2 of FedAwS)."""

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
