"""Compression of messages: stochastic quantization of client updates, or bfloat16.

Suresh, Yu, Kumar, McMahan: "Distributed Mean Estimation with Limited Communication", ICML 2017,
arXiv:1611.00429. Each tensor of the encoder's change, and each row of a table's change, is a
separate vector x. A client sends the smallest and the largest number of x, and rounds all numbers
to k = 2^bits evenly spaced levels between these two. The client rounds a number at random to one of
the two nearest levels, so that the expected value is the number itself (section 2.2). A mean over
clients is therefore unbiased, and its error falls with the number of clients.

The error grows with the distance between the smallest and the largest number. Therefore
'rotate_quantize' first rotates x to H D x / sqrt(d), which has numbers of similar size. H is a
Hadamard matrix, D has random signs that all clients of a round share, and zeros pad x to the length
d, a power of 2 (section 3). The server rotates back.

In a simulation, the client encodes and decodes its update and then sends the decoded numbers. The
model therefore has exactly the rounding error of a deployment, and `tff_xc.measure.communication`
counts the compressed bytes.

With bfloat16, each number is rounded to the nearest bfloat16 number, both in updates and in the
weights that clients receive.
"""

from __future__ import annotations

import collections

from tff_xc import precision
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option
from tff_xc.round import parts, randomness

_RANGE_BYTES = 8  # Two floats, the smallest and the largest number.
# The argument `part` of `randomness.noise_seed` for random signs. It differs
# from the numbers of the parts, which are from 0.
_SIGNS = -1
_BLOCK = 64  # A power of 2.


QUANTIZE, ROTATE = 'quantize', 'rotate_quantize'
# The purpose of a client's random numbers for rounding. It differs from the purposes of
# `randomness.Purpose` and of tables, which are numbers from 0.
_OF_ROUNDING = -2


@hp.declared
class Compression(option.Option):
  """Compresses client updates, and with bfloat16 also the weights that clients receive."""

  name = 'compression'

  compression: str = hp.field(
    'none',
    "lossy compression of a client's update. 'quantize': round each number at random to one of"
    ' the levels between the smallest and the largest number of its row or tensor;'
    " 'rotate_quantize': before rounding, apply a random rotation, which makes the rounding errors"
    ' smaller',
    choices=('none', QUANTIZE, ROTATE),
  )
  compression_bits: int = hp.field(
    8,
    'b, the number of bits per number of a compressed update, which then has one of 2^b levels',
    least=1,
    most=16,
    of='compression',
    not_with=('none',),
  )
  message_precision: str = hp.field(
    precision.FLOAT32,
    'number format of the weights that clients receive and of the updates that they send.'
    ' bfloat16 halves the number of bytes. The model on the server stays float32',
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
    """Returns the number of bytes of a compressed vector."""
    if self.both_ways:
      return numbers * tf.bfloat16.size
    padded = _padded(numbers) if self.rotates else numbers
    return -(-padded * self.compression_bits // 8) + _RANGE_BYTES if numbers else 0

  def decoded(self, rows: tf.Tensor, signs_seed: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the vectors `rows` float32 [N, d] as the server decodes them.

    `signs_seed` int32 [2] seeds the rotation, and `seed` int32 [2] seeds the rounding.
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
    return tf.ensure_shape(found, rows.shape)  # Reshaping lost the static shape.

  def received(self, algorithm, weights):
    """Returns the weights as they arrive. Weights that clients already have are not sent."""
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

    # An encoder tensor is one vector; each row of a table is a vector.
    def flat(t):
      return tf.reshape(t, [1, t.shape.num_elements()])

    encoder = type(encoder)((n, tf.reshape(decoded(flat(t)), t.shape)) for n, t in encoder.items())
    rows = collections.OrderedDict((n, decoded(t)) for n, t in rows.items())
    # Check the numbers again, because the difference of two large numbers may be infinite.
    sums = [tf.reduce_sum(t) for t in (*tf.nest.flatten(encoder), *rows.values())]
    return parts.Answer(
      change=(encoder, rows),
      # With bfloat16, clients add changes to the server's unrounded rows.
      onto=local.of_server if self.both_ways else local.before.tables,
      is_finite=tf.reduce_all([tf.constant(True), *map(tf.math.is_finite, sums)]),
    )


def _halved(tensor: tf.Tensor) -> tf.Tensor:
  """Returns float32 numbers rounded to bfloat16, with ties to even."""
  return tf.cast(tf.cast(tensor, tf.bfloat16), tf.float32)


def _padded(numbers: int) -> int:
  """Returns the smallest power of 2 that is at least `numbers`."""
  return 1 << max(numbers - 1, 0).bit_length()


def _rounded(rows: tf.Tensor, steps: int, seed: tf.Tensor) -> tf.Tensor:
  """Rounds each number at random to one of `steps` + 1 levels of its row."""
  least = tf.reduce_min(rows, axis=1, keepdims=True)
  step = (tf.reduce_max(rows, axis=1, keepdims=True) - least) / steps
  uniform = tf.random.stateless_uniform(tf.shape(rows), seed)
  level = tf.floor(tf.math.divide_no_nan(rows - least, step) + uniform)
  # Floating-point rounding may have pushed the level above the largest one.
  return least + step * tf.minimum(level, float(steps))


def _hadamard(rows: tf.Tensor) -> tf.Tensor:
  """Returns the Walsh-Hadamard transform of each row [d], divided by sqrt(d).

  d is a power of 2. If d = a b, a transform of size a is followed by a transform of size b. Each
  transform is a product with a small matrix. A few large steps take less time than log2(d) small
  steps.
  """
  dim = left = rows.shape[1]
  while left > 1:
    size = min(left, _BLOCK)
    left //= size
    # Each step moves the first axis to the end, so after all steps the order is restored.
    parts = tf.reshape(rows, [-1, size, dim // size])
    parts = tf.reshape(tf.transpose(parts, [0, 2, 1]), [-1, size])
    rows = tf.reshape(parts @ _matrix(size), [-1, dim])
  return rows * dim**-0.5


def _matrix(size: int) -> tf.Tensor:
  """Returns Sylvester's Hadamard matrix: -1 if row and column share an odd number of bits."""
  i = tf.range(size)
  shared = tf.bitwise.bitwise_and(i[:, None], i)
  count = tf.cast(tf.raw_ops.PopulationCount(x=shared), tf.int32)
  return tf.cast(1 - 2 * (count % 2), tf.float32)
