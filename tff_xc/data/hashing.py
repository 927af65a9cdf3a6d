"""Hashes of labels and features, as FedMLH uses them.

An id's hash in table r is the 32-bit MurmurHash3 (x86) of the id as four bytes,
little endian, with seed r. The hash is read as a signed number. The id's bucket is the
hash modulo the number of buckets; as in Python, the result is never negative.
"""

import numpy as np
import tensorflow as tf

# The seed of the published code's feature hash.
FEATURE_SEED = 101


def buckets(ids: np.ndarray, seed: int, num_buckets: int) -> np.ndarray:
  """Returns int32 [k], the buckets of ids [k]; ValueError if an id does not fit int32."""
  from sklearn import utils

  ids = np.asarray(ids)
  bounds = np.iinfo(np.int32)
  if ids.size and (ids.dtype.kind not in 'iu' or ids.min() < bounds.min or ids.max() > bounds.max):
    raise ValueError('only numbers of int32 can be hashed')

  hashed = utils.murmurhash3_32(np.asarray(ids, np.int32), seed)
  return (hashed.astype(np.int64) % num_buckets).astype(np.int32)


def buckets_in_tables(ids: tf.Tensor, num_tables: int, num_buckets: int) -> tf.Tensor:
  """Returns int32 [k, R], the buckets of ids int32 [k] in tables 0 to R - 1."""
  seeds = tf.range(num_tables)
  return tf.math.floormod(_murmur(ids[:, None], seeds[None, :]), num_buckets)


def _murmur(ids: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
  """Returns MurmurHash3_x86_32 of int32 ids as int32; multiplication wraps around."""

  def number(value):
    return tf.constant(value, tf.uint32)

  right = tf.bitwise.right_shift
  xor = tf.bitwise.bitwise_xor

  def rotated(x, by):
    left = tf.bitwise.left_shift(x, number(by))
    return tf.bitwise.bitwise_or(left, right(x, number(32 - by)))

  k = tf.bitcast(ids, tf.uint32) * number(0xCC9E2D51)
  k = rotated(k, 15) * number(0x1B873593)
  h = xor(tf.bitcast(seeds, tf.uint32), k)
  h = rotated(h, 13) * number(5) + number(0xE6546B64)
  h = xor(h, number(4))  # The length in bytes.
  h = xor(h, right(h, number(16))) * number(0x85EBCA6B)
  h = xor(h, right(h, number(13))) * number(0xC2B2AE35)
  return tf.bitcast(xor(h, right(h, number(16))), tf.int32)
