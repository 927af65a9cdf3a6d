"""Derives random numbers that depend only on (seed, round, client, purpose)."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

from tff_xc.lazy import tf


class Purpose(enum.IntEnum):
  """The uses of a client's random numbers. Each use has its own stream.

  Table 0 of an algorithm has the number NEGATIVES. Table i > 0 has TABLES + i - 1.
  """

  NEGATIVES = 0
  ORDER = 1
  ENCODER = 2
  TABLES = 3


class Lasting(NamedTuple):
  """The source of random choices that a client keeps over several rounds."""

  seed: tf.Tensor  # int32 [2], the client's seed for the whole run.
  round_number: tf.Tensor  # int32 scalar, the number of rounds before this one.


def pair(seed: int) -> list[int]:
  """Returns a run's seed as two int32 numbers."""
  return [seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF]


def _fold(seed: tf.Tensor, data) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(seed[:2], data)


def round_seed(seed: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
  """Returns the seed of a round, int32 [5]. `seed` is the run's seed, int32 [2].

  The first two numbers of the result seed the draws of this round. The run's seed and the round
  number follow, because `lasting` and `number_of` need them.
  """
  number = tf.cast(round_number, tf.int32)[None]
  return tf.concat([_fold(seed, round_number), seed, number], axis=0)


def number_of(seed: tf.Tensor) -> tf.Tensor:
  """Returns the round number, int32, given the round's seed int32 [5]."""
  return seed[4]


def private(seed: tf.Tensor, secret: Sequence[int]) -> tf.Tensor:
  """Returns the seed of the same round in a run with the seed `secret`, two int32 numbers."""
  return round_seed(tf.constant([*secret], tf.int32), number_of(seed))


def client_seed(seed: tf.Tensor, client_id: tf.Tensor, purpose: int):
  """Returns a client's seed [2] for a purpose in a round.

  `seed` is the round's seed. The result has the same dtype.
  """
  return _fold(_fold(seed, client_id), tf.constant(int(purpose), seed.dtype))


def lasting(seed: tf.Tensor, client_id: tf.Tensor, purpose: int) -> Lasting:
  """Returns a client's `Lasting` source; `seed` int32 [5] is the round's seed."""
  return Lasting(client_seed(seed[2:4], client_id, purpose), number_of(seed))


def step_seed(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns the seed [2] of a step or epoch, derived from `seed`.

  The result depends on only 32 bits of an int32 `seed`, and on all bits of an int64 `seed` (see
  `wide`).
  """
  if seed.dtype == tf.int64:
    step = tf.cast(step, tf.int64)
  return _fold(seed, step)


def noise_seed(seed: tf.Tensor, part: int) -> tf.Tensor:
  """Returns the seed [2] of the server's noise on a part of the model.

  `seed` is the seed of a run or a round, or the result of `wide`. This function first folds in -1.
  No client has the id -1, so the result differs from the clients' seeds.
  """
  return step_seed(step_seed(seed, -1), part)


def wide(seed: tf.Tensor) -> tf.Tensor:
  """Returns a seed int64 [2] that depends on all bits of the run's seed.

  Secret noise uses this seed. A seed derived from int32 numbers has only 32 bits, and an attacker
  could try all of them. `seed` is the run's seed, int32 [2], or a round's seed, int32 [5].
  """
  if seed.shape[0] == 2:
    return tf.cast(seed, tf.int64)
  return step_seed(tf.cast(seed[2:4], tf.int64), number_of(seed))


# Constants of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
# Generators", OOPSLA 2014): the step between states, and the mix of a state. _STREAM,
# another odd number, is the step between streams.
_STEP, _STREAM = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
_MIX = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)


def mixed(state: tf.Tensor) -> tf.Tensor:
  """Returns 64 random bits for each state, uint64."""
  for shift, factor in _MIX:
    shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
    state = tf.bitwise.bitwise_xor(state, shifted)
    state = state * tf.constant(factor, tf.uint64)
  return state


def random_bits(seed: tf.Tensor, streams: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
  """Returns 64 random bits, uint64, for each pair of a stream and a number.

  `seed` is int32 [2]. `streams` and `numbers` are integers of shapes that broadcast together. Each
  result depends only on the seed, the stream and the number. With TensorFlow's generators, a result
  would also depend on its place in the tensor. Do not use this function for secret numbers, because
  a few results reveal the seed.
  """

  def times(x, odd):
    return tf.cast(x, tf.uint64) * tf.constant(odd, tf.uint64)

  start = mixed(tf.bitcast(seed, tf.uint64) + times(streams, _STREAM))
  return mixed(start + times(numbers, _STEP))


# Constants of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy
# as 1, 2, 3", SC 2011): the factors of its rounds, and the steps of its key.
_ROUNDS, _FACTORS = 10, (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def _low(x: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.bitwise_and(x, tf.constant(2**32 - 1, tf.uint64))


def _high(x: tf.Tensor) -> tf.Tensor:
  return tf.bitwise.right_shift(x, tf.constant(32, tf.uint64))


def philox(key: int | tf.Tensor, counter: Sequence) -> list[tf.Tensor]:
  """Returns four words of 32 random bits, uint64, for a counter of four such words.

  Unlike `random_bits`, this function does not reveal its `key`, a uint64 scalar.
  """
  xor = tf.bitwise.bitwise_xor
  keys = [_low(tf.cast(key, tf.uint64)), _high(tf.cast(key, tf.uint64))]
  words = [tf.cast(word, tf.uint64) for word in counter]
  for _ in range(_ROUNDS):
    first, second = (
      word * tf.constant(factor, tf.uint64)
      for word, factor in zip(words[::2], _FACTORS, strict=True)
    )
    words = [
      xor(xor(_high(second), words[1]), keys[0]),
      _low(second),
      xor(xor(_high(first), words[3]), keys[1]),
      _low(first),
    ]
    keys = [
      _low(each + tf.constant(step, tf.uint64)) for each, step in zip(keys, _KEY_STEPS, strict=True)
    ]
  return words


def row_normals(
  seed: tf.Tensor, streams: tf.Tensor, ids: tf.Tensor, row_dim: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns two tensors of standard normals, float32 [S, ..., row_dim], for ids int32 [...].

  `streams` is int32 [S]. Each normal depends only on `seed` (int32 or int64 [2]), the stream, the
  row's id and the column, not on which other rows are drawn.
  """
  one_each = tf.ones(ids.shape.rank + 1, tf.int32)
  streams = tf.reshape(streams, tf.concat([[-1], one_each], 0))
  ids = tf.cast(ids, tf.int64)[..., None]
  if seed.dtype == tf.int64:  # The seed is secret.
    bits = _secret_bits(seed, streams, ids, row_dim)
  else:
    number = ids * row_dim + tf.range(1, row_dim + 1, dtype=tf.int64)
    bits = random_bits(seed, streams, number)
  # Box-Muller transform of the upper and the lower half of the bits. `unit` is never 0, so the
  # logarithm is finite.
  upper = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))

  def unit(x):
    return (tf.cast(tf.cast(x, tf.uint32), tf.float32) + 0.5) * 2.0**-32

  radius, angle = (tf.sqrt(-2.0 * tf.math.log(unit(upper))), 2 * math.pi * unit(bits))
  return radius * tf.cos(angle), radius * tf.sin(angle)


def _secret_bits(seed, streams, ids, row_dim: int) -> tf.Tensor:
  """Returns 64 random bits for each number of the rows, uint64 [S, ..., row_dim]."""
  width = -(-row_dim // 2)  # Each counter gives the bits of two columns.
  number = ids * width + tf.range(width, dtype=tf.int64)
  unsigned, number = tf.bitcast(seed, tf.uint64), tf.cast(number, tf.uint64)
  shape = tf.broadcast_dynamic_shape(tf.shape(number), tf.shape(streams))
  number = tf.broadcast_to(number, shape)
  words = philox(
    unsigned[0], [_low(number), _high(number), tf.cast(streams, tf.uint64), _low(unsigned[1])]
  )
  half = tf.constant(2**32, tf.uint64)
  bits = tf.stack([words[0] * half + words[1], words[2] * half + words[3]], -1)
  whole = tf.concat([shape[:-1], [2 * width]], 0)
  return tf.reshape(bits, whole)[..., :row_dim]
