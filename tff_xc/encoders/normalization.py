"""Normalisation of vectors."""

import tensorflow as tf

_NORM_FLOOR = 1e-12


def unit_norm(x: tf.Tensor) -> tf.Tensor:
  """Divides by the l2 norm along the last axis plus 1e-12."""
  squared = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
  # The gradient of sqrt at zero is infinite, so a zero vector avoids sqrt: it
  # stays zero, with zero gradient.
  safe = tf.where(squared > 0, squared, 1.0)
  return x / (tf.where(squared > 0, tf.sqrt(safe), 0.0) + _NORM_FLOOR)
