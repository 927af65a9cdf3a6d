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

With bfloat16, numbers are rounded to the nearest, and a client also receives its weights so.
"""

from __future__ import annotations

import collections

from tff_xc import precision
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option
from tff_xc.round import parts, randomness

_RANGE_BYTES = 8  # Two floats, the least and the largest number.
# Of `randomness.noise_seed`, no part of the model.
_SIGNS = -1
_BLOCK = 64  # A power of 2.


QUANTIZE, ROTATE = 'quantize', 'rotate_quantize'
# A client's purpose of randomness that is of no table.
_OF_ROUNDING = -2


@hp.declared
class Compression(option.Option):
  """How clients' changes are compressed, and with bfloat16 also what they receive."""

  name = 'compression'

  compression: str = hp.field(
    'none',
    "lossy compression of a client's update: 'quantize' rounds each number at random to one of"
    ' the levels between the smallest and the largest number of its row or tensor;'
    " 'rotate_quantize' first applies a random rotation, which makes the rounding errors smaller",
    choices=('none', QUANTIZE, ROTATE),
  )
  compression_bits: int = hp.field(
    8,
    'number of bits per number of a compressed update, which gives 2^bits levels',
    least=1,
    most=16,
    of='compression',
    not_with=('none',),
  )
  message_precision: str = hp.field(
    precision.FLOAT32,
    'number format of the weights and updates that clients receive and send. bfloat16 halves'
    " the bytes; the server's model stays float32",
    choices=precision.NAMES,
  )

  def added(self, algorithm, facts):
    if self.both_ways or self.compression != 'none':
      return algorithm.with_part(self)
    return algorithm

  @property
  def both_ways(self) -> bool:
    return self.message_precision == precision.BFLOAT16

  @property
  def rotates(self) -> bool:
    """Whether vectors are rotated before their numbers are rounded."""
    return self.compression == ROTATE

  def size(self, numbers: int) -> int:
    """Returns the bytes of a vector, in whole bytes."""
    if self.both_ways:
      return numbers * tf.bfloat16.size
    padded = _padded(numbers) if self.rotates else numbers
    return -(-padded * self.compression_bits // 8) + _RANGE_BYTES if numbers else 0

  def decoded(self, rows: tf.Tensor, signs_seed: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns what the server decodes of `rows` float32 [N, d], each one a vector.

    `signs_seed` int32 [2] is of the rotation, and `seed` int32 [2] of the rounding.
    """
    if self.both_ways:
      return _halved(rows)
    if not self.rotates:
      return _rounded(rows, 2**self.compression_bits - 1, seed)
    dim = rows.shape[1]
    padded = _padded(dim)
    signs = tf.random.stateless_uniform([padded], signs_seed, 0, 2, tf.int32)
    signs = tf.cast(2 * signs - 1, tf.float32)
    wide = tf.pad(rows, [[0, 0], [0, padded - dim]])
    found = _rounded(_hadamard(wide * signs), 2**self.compression_bits - 1, seed)
    found = (_hadamard(found) * signs)[:, :dim]
    return tf.ensure_shape(found, rows.shape)  # Lost by reshaping.

  def received(self, algorithm, weights):
    """Returns the weights as they arrive; those that clients hold already are not sent."""
    from tff_xc.round import frozen

    if not self.both_ways:
      return weights
    sent = {t.name for t in algorithm.tables if not frozen.is_held(algorithm, t)}
    held = algorithm.frozen - sent
    return type(weights)(
      *(
        collections.OrderedDict((n, t if n in held else _halved(t)) for n, t in part.items())
        for part in weights
      )
    )

  def sent(self, local):
    encoder, rows = local.change
    signs_seed = randomness.noise_seed(local.round_seed, _SIGNS)
    seed = randomness.client_seed(local.round_seed, local.client_id, _OF_ROUNDING)
    numbers = iter(range(len(encoder) + len(rows)))

    def decoded(rows):
      number = next(numbers)
      return self.decoded(
        rows, randomness.step_seed(signs_seed, number), randomness.step_seed(seed, number)
      )

    # A tensor is one vector, and a table's rows are vectors each.
    def flat(t):
      return tf.reshape(t, [1, t.shape.num_elements()])

    encoder = type(encoder)((n, tf.reshape(decoded(flat(t)), t.shape)) for n, t in encoder.items())
    rows = collections.OrderedDict((n, decoded(t)) for n, t in rows.items())
    # The range of large numbers may be infinite.
    sums = [tf.reduce_sum(t) for t in (*tf.nest.flatten(encoder), *rows.values())]
    return parts.Answer(
      change=(encoder, rows),
      # The server adds changes to its rows as they were before they were rounded.
      onto=local.of_server if self.both_ways else local.before.tables,
      is_finite=tf.reduce_all([tf.constant(True), *map(tf.math.is_finite, sums)]),
    )


def _halved(tensor: tf.Tensor) -> tf.Tensor:
  """Returns float32 numbers rounded to bfloat16, of two to the even one."""
  return tf.cast(tf.cast(tensor, tf.bfloat16), tf.float32)


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
