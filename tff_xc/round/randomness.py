"""Random numbers that depend only on (seed, round, client, purpose)."""

import enum
import math

import tensorflow as tf


class Purpose(enum.IntEnum):
  """The uses of a client's random numbers; each has its own stream.

  The numbers from TABLES on are those of the tables after the first.
  """

  NEGATIVES = 0
  ORDER = 1
  ENCODER = 2
  TABLES = 3


def pair(seed: int) -> list[int]:
  """Returns a run's seed as two numbers of int32."""
  return [seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF]


def _fold(seed: tf.Tensor, data) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(seed, data)


def round_seed(seed: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a round; `seed` is the run's, int32 [2]."""
  return _fold(seed, round_number)


def client_seed(seed: tf.Tensor, client_id: tf.Tensor, purpose: int):
  """Returns a client's seed int32 [2] in the round whose seed is `seed`."""
  return _fold(_fold(seed, client_id), int(purpose))


def step_seed(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a step or epoch under `seed`."""
  return _fold(seed, step)


def noise_seed(seed: tf.Tensor, part: int) -> tf.Tensor:
  """Returns the seed int32 [2] of the server's noise on a part of the model.

  `seed` is a run's or a round's, whose other uses fold numbers that are not negative.
  """
  return _fold(_fold(seed, -1), part)


# Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers:
# As Easy as 1, 2, 3", SC 2011): rotations, and the parity of the key schedule.
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def threefry(key: tuple, counter: tuple) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns two words of random bits of each counter.

  `key` and `counter` are pairs of uint32, which broadcast. TensorFlow's own generators
  count within a tensor; here a number depends on its own counter only.
  """
  word = lambda number: tf.constant(number, tf.uint32)
  bits = tf.bitwise

  def rotated(x, by):
    left = bits.left_shift(x, word(by))
    return bits.bitwise_or(left, bits.right_shift(x, word(32 - by)))

  last = bits.bitwise_xor(bits.bitwise_xor(*key), word(_PARITY))
  schedule = (*key, last)
  a, b = counter[0] + key[0], counter[1] + key[1]
  for i in range(20):
    a = a + b
    b = bits.bitwise_xor(rotated(b, _ROTATIONS[i % 8]), a)
    if i % 4 == 3:
      step = i // 4 + 1
      a = a + schedule[step % 3]
      b = b + schedule[(step + 1) % 3] + word(step)
  return a, b


def row_normals(
  seed: tf.Tensor, ids: tf.Tensor, row_dim: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns two float32 [..., row_dim] of standard normals, for ids int32 [...].

  A row's numbers depend on `seed` and its id only, whichever others are drawn.
  """
  key = tf.unstack(tf.bitcast(seed, tf.uint32))
  row, column = tf.cast(ids, tf.uint32)[..., None], tf.range(row_dim)
  a, b = threefry(key, (row, tf.cast(column, tf.uint32)))
  # Box-Muller; never the logarithm of 0.
  unit = lambda x: (tf.cast(x, tf.float32) + 0.5) * 2.0**-32
  radius, angle = tf.sqrt(-2.0 * tf.math.log(unit(a))), 2 * math.pi * unit(b)
  return radius * tf.cos(angle), radius * tf.sin(angle)
