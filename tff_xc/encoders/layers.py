"""Seeded initial weights, and layers that encoders share."""

import math
from collections.abc import Mapping

import tensorflow as tf

from tff_xc import precision

_NORM_FLOOR = 1e-12


def fold(seed: tf.Tensor, data) -> tf.Tensor:
  """Returns a new seed int32 [2], derived from `seed` and the integer `data`."""
  return tf.random.experimental.stateless_fold_in(seed, data)


def he_normal(seed: tf.Tensor, shape: list[int]) -> tf.Tensor:
  """Draws normal numbers with variance 2 / fan_in; the last axis of `shape` is the outputs."""
  fan_in = math.prod(shape[:-1])
  return tf.random.stateless_normal(shape, seed) * (2.0 / fan_in) ** 0.5


def torch_uniform(seed: tf.Tensor, shape: list[int], fan_in: int) -> tf.Tensor:
  """Draws PyTorch's default weights of dense and convolution layers: U(-1, 1) / sqrt(fan_in)."""
  bound = fan_in**-0.5
  return tf.random.stateless_uniform(shape, seed, -bound, bound)


def dense(h: tf.Tensor, weights: Mapping[str, tf.Tensor], layer: str) -> tf.Tensor:
  """Applies a dense layer to h [B, inputs]; the kernel is [outputs, inputs] as in PyTorch.

  With this layout, the three products of a training step read the kernel by rows.
  Products that read the kernel by columns take a fifth longer with oneDNN, and up to
  twelve times as long without oneDNN.
  """
  kernel, bias = weights[f'{layer}/kernel'], weights[f'{layer}/bias']
  # The product of `h` and the transposed kernel would read the kernel by columns.
  product = precision.product(tf.matmul, kernel, h, transpose_b=True)
  return tf.nn.bias_add(tf.transpose(product), bias)


@tf.custom_gradient
def conv_bias(h: tf.Tensor, bias: tf.Tensor):
  """Adds bias [C] to the result h [B, H, W, C] of a convolution.

  The sum equals that of `tf.nn.bias_add`, and only the gradient is computed differently.
  With TensorFlow's gradient, oneDNN computes the bias's sum together with the kernel's
  gradient, and a network takes up to a fifth longer.
  """

  def gradient(upstream):
    flat = tf.reshape(upstream, [-1, upstream.shape[-1]])
    ones = tf.ones([1, tf.shape(flat)[0]])
    return upstream, tf.squeeze(tf.matmul(ones, flat), axis=0)

  return tf.nn.bias_add(h, bias), gradient


def names_of_dense(layer: str) -> tuple[str, str]:
  """Returns the names of the weights that `dense` uses."""
  return f'{layer}/kernel', f'{layer}/bias'


def init_dense(layer: str, seed: tf.Tensor, inputs: int, outputs: int) -> dict[str, tf.Tensor]:
  """Returns initial weights for `dense` by name: He's normal kernel, zero bias."""
  kernel = he_normal(seed, [inputs, outputs])
  return {f'{layer}/kernel': tf.transpose(kernel), f'{layer}/bias': tf.zeros([outputs])}


def init_torch(layer: str, seed: tf.Tensor, number: int, shape: list[int]) -> dict[str, tf.Tensor]:
  """Returns PyTorch's default kernel `shape` = [..., outputs] and bias [outputs] by name.

  `number` is the layer's index. Layers with the same `seed` need different numbers.
  """
  fan_in = math.prod(shape[:-1])

  def draw(part, shape):
    return torch_uniform(fold(seed, 2 * number + part), shape, fan_in)

  return {f'{layer}/kernel': draw(0, shape), f'{layer}/bias': draw(1, shape[-1:])}


def with_group_norm(layer: str, kernel: tf.Tensor, axis: int = -1) -> dict[str, tf.Tensor]:
  """Returns by name a convolution's kernel and the initial weights of its GroupNorm.

  `axis` is the axis of the output channels.
  """
  return {
    f'{layer}/kernel': kernel,
    f'{layer}/scale': tf.ones([kernel.shape[axis]]),
    f'{layer}/offset': tf.zeros([kernel.shape[axis]]),
  }


def unit_norm(x: tf.Tensor) -> tf.Tensor:
  """Divides x by its L2 norm along the last axis plus 1e-12."""
  squared = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
  # The gradient of sqrt at zero is infinite, so zero vectors skip the sqrt and stay zero.
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
  """Applies BatchNorm (Ioffe and Szegedy, 2015) to x [B, H, W, C] as PyTorch does.

  Epsilon is 1e-5. Training normalizes by the moments of the batch, and moves the running
  mean and variance a tenth of the way to the batch's mean and unbiased variance. Testing
  normalizes by the running moments. Returns (normalized activations, running mean, running
  variance).
  """
  epsilon, momentum = 1e-5, 0.1
  if not training:
    # The noise of differential privacy may make the variance negative.
    gain = scale * tf.math.rsqrt(tf.maximum(variance, 0.0) + epsilon)
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
  x: tf.Tensor, weights: Mapping[str, tf.Tensor], layer: str, groups: int, epsilon: float = 1e-5
) -> tf.Tensor:
  """Applies GroupNorm (Wu and He, 2018) to `x` float32 [B, H, W, C]; `groups` divides C.

  The weights are 'LAYER/scale' and 'LAYER/offset'.
  """
  channels = x.shape[-1]
  pixels = x.shape[1] * x.shape[2]
  width = channels // groups

  def over_group(per_channel):  # [B, 1, C] -> [B, 1, C], averaged in each group
    grouped = tf.reshape(per_channel, [-1, groups, width])
    mean = tf.reduce_mean(grouped, axis=2, keepdims=True)
    return tf.reshape(mean * tf.ones([width]), [-1, 1, channels])

  # The automatic gradient would read the feature maps more than twice as often.
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
  scale, offset = weights[f'{layer}/scale'], weights[f'{layer}/offset']
  return tf.reshape(normalise(flat, scale, offset), shape)


def sparse_product(matrix: tf.SparseTensor, table: tf.Tensor) -> tf.Tensor:
  """Returns [B, dim], the product of a sparse matrix [B, F] and a table [F, dim].

  The product is computed on the CPU. TensorFlow's GPU kernel adds numbers in no fixed
  order, so TensorFlow refuses to run this kernel in deterministic mode (see
  `runtime.in_process.context`).
  """
  with tf.device('CPU:0'):
    return tf.sparse.sparse_dense_matmul(matrix, table)
