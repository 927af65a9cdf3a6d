"""Compression of messages: stochastic quantization of what clients send, or bfloat16.

Suresh, Yu, Kumar, McMahan: "Distributed Mean Estimation with Limited Communication",
ICML 2017, arXiv:1611.00429. Each tensor of the encoder's change, and each row of a
table's, is a vector x of its own. It is sent as its least and its largest number, and
the others as one of k = 2^bits levels between them, evenly apart: of the two levels
next to a number, each with the probability that makes its mean the number (section 2.2).
So a mean over clients is unbiased, with an error that falls with their number.

The error grows with the distance of the largest number from the least. A rotation of x
makes its numbers alike first: H D x / sqrt(d), with a Hadamard matrix H, random signs D
that all clients of a round share, and x padded by zeros to d numbers, a power of 2
(section 3). The server rotates back.

In a simulation this is a round trip on the client, which then sends what the server
would have decoded: the model has the very error, and `tff_xc.measure.communication`
counts the bytes.

With `Bfloat16`, a client also receives its weights rounded.
"""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tff_xc.round import randomness

_RANGE_BYTES = 8  # Two floats, the least and the largest number.
# Of `randomness.noise_seed`, no part of the model.
_SIGNS = -1
_BLOCK = 64  # A power of 2.


@dataclasses.dataclass(frozen=True)
class Compression:
  """How a client's change is compressed.

  Attributes:
    bits: of a number, at most 16; more than that, float32 cannot round fairly.
    rotate: whether vectors are rotated before.
    both_ways: whether what a client receives is compressed, too.
  """

  bits: int = 8
  rotate: bool = False

  both_ways = False

  def size(self, numbers: int) -> int:
    """Returns the bytes of a vector, in whole bytes."""
    padded = _padded(numbers) if self.rotate else numbers
    return -(-padded * self.bits // 8) + _RANGE_BYTES if numbers else 0

  def decoded(self, rows: tf.Tensor, signs_seed: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns what the server decodes of `rows` float32 [N, d], each one a vector.

    `signs_seed` int32 [2] is of the rotation, and `seed` int32 [2] of the rounding.
    """
    if not self.rotate:
      return _rounded(rows, 2**self.bits - 1, seed)
    dim = rows.shape[1]
    padded = _padded(dim)
    signs = tf.random.stateless_uniform([padded], signs_seed, 0, 2, tf.int32)
    signs = tf.cast(2 * signs - 1, tf.float32)
    wide = tf.pad(rows, [[0, 0], [0, padded - dim]])
    found = _rounded(_hadamard(wide * signs), 2**self.bits - 1, seed)
    found = (_hadamard(found) * signs)[:, :dim]
    return tf.ensure_shape(found, rows.shape)  # Lost by reshaping.


@dataclasses.dataclass(frozen=True)
class Bfloat16:
  """Numbers in half precision, rounded to the nearest, of two to the even one."""

  both_ways = True

  def size(self, numbers: int) -> int:
    """Returns the bytes of a vector."""
    return numbers * tf.bfloat16.size

  def received(self, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the float32 numbers that arrive of `tensor` float32."""
    return tf.cast(tf.cast(tensor, tf.bfloat16), tf.float32)

  def decoded(self, rows: tf.Tensor, signs_seed: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns `received` rows; nothing is drawn."""
    del signs_seed, seed
    return self.received(rows)


def of_client(
  compression: Compression | Bfloat16,
  delta: collections.OrderedDict,
  changes: collections.OrderedDict,
  round_seed: tf.Tensor,
  seed: tf.Tensor,
) -> tuple[Any, Any]:
  """Returns (encoder's delta, changed rows by table) as the server decodes them.

  `round_seed` int32 [2] is the round's, and `seed` int32 [2] the client's.
  """
  signs_seed = randomness.noise_seed(round_seed, _SIGNS)
  parts = iter(range(len(delta) + len(changes)))

  def decoded(rows):
    part = next(parts)
    return compression.decoded(
      rows, randomness.step_seed(signs_seed, part), randomness.step_seed(seed, part)
    )

  # A tensor is one vector, and a table's rows are vectors each.
  def flat(t):
    return tf.reshape(t, [1, t.shape.num_elements()])

  delta = type(delta)((name, tf.reshape(decoded(flat(t)), t.shape)) for name, t in delta.items())
  changes = type(changes)((name, decoded(t)) for name, t in changes.items())
  return delta, changes


def _padded(numbers: int) -> int:
  """Returns the least power of 2 that is no less."""
  return 1 << max(numbers - 1, 0).bit_length()


def _rounded(rows: tf.Tensor, steps: int, seed: tf.Tensor) -> tf.Tensor:
  """Returns each number at one of `steps` + 1 levels of its row."""
  least = tf.reduce_min(rows, axis=1, keepdims=True)
  step = (tf.reduce_max(rows, axis=1, keepdims=True) - least) / steps
  uniform = tf.random.stateless_uniform(tf.shape(rows), seed)
  level = tf.floor(tf.math.divide_no_nan(rows - least, step) + uniform)
  # The sum may have been rounded up.
  return least + step * tf.minimum(level, float(steps))


def _hadamard(rows: tf.Tensor) -> tf.Tensor:
  """Returns the Walsh-Hadamard transform of each row [d], a power of 2, over sqrt(d).

  Of d = a b, it is that of a and then that of b, each one a product by a small matrix:
  few large steps take less time than log2(d) small ones.
  """
  dim = left = rows.shape[1]
  while left > 1:
    size = min(left, _BLOCK)
    left //= size
    # The first axis goes to the end: after all of them, they are in their order.
    parts = tf.reshape(rows, [-1, size, dim // size])
    parts = tf.reshape(tf.transpose(parts, [0, 2, 1]), [-1, size])
    rows = tf.reshape(parts @ _matrix(size), [-1, dim])
  return rows * dim**-0.5


def _matrix(size: int) -> tf.Tensor:
  """Returns Sylvester's matrix: -1 where row and column share an odd number of bits."""
  i = tf.range(size)
  shared = tf.bitwise.bitwise_and(i[:, None], i)
  count = tf.cast(tf.raw_ops.PopulationCount(x=shared), tf.int32)
  return tf.cast(1 - 2 * (count % 2), tf.float32)
