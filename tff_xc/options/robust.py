"""Bounds on client updates: updates that exceed a bound are zeroed or clipped.

The results equal those of `tff.learning.robust_aggregator` digit for digit. Zeroing replaces an
update by zeros if any number in it exceeds a bound. Clipping scales an update down if its L2 norm
exceeds another bound. Both bounds follow quantiles of the clients' norms (Andrew, Thakkar, McMahan,
Ramaswamy: "Differentially Private Learning with Adaptive Clipping", 2019, arXiv:1905.03871),
without noise.

A norm covers a client's whole update: the encoder and the client's rows of every table. Rows that
the client did not receive did not change. The norm therefore equals the norm of the client's change
of the whole model. The result equals the result of TFF's aggregator on whole models, whichever rows
the client requested. Separate norms of encoder and rows would change an update's direction without
bounding anything more.

If clients send rows instead of changes (FedAwS, TurboSVM-FL), the bounds apply to the change from
the rows that the clients received.

Here the client applies the bounds. A deployment should apply the bounds on the server, because a
corrupted client may also have corrupted bounds.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option
from tff_xc.round import parts

_BOTH = 'zeroing+clipping'
MEDIAN, TRIMMED_MEAN = 'median', 'trimmed_mean'


@hp.declared
class Robust(option.Option):
  """Adds bounds on updates, or replaces the mean by a median or trimmed mean."""

  robust_aggregation: str = hp.field(
    'none',
    "defense against harmful updates. 'zeroing': drop an update if one of its numbers is far"
    " above those of other clients; 'clipping': limit the L2 norm of an update. The bounds of"
    " 'zeroing' and 'clipping' adapt to the clients, as in tff.learning.robust_aggregator."
    " 'median', 'trimmed_mean': for each number of an update, take the median or the trimmed mean"
    ' over the clients that send it, all with equal weights',
    choices=('none', 'zeroing', 'clipping', _BOTH, MEDIAN, TRIMMED_MEAN),
  )
  clipping_norm: float = hp.field(
    1.0,
    'with --robust_aggregation=clipping or zeroing+clipping: L2 norm to which updates are clipped'
    ' in the first round',
    above=0,
    of='robust_aggregation',
    only_with=('clipping', _BOTH),
  )
  clipping_quantile: float = hp.field(
    0.8,
    'with --robust_aggregation=clipping or zeroing+clipping: adapt the clipping norm to this'
    " quantile of the norms of the clients' updates",
    above=0,
    most=1,
    of='robust_aggregation',
    only_with=('clipping', _BOTH),
  )
  trimmed_fraction: float = hp.field(
    0.1,
    'with --robust_aggregation=trimmed_mean: beta. For each number of an update, the trimmed mean'
    " drops this share of the clients' values at each end, rounded up to whole clients. 0: the"
    ' mean',
    least=0,
    most=0.5,
    of='robust_aggregation',
    only_with=(TRIMMED_MEAN,),
  )

  def added(self, algorithm, facts):
    kind = self.robust_aggregation
    if kind == 'none':
      return algorithm
    if kind in (MEDIAN, TRIMMED_MEAN):
      from tff_xc.round import trimming

      return trimming.trimmed(
        algorithm, trimming.MEDIAN if kind == MEDIAN else self.trimmed_fraction
      )
    clipping = dataclasses.replace(
      CLIPPING, initial=self.clipping_norm, quantile=self.clipping_quantile
    )
    return algorithm.with_part(
      Bounds(ZEROING if 'zeroing' in kind else None, clipping if 'clipping' in kind else None)
    )


@dataclasses.dataclass(frozen=True)
class Quantile:
  """A bound that follows a quantile C of the clients' norms.

  Each round multiplies C by exp(rate * (quantile - share of norms up to C)). The
  bound is `multiplier` C + `increment`.
  """

  initial: float  # C of the first round.
  quantile: float  # The share of the clients' norms that C should reach or exceed.
  rate: float
  multiplier: float = 1.0
  increment: float = 0.0

  def bound(self, state: tf.Tensor) -> tf.Tensor:
    """Returns the bound of a round. `state` is C."""
    return self.multiplier * state + self.increment

  def next(self, state, votes: tf.Tensor, of_round: parts.Round) -> tf.Tensor:
    """Returns C after a round. C does not change if every update was dropped."""
    # The order of operations is the same as in TFF's `PrivateQuantileEstimationProcess`, so that
    # all digits are equal. A client adds 1/2 minus its vote to the sum. A dropped client has the
    # norm 0, so its vote is 0.
    clients = of_round.clients
    share = (0.5 * clients - votes) / clients + 0.5
    following = state * tf.exp(-(self.rate * (share - self.quantile)))
    return tf.where(of_round.weight > 0, following, state)


# The bounds of `tff.learning.robust_aggregator`.
ZEROING = Quantile(10.0, 0.98, math.log(10.0), 2.0, 1.0)
CLIPPING = Quantile(1.0, 0.8, 0.2)


@dataclasses.dataclass(frozen=True)
class Bounds(parts.Part):
  """Bounds the clients' updates. The state has the current C of each bound, by name."""

  name = 'bounds'

  # The bound on an update's largest number, above which the update is zeroed; None: no zeroing.
  zeroing: Quantile | None = ZEROING
  # The bound on the L2 norm, to which larger updates are scaled down; None: no clipping.
  clipping: Quantile | None = CLIPPING

  @property
  def bounds(self) -> Mapping[str, Quantile]:
    """The bounds in use, in the order in which they apply."""
    each = ('zeroing', self.zeroing), ('clipping', self.clipping)
    return collections.OrderedDict((n, q) for n, q in each if q is not None)

  @property
  def metrics(self) -> tuple[str, ...]:
    """The names of a round's metrics, which are columns of metrics.csv."""
    return tuple(m for n in self.bounds for m in METRICS[n])

  def initial(self):
    return collections.OrderedDict(
      (name, tf.constant(quantile.initial, tf.float32)) for name, quantile in self.bounds.items()
    )

  def sent(self, local):
    state, limits, votes = local.received, collections.OrderedDict(), collections.OrderedDict()
    for name, quantile in self.bounds.items():
      limits[name] = quantile.bound(state[name])
    change, norms, exceeded = bounded(local.change, limits)
    for name, norm in norms.items():  # A vote is 1 if the norm is above C.
      votes[name] = tf.cast(norm > state[name], tf.float32)
    reply = collections.OrderedDict(votes=votes, exceeded=exceeded)
    return parts.Answer(reply=reply, change=change)

  def on_server(self, state, total, of_round, merged):
    following, measured = collections.OrderedDict(), {}
    for name, quantile in self.bounds.items():
      votes, count = total['votes'][name], total['exceeded'][name]
      following[name] = quantile.next(state[name], votes, of_round)
      values = count, quantile.bound(state[name])
      measured.update(zip(METRICS[name], values, strict=True))
    return parts.Next(following, metrics=measured)


METRICS = {
  'zeroing': ('clients_zeroed', 'zeroing_norm'),
  'clipping': ('clients_clipped', 'clipping_norm'),
}


def bounded(change: Any, bounds: Mapping[str, tf.Tensor]):
  """Returns a client's change after all bounds are applied in order, the norms, and the excesses.

  The change is a structure of float32 tensors. The norms and excesses are float32 scalars by name
  of the bound. An excess is 1 if the norm is above the bound, otherwise 0.
  """
  norms, exceeded = collections.OrderedDict(), collections.OrderedDict()
  for name, bound in bounds.items():
    norm, reduced = _OF[name](change, bound)
    above = norm > bound
    change = tf.cond(above, reduced, lambda change=change: change)
    norms[name], exceeded[name] = norm, tf.cast(above, tf.float32)
  return change, norms, exceeded


def _zeroing(change, bound):
  """Returns (the largest absolute value in the change, a function that returns zeros)."""
  sizes = [tf.reduce_max(tf.abs(t)) for t in tf.nest.flatten(change)]
  # A tensor without numbers has a maximum of minus infinity.
  norm = tf.reduce_max([tf.constant(0.0), *sizes])
  return norm, lambda: tf.nest.map_structure(tf.zeros_like, change)


def _clipping(change, bound):
  """Returns (the change's L2 norm, a function that returns it scaled to the norm `bound`)."""
  # The order of operations is the same as in TFF, so that all digits are equal.
  squares = [tf.norm(t, ord=2) ** 2 for t in tf.nest.flatten(change)]
  norm = tf.sqrt(tf.reduce_sum([tf.constant(0.0), *squares]))
  divisor = norm / bound
  return norm, lambda: tf.nest.map_structure(lambda t: t / divisor, change)


_OF = {'zeroing': _zeroing, 'clipping': _clipping}
