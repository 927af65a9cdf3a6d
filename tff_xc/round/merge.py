"""Question 3: how does the server merge the clients' rows and average encoder changes?

Clients send (ids, rows), and the server adds rows with the same id (`folding`). Neither a client
nor an accumulator therefore needs all n rows. If clients have all rows, they send no ids, and the
server adds whole tables. A merge may also keep the rows of all clients side by side.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import folding, optimizers


class Merge(Protocol):
  """Merges the rows of one table that the clients of a round send.

  Attributes:
    sends_rows: whether clients send rows at all.
    sends_deltas: whether clients send changes of rows instead of new rows; also True if clients
      send nothing.
    takes_optimizer: whether the server's optimizer updates the rows.
  """

  sends_rows: bool
  sends_deltas: bool
  takes_optimizer: bool

  def sent(self, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Returns the rows to send, given the rows before and after local training."""

  def build(self, num_rows: int, row_dim: int, selects: bool) -> Callable:
    """Returns a function from values at clients to the merged rows@SERVER.

    The function takes (held: `SelectedRows`, rows: the result of `sent`, update: `ClientUpdate`).
    `selects` is True if clients select rows, and False if they have all rows.
    """

  def next(
    self,
    optimizer: optimizers.TableOptimizer,
    state: Any,
    table: tf.Tensor,
    merged: Any,
    total_weight: tf.Tensor,
    after: optimizers.After = optimizers.unchanged,
  ) -> tuple[Any, tf.Tensor, Any]:
    """Returns (optimizer state, table [n, row_dim], the second result of `after`).

    `total_weight` is the sum of the cohort's weights. If it is 0, nothing changes. `after` changes
    the new rows, see `optimizers.TableOptimizer.next`.
    """


@dataclasses.dataclass(frozen=True)
class SumRows:
  """Averages the clients' changes of rows over the weight of the whole cohort.

  If a client did not receive a row, its change of this row counts as zero (FedSS, Algorithm 1, line
  12, with n_tot over all K clients).

  Attributes:
    row_renormalise: whether to divide the sum of a row's changes only by the weight of the clients
      that received this row. The paper divides by the weight of all clients.
    takes_optimizer: whether the table's optimizer applies the mean change.
    secure_bound: if not None, clients clip numbers to this absolute value, and a secure sum adds
      their whole tables (see `tff_xc.options.secure_sums`).
  """

  row_renormalise: bool = False
  takes_optimizer: bool = True
  secure_bound: float | None = None

  sends_rows = sends_deltas = True

  def sent(self, before, after):
    return after - before

  def _weight(self, update):
    return update.weight

  def build(self, num_rows, row_dim, selects):
    if selects:
      if self.secure_bound is not None:
        raise ValueError('secure sums are of whole tables')
      message = tff.tensorflow.computation(folding.row_update)
      fold = folding.build(row_dim)
      return lambda held, rows, update: fold(
        tff.federated_map(message, (held, rows, self._weight(update)))
      )
    weighted = tff.tensorflow.computation(lambda rows, weight: rows * weight)
    as_sums = tff.tensorflow.computation(folding.all_rows)
    sum_of = tff.federated_sum
    if self.secure_bound is not None:
      sum_of = _secure_sum(self.secure_bound, num_rows, row_dim)

    def dense_sum(held, rows, update):
      # Every client has every row.
      weight = self._weight(update)
      rows = tff.federated_map(weighted, (rows, weight))
      return tff.federated_map(as_sums, (sum_of(rows), tff.federated_sum(weight)))

    return dense_sum

  def mean(self, sums: folding.RowSums, total_weight: tf.Tensor) -> tf.Tensor:
    """Returns float32 [U, row_dim], the means of the rows with ids `sums.ids`."""
    if self.row_renormalise:
      return tf.math.divide_no_nan(sums.rows, sums.weights[:, None])
    return tf.math.divide_no_nan(sums.rows, total_weight)

  def next(self, optimizer, state, table, merged, total_weight, after=optimizers.unchanged):
    delta = self.mean(merged, total_weight)
    return optimizer.next(state, table, merged.ids, -delta, total_weight > 0, after)


def _secure_sum(bound: float, num_rows: int, row_dim: int) -> Callable:
  """Returns a function from float32 [n, row_dim]@CLIENTS to their secure sum."""
  process = tff.aggregators.SecureSumFactory(bound).create(
    tff.TensorType(np.float32, [num_rows, row_dim])
  )
  return lambda rows: process.next(process.initialize(), rows).result


@dataclasses.dataclass(frozen=True)
class ReplaceRows(SumRows):
  """Replaces a row by the mean of the rows that clients sent (FedAwS, line 13).

  The weights of the mean are the clients' numbers of examples, whatever the algorithm's `weighting`
  is. A row that no client sent does not change.
  """

  row_renormalise: bool = True
  takes_optimizer: bool = False

  sends_deltas = False

  def sent(self, before, after):
    return after

  def _weight(self, update):
    return update.measured['examples']

  def next(self, optimizer, state, table, merged, total_weight, after=optimizers.unchanged):
    ids, rows = (
      optimizers.none_without(total_weight > 0, t)
      for t in (merged.ids, self.mean(merged, total_weight))
    )
    rows, more = after(ids, rows)
    return state, optimizers.put(table, ids, rows), more


@dataclasses.dataclass(frozen=True)
class KeepRows:
  """Clients send no rows, and the table does not change (FedAwS's Baseline-2)."""

  sends_deltas = True
  sends_rows = takes_optimizer = False

  def sent(self, before, after):
    return before[:0]

  def build(self, num_rows, row_dim, selects):

    @tff.tensorflow.computation
    def nothing():
      return folding.RowSums(tf.zeros([0], tf.int32), tf.zeros([0, row_dim]), tf.zeros([0]))

    return lambda held, rows, update: tff.federated_eval(nothing, tff.SERVER)

  def next(self, optimizer, state, table, merged, total_weight, after=optimizers.unchanged):
    _, more = after(merged.ids, merged.rows)
    return state, table, more


def side_by_side(num_rows: int, row_dim: int, selects: bool) -> Callable:
  """Returns a function from (held, rows, weight) at clients to `folding.StackedRows`@SERVER.

  `Merge.build` explains the arguments.
  """
  fold = folding.build(row_dim, True, None if selects else num_rows)

  @tff.tensorflow.computation
  def message(held, rows, weight):
    if selects:
      return folding.row_update(held, rows, weight)
    return folding.RowUpdate((), rows, weight)

  return lambda held, rows, weight: fold(tff.federated_map(message, (held, rows, weight)))


@dataclasses.dataclass(frozen=True)
class StackRows:
  """Keeps the rows of all clients side by side, for a server step that merges them.

  Only server steps change the table.
  """

  sends_rows = True
  sends_deltas = takes_optimizer = False

  def sent(self, before, after):
    return after

  def build(self, num_rows, row_dim, selects):
    fold = side_by_side(num_rows, row_dim, selects)
    return lambda held, rows, update: fold(held, rows, update.measured['examples'])

  def next(self, optimizer, state, table, merged, total_weight, after=optimizers.unchanged):
    ids = tf.sort(tf.unique(merged.ids).y)
    ids = optimizers.none_without(total_weight > 0, ids)
    rows, more = after(ids, tf.gather(table, ids))
    return state, optimizers.put(table, ids, rows), more


_SUMS = (tff.aggregators.SumFactory, tff.aggregators.SecureSumFactory)
# A field in the state of `tff.aggregators.DifferentiallyPrivateFactory`. All TFF aggregators that
# add noise contain such a factory.
_DP = 'dp_event='


@tff.tensorflow.computation(np.float32)
def _counts(weight):
  return tf.cast(weight > 0, tf.float32)


def _leaves(found: Any, name: str) -> Iterator[tuple[str, Any]]:
  """Yields (name, leaf) for all leaves of a structure or of a structure's type."""
  if not isinstance(found, tff.structure.Struct):
    yield name, found
    return
  for i, (key, part) in enumerate(tff.structure.iter_elements(found)):
    yield from _leaves(part, f'{name}/{i if key is None else key}')


class EncoderMean:
  """Averages the encoder changes with a `tff.aggregators` factory of means.

  An unweighted factory averages over all clients. Clients without examples, or with a dropped
  update, count as zeros in its average. To leave them out, the result is multiplied by (number of
  clients / number of clients with positive weight).
  """

  def __init__(self, factory, specs: classifier.ModelWeights, rows: Sequence[str] = ()):
    """Takes the factory, specs of trained weights, and names of tables whose rows clients send."""
    if factory is None:
      factory = tff.aggregators.MeanFactory(no_nan_division=True)
    if isinstance(factory, _SUMS):
      raise ValueError(
        f'{type(factory).__name__} gives a sum of the deltas, and the server'
        ' needs a mean: give a factory of means, such as UnweightedMeanFactory'
      )
    value_type = tff.types.tensorflow_to_type(classifier.union(specs.encoder, specs.encoder_state))
    if not len(value_type):  # All weights are frozen. Some factories refuse empty values.
      factory = tff.aggregators.MeanFactory(no_nan_division=True)
    self._weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
    extra = [tff.TensorType(np.float32)] if self._weighted else []
    self._process = factory.create(value_type, *extra)
    if rows and _DP in str(self._process.initialize.type_signature):
      raise ValueError(
        'model_aggregator is differentially private, but would add noise only to the'
        f' encoder: clients also send rows of {", ".join(rows)}, which would reveal'
        ' what the noise should hide. Give an aggregator without noise, or an'
        ' algorithm that sends no rows'
      )

    @tff.tensorflow.computation(value_type, np.float32, np.float32)
    def over_those_who_count(mean, clients, counted):
      scale = tf.math.divide_no_nan(clients, counted)
      return tf.nest.map_structure(lambda t: tf.math.multiply_no_nan(t, scale), mean)

    self._over_those_who_count = over_those_who_count
    self.initialize = self._process.initialize
    found = self._process.next.type_signature.result.measurements.member
    self._measured = [
      name
      for name, part in _leaves(found, 'aggregator')
      if part.shape == () and np.issubdtype(part.dtype, np.number)
    ]

  def __call__(self, state, update):
    """Returns the aggregator's output for `ClientUpdate`s@CLIENTS."""
    delta, weight = update.encoder_delta, update.weight
    if self._weighted:
      return self._process.next(state, delta, weight)
    output = self._process.next(state, delta)
    counts = tff.federated_map(_counts, weight)
    everybody = tff.federated_value(1.0, tff.CLIENTS)
    result = tff.federated_map(
      self._over_those_who_count,
      (output.result, tff.federated_sum(everybody), tff.federated_sum(counts)),
    )
    return tff.templates.MeasuredProcessOutput(output.state, result, output.measurements)

  def measured(self, metrics, measurements):
    """Returns the metrics@SERVER together with the aggregator's scalar measurements."""
    if not self._measured:
      return metrics

    @tff.tensorflow.computation
    def added(metrics, measurements):
      parts = tff.structure.from_container(measurements, recursive=True)
      found = dict(_leaves(parts, 'aggregator'))
      return collections.OrderedDict(
        **metrics, **{n: tf.cast(found[n], tf.float32) for n in self._measured}
      )

    return tff.federated_map(added, (metrics, measurements))
