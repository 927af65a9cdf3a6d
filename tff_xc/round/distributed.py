"""Distributed differential privacy: clients add the noise, and a secure sum hides each.

Each client scales its clipped change to integers, rounds at random, and adds noise of
the difference of two Poisson variables; the server sees the sum of all clients modulo
2^b, which has noise of z C: Agarwal, Kairouz, Liu: "The Skellam Mechanism for
Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995. So nobody
has to trust the server with a single update, nor with drawing noise.

`tff.learning.ddp_secure_aggregator` does the same with one rotated vector; it seeds
noise by the clock, so that no run could be repeated. Here noise follows from the run's
seed, round and client. There is no rotation: the scale leaves room for the sum of m
changes in the same number, at the cost of log2(m) bits or less. The result wraps only
by noise of more than eight standard deviations.

It needs tables that all clients receive and send whole: a sum by ids would show the ids.
"""

import collections
import dataclasses
import math
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import folding, merge, randomness

# Standard deviations of noise for which there is room.
_ROOM = 8.0
# TensorFlow's Poisson variables of 1e15 have a wrong mean; these are far from it.
_MOST_STDDEV = 4e5


@dataclasses.dataclass(frozen=True)
class Integers:
  """The integers that clients send in place of changes.

  Attributes:
    bits: b; sums are modulo 2^b.
    scale: factor of a change's numbers before they are rounded.
    stddev: standard deviation of the noise on one client's integer.
  """

  bits: int
  scale: float
  stddev: float

  @classmethod
  def of(cls, bits: int, noise: float, clip: float, cohort: float):
    """Returns those for noise of z times C on the sum of m clients."""
    room = clip * (cohort + _ROOM * noise)
    scale = (2.0 ** (bits - 1) - cohort) / room
    own = noise * clip / math.sqrt(cohort)
    if own:
      scale = min(scale, _MOST_STDDEV / own)
    return cls(bits, scale, own * scale)

  def hidden(self, value: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns int64, from 0 to 2^b - 1, of a client's float32 change.

    `seed` [2] is of this client and tensor.
    """
    scaled = tf.cast(value, tf.float64) * self.scale
    low = tf.floor(scaled)
    chance = tf.random.stateless_uniform(
      tf.shape(value), randomness.step_seed(seed, 0), dtype=tf.float64
    )
    number = tf.cast(low, tf.int64) + tf.cast(chance < scaled - low, tf.int64)
    if self.stddev:
      rate = tf.constant([self.stddev**2 / 2.0] * 2, tf.float64)
      pairs = tf.random.stateless_poisson(
        tf.concat([tf.shape(value), [2]], 0), randomness.step_seed(seed, 1), rate, tf.int64
      )
      number += pairs[..., 0] - pairs[..., 1]
    return tf.math.floormod(number, 2**self.bits)

  def revealed(self, total: tf.Tensor) -> tf.Tensor:
    """Returns float32, the sum of changes with noise, of a sum of integers."""
    half = 2 ** (self.bits - 1)
    centred = tf.math.floormod(total + half, 2**self.bits) - half
    return tf.cast(tf.cast(centred, tf.float64) / self.scale, tf.float32)

  def secure_sum(self, values):
    """Returns the sum@SERVER, as `revealed`, of a structure of int64@CLIENTS."""
    total = tff.federated_secure_sum_bitwidth(values, self.bits)
    reveal = tff.tensorflow.computation(lambda totals: tf.nest.map_structure(self.revealed, totals))
    return tff.federated_map(reveal, total)

  def distance(self, clip: float, numbers: int) -> float:
    """Returns how far two clients' integers are apart at most, in the L2 norm."""
    # Rounding moves each number by less than one; digits of the norm get lost.
    return 2.0 * (clip * self.scale * (1.0 + 1e-5) + math.sqrt(numbers))


def of_client(integers: Integers, delta, rows, seed) -> tuple[Any, Any]:
  """Returns (encoder's delta, rows by table) of a client as integers with noise.

  `seed` [2] is the client's, for noise.
  """
  parts = iter(range(len(delta) + len(rows)))

  def hide(value):
    return integers.hidden(value, randomness.step_seed(seed, next(parts)))

  def each(values):
    return [(name, hide(value)) for name, value in values.items()]

  return type(delta)(each(delta)), collections.OrderedDict(each(rows))


@dataclasses.dataclass(frozen=True)
class SecretRows(merge.SumRows):
  """Adds whole tables of integers by a secure sum."""

  integers: Integers | None = None
  cohort: float = 1.0

  def build(self, num_rows, row_dim, selects):
    @tff.tensorflow.computation
    def as_sums(rows):
      rows = tf.ensure_shape(rows, [num_rows, row_dim])
      return folding.all_rows(rows, tf.constant(self.cohort))

    return lambda held, rows, update: tff.federated_map(as_sums, self.integers.secure_sum(rows))


class SecretEncoder(merge.EncoderMean):
  """The sum of the encoder's integers over m."""

  def __init__(self, integers: Integers, cohort: float):
    self._integers, self._cohort = integers, cohort

  def initialize(self):
    return tff.federated_value((), tff.SERVER)

  def __call__(self, state, update):
    total = self._integers.secure_sum(update.encoder_delta)
    over = tff.tensorflow.computation(
      lambda totals: tf.nest.map_structure(lambda t: t / self._cohort, totals)
    )
    nothing = tff.federated_value((), tff.SERVER)
    return tff.templates.MeasuredProcessOutput(state, tff.federated_map(over, total), nothing)

  def measured(self, metrics, measurements):
    del measurements
    return metrics
