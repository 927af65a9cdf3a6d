"""Distributed differential privacy: clients add the noise, and a secure sum hides updates.

Each client scales its clipped update, rounds it at random to integers, and adds the difference of
two Poisson variables as noise. The server sees only the sum of all clients modulo 2^b. The noise of
this sum has the standard deviation z C. Clients do not have to trust the server to hide single
updates or to draw the noise. The method is by Agarwal, Kairouz, Liu: "The Skellam Mechanism for
Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995.

`tff.learning.ddp_secure_aggregator` uses the same method, with two differences. TFF seeds the noise
by the clock, so runs cannot be repeated. Here the noise depends on the run's seed, the round and
the client. TFF also rotates the update as one vector. Here the update is not rotated. Instead, the
scale leaves room for the sum of m updates, which costs at most log2(m) bits. If at most m clients
participate, a sum wraps around only if its noise exceeds eight standard deviations.

All clients must receive and send whole tables, because sums by row id would reveal the ids.
"""

import collections
import dataclasses
import math
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import folding, merge, randomness

# The integers leave room for noise of this many standard deviations.
_ROOM = 8.0
# The largest standard deviation of the noise. TensorFlow draws wrong Poisson variables at rates
# near 1e15, and the rates here stay far below.
_MOST_STDDEV = 4e5


@dataclasses.dataclass(frozen=True)
class Integers:
  """The encoding of updates as integers.

  Attributes:
    bits: b. The server receives sums modulo 2^b.
    scale: the factor by which an update is multiplied before it is rounded.
    stddev: the standard deviation of the noise on each integer of a client.
  """

  bits: int
  scale: float
  stddev: float

  @classmethod
  def of(cls, bits: int, noise: float, clip: float, cohort: float):
    """Returns an encoding for which the sum over m clients has noise of standard deviation z C.

    z is `noise`, C is `clip`, and m is `cohort`.
    """
    room = clip * (cohort + _ROOM * noise)
    scale = (2.0 ** (bits - 1) - cohort) / room
    own = noise * clip / math.sqrt(cohort)
    if own:
      scale = min(scale, _MOST_STDDEV / own)
    return cls(bits, scale, own * scale)

  def hidden(self, value: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Encodes a client's float32 change, with noise, as int64 from 0 to 2^b - 1.

    `seed` [2] must be different for each client and tensor.
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
    """Decodes a sum of integers to float32, which gives the sum of changes with noise."""
    half = 2 ** (self.bits - 1)
    centred = tf.math.floormod(total + half, 2**self.bits) - half
    return tf.cast(tf.cast(centred, tf.float64) / self.scale, tf.float32)

  def secure_sum(self, values):
    """Returns the decoded sum@SERVER of a structure of int64@CLIENTS."""
    total = tff.federated_secure_sum_bitwidth(values, self.bits)
    reveal = tff.tensorflow.computation(lambda totals: tf.nest.map_structure(self.revealed, totals))
    return tff.federated_map(reveal, total)

  def distance(self, clip: float, numbers: int) -> float:
    """Returns the largest L2 distance between two clients' integers without noise."""
    # Rounding changes each number by less than one. The factor 1 + 1e-5 covers rounding errors of
    # the norm.
    return 2.0 * (clip * self.scale * (1.0 + 1e-5) + math.sqrt(numbers))


def of_client(integers: Integers, delta, rows, seed) -> tuple[Any, Any]:
  """Encodes a client's (encoder delta, rows by table) as integers with noise.

  `seed` [2] seeds the client's noise.
  """
  parts = iter(range(len(delta) + len(rows)))

  def hide(value):
    return integers.hidden(value, randomness.step_seed(seed, next(parts)))

  def each(values):
    return [(name, hide(value)) for name, value in values.items()]

  return type(delta)(each(delta)), collections.OrderedDict(each(rows))


@dataclasses.dataclass(frozen=True)
class SecretRows(merge.SumRows):
  """Sums whole tables of integers by a secure sum."""

  integers: Integers | None = None
  cohort: float = 1.0

  def build(self, num_rows, row_dim, selects):
    @tff.tensorflow.computation
    def as_sums(rows):
      rows = tf.ensure_shape(rows, [num_rows, row_dim])
      return folding.all_rows(rows, tf.constant(self.cohort))

    return lambda held, rows, update: tff.federated_map(as_sums, self.integers.secure_sum(rows))


class SecretEncoder(merge.EncoderMean):
  """Sums the encoder's integers by a secure sum, and divides by m."""

  _measured = ()

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
