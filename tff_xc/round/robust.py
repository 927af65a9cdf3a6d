"""Bounds on what one client can change: poisoned updates are zeroed or clipped.

As `tff.learning.robust_aggregator`, by TFF's own estimators: an update with a
number above one bound counts as no change, and one with an L2 norm above another
is scaled down to it. The bounds follow quantiles of the clients' norms (Andrew,
Thakkar, McMahan, Ramaswamy: "Differentially Private Learning with Adaptive
Clipping", 2019, arXiv:1905.03871), without noise.

A norm is of all that a client changed, the encoder and its rows of every table.
Rows that it did not hold did not change. So the norm is that of the client's change
of the whole model, and the result is that of TFF's aggregator on whole models,
whichever rows were requested. Two norms, of encoder and rows, would turn an
update's direction, and bound nothing that one norm does not bound.

Where clients send rows and not their changes (FedAwS, TurboSVM-FL), the change from
the rows that they received is bounded.

Who fills a client's memory with nonsense may also fill its bounds: a deployment
applies them where the updates arrive.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True)
class Quantile:
  """A bound that follows a quantile C of the clients' norms.

  Each round multiplies C by exp(rate * (quantile - share of norms up to C)). The
  bound is `multiplier` C + `increment`.
  """

  initial: float  # C of the first round.
  quantile: float  # The share of norms that C shall not be below.
  rate: float
  multiplier: float = 1.0
  increment: float = 0.0

  def build(self) -> tff.templates.EstimationProcess:
    """Returns TFF's process that estimates the bound."""
    return tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      self.initial, self.quantile, self.rate, self.multiplier, self.increment
    )


# Those of `tff.learning.robust_aggregator`.
ZEROING = Quantile(10.0, 0.98, math.log(10.0), 2.0, 1.0)
CLIPPING = Quantile(1.0, 0.8, 0.2)


@dataclasses.dataclass(frozen=True)
class Robust:
  """What bounds the clients' updates."""

  # The largest number of an update that is not zeroed, or None.
  zeroing: Quantile | None = ZEROING
  # The largest L2 norm, to which others are scaled down, or None.
  clipping: Quantile | None = CLIPPING

  def __post_init__(self):
    if not self.bounds:
      raise ValueError('give zeroing, clipping or both')

  @property
  def bounds(self) -> Mapping[str, Quantile]:
    """The bounds that there are, in the order in which they apply."""
    each = ('zeroing', self.zeroing), ('clipping', self.clipping)
    return collections.OrderedDict((n, q) for n, q in each if q is not None)

  @property
  def metrics(self) -> tuple[str, ...]:
    """Names of the numbers of a round; columns of metrics.csv."""
    return tuple(m for n in self.bounds for m in _METRICS[n])


_METRICS = {
  'zeroing': ('clients_zeroed', 'zeroing_norm'),
  'clipping': ('clients_clipped', 'clipping_norm'),
}


class Bounded(NamedTuple):
  """By bound, float32 scalars: what is compared with it, and 1 if it is above."""

  norms: collections.OrderedDict
  exceeded: collections.OrderedDict


def bounded(change: Any, bounds: Mapping[str, tf.Tensor]):
  """Returns (a client's change within the bounds, `Bounded`).

  The change is a structure of float32 tensors; bounds apply in their order.
  """
  norms, exceeded = collections.OrderedDict(), collections.OrderedDict()
  for name, bound in bounds.items():
    norm, reduced = _OF[name](change, bound)
    above = norm > bound
    change = tf.cond(above, reduced, lambda change=change: change)
    norms[name], exceeded[name] = norm, tf.cast(above, tf.float32)
  return change, Bounded(norms, exceeded)


def _zeroing(change, bound):
  """Returns (the largest size of a number, () -> zeros)."""
  del bound
  sizes = [tf.reduce_max(tf.abs(t)) for t in tf.nest.flatten(change)]
  # A tensor without numbers has a maximum of minus infinity.
  norm = tf.reduce_max([tf.constant(0.0), *sizes])
  return norm, lambda: tf.nest.map_structure(tf.zeros_like, change)


def _clipping(change, bound):
  """Returns (the L2 norm, () -> the change scaled down to `bound`)."""
  # In TFF's order of operations, for equal digits.
  squares = [tf.norm(t, ord=2) ** 2 for t in tf.nest.flatten(change)]
  norm = tf.sqrt(tf.reduce_sum([tf.constant(0.0), *squares]))
  divisor = norm / bound
  return norm, lambda: tf.nest.map_structure(lambda t: t / divisor, change)


_OF = {'zeroing': _zeroing, 'clipping': _clipping}


class State(NamedTuple):
  """The state of an encoder's aggregator, and of the bounds by name."""

  encoder: Any
  bounds: collections.OrderedDict


class Limits:
  """The server's bounds, if any; call its methods within a federated computation.

  A state is that of the encoder's aggregator, or `State` with it.
  """

  def __init__(self, robust: Robust | None):
    self._processes = collections.OrderedDict(
      (name, quantile.build())
      for name, quantile in (robust.bounds if robust else {}).items()
    )

  def initialize(self, encoder):
    """Returns the initial state@SERVER; `encoder` is that of the aggregator."""
    return self._joined(
      encoder, self._zipped(lambda name, process: process.initialize())
    )

  def of_encoder(self, state):
    """Returns the state@SERVER of the encoder's aggregator."""
    return state.encoder if self._processes else state

  def at_server(self, state) -> tuple:
    """Returns (this round's bounds@SERVER by name,), or ()."""
    return (self._bounds(state),) if self._processes else ()

  def at_clients(self, state) -> tuple:
    """Returns (this round's bounds@CLIENTS by name,), or ()."""
    return tuple(map(tff.federated_broadcast, self.at_server(state)))

  def next(self, state, encoder, update, total_weight):
    """Returns the state@SERVER after a round.

    A dropped client counts with a norm of 0; if nobody's update is left, bounds stay.
    """

    def after(name, process):
      @tff.tensorflow.computation
      def kept(new, old, weight):
        choose = lambda a, b: tf.where(weight > 0, a, b)
        return tf.nest.map_structure(choose, new, old)

      old = state.bounds[name]
      new = process.next(old, update.bounded.norms[name])
      return tff.federated_map(kept, (new, old, total_weight))

    return self._joined(encoder, self._zipped(after))

  def measured(self, metrics, state, update):
    """Returns the metrics@SERVER with the bounds of `state` and their counts."""
    if not self._processes:
      return metrics

    @tff.tensorflow.computation
    def added(metrics, bounds, counts):
      found = collections.OrderedDict(metrics)
      for name in self._processes:
        values = counts[name], bounds[name]
        found.update(zip(_METRICS[name], values, strict=True))
      return found

    counts = tff.federated_sum(update.bounded.exceeded)
    return tff.federated_map(added, (metrics, self._bounds(state), counts))

  def _bounds(self, state):
    report = lambda name, process: process.report(state.bounds[name])
    return self._zipped(report)

  def _joined(self, encoder, bounds):
    if not self._processes:
      return encoder
    return tff.federated_zip(State(encoder, bounds))

  def _zipped(self, of):
    if not self._processes:
      return None
    return tff.federated_zip(
      collections.OrderedDict((n, of(n, p)) for n, p in self._processes.items())
    )
