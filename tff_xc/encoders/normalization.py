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


def batch_norm(
  x: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
  mean: tf.Tensor,
  variance: tf.Tensor,
  training: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """BatchNorm (Ioffe and Szegedy, 2015) of x [B, H, W, C] as in PyTorch: epsilon 1e-5.

  In training it normalises by the moments of the batch, and moves the running ones a
  tenth of the way to them (to the unbiased variance); otherwise by the running ones.
  Returns (normalised activations, running mean, running variance).
  """
  epsilon, momentum = 1e-5, 0.1
  if not training:
    gain = scale * tf.math.rsqrt(variance + epsilon)
    return x * gain + (offset - mean * gain), mean, variance
  normalised, of_batch, unbiased = tf.compat.v1.nn.fused_batch_norm(
    x, scale, offset, epsilon=epsilon
  )
  return (
    normalised,
    mean + momentum * (tf.stop_gradient(of_batch) - mean),
    variance + momentum * (tf.stop_gradient(unbiased) - variance),
  )


def group_norm(
  x: tf.Tensor,
  scale: tf.Tensor,
  offset: tf.Tensor,
  groups: int,
  epsilon: float = 1e-5,
) -> tf.Tensor:
  """GroupNorm (Wu and He, 2018) of `x` float32 [B, H, W, C]; `groups` divides C."""
  channels = x.shape[-1]
  pixels = x.shape[1] * x.shape[2]
  width = channels // groups

  def over_group(per_channel):  # [B, 1, C] -> [B, 1, C], averaged in each group
    grouped = tf.reshape(per_channel, [-1, groups, width])
    mean = tf.reduce_mean(grouped, axis=2, keepdims=True)
    return tf.reshape(mean * tf.ones([width]), [-1, 1, channels])

  # The automatic gradient takes more than twice as many passes over the maps.
  @tf.custom_gradient
  def normalise(h, scale, offset):
    mean = over_group(tf.reduce_mean(h, axis=1, keepdims=True))
    squared = tf.math.squared_difference(h, mean)
    variance = over_group(tf.reduce_mean(squared, axis=1, keepdims=True))
    inverse = tf.math.rsqrt(variance + epsilon)
    gain = scale * inverse

    def gradient(upstream):
      sums = tf.reduce_sum(upstream, axis=1, keepdims=True)
      products = tf.reduce_sum(upstream * h, axis=1, keepdims=True)
      products = (products - mean * sums) * inverse
      slope = over_group(scale * products) * tf.square(inverse) / pixels
      constant = over_group(scale * sums) * inverse / pixels
      of_h = upstream * gain - h * slope + (mean * slope - constant)
      of_scale = tf.reduce_sum(products, axis=[0, 1])
      return of_h, of_scale, tf.reduce_sum(sums, axis=[0, 1])

    return h * gain + (offset - mean * gain), gradient

  flat = tf.reshape(x, [-1, pixels, channels])
  shape = [-1, *x.shape[1:]]
  return tf.reshape(normalise(flat, scale, offset), shape)
