"""Initial weights, the same for the same seed, and layers that encoders share."""

import math
from collections.abc import Mapping

import tensorflow as tf

from tff_xc.encoders import normalization


def fold(seed: tf.Tensor, data) -> tf.Tensor:
  """Returns a new seed int32 [2], derived from `seed` and an integer."""
  return tf.random.experimental.stateless_fold_in(seed, data)


def he_normal(seed: tf.Tensor, shape: list[int]) -> tf.Tensor:
  """Normal with variance 2 / fan_in; the last axis is the output."""
  fan_in = math.prod(shape[:-1])
  return tf.random.stateless_normal(shape, seed) * (2.0 / fan_in) ** 0.5


def torch_uniform(seed: tf.Tensor, shape: list[int], fan_in: int) -> tf.Tensor:
  """PyTorch's default for dense and convolution: U(-1, 1) / sqrt(fan_in)."""
  bound = fan_in**-0.5
  return tf.random.stateless_uniform(shape, seed, -bound, bound)


def dense(
  h: tf.Tensor, weights: Mapping[str, tf.Tensor], layer: str
) -> tf.Tensor:
  """A dense layer of h [B, inputs] whose kernel is [outputs, inputs], as in PyTorch.

  In this form, the three products of a training step read the kernel by rows.
  To read it by columns takes up to twelve times as long where TensorFlow does
  not use oneDNN, and a fifth longer where it does.
  """
  kernel, bias = weights[f'{layer}/kernel'], weights[f'{layer}/bias']
  # Not `h` times the transpose, which would read the kernel by columns.
  product = tf.transpose(tf.matmul(kernel, h, transpose_b=True))
  return tf.nn.bias_add(product, bias)


def names_of_dense(layer: str) -> tuple[str, str]:
  """Returns the names of the weights of `dense`."""
  return f'{layer}/kernel', f'{layer}/bias'


def init_dense(
  layer: str, seed: tf.Tensor, inputs: int, outputs: int
) -> dict[str, tf.Tensor]:
  """Returns the weights of `dense` by name: He's normal kernel, zero bias."""
  kernel = he_normal(seed, [inputs, outputs])
  return {
    f'{layer}/kernel': tf.transpose(kernel),
    f'{layer}/bias': tf.zeros([outputs]),
  }


def init_torch(
  layer: str, seed: tf.Tensor, number: int, shape: list[int]
) -> dict[str, tf.Tensor]:
  """Returns PyTorch's default kernel [..., outputs] and bias of layer `number`."""
  fan_in = math.prod(shape[:-1])
  draw = lambda part, shape: torch_uniform(
    fold(seed, 2 * number + part), shape, fan_in
  )
  return {
    f'{layer}/kernel': draw(0, shape),
    f'{layer}/bias': draw(1, shape[-1:]),
  }


def group_norm(
  h: tf.Tensor,
  weights: Mapping[str, tf.Tensor],
  layer: str,
  groups: int,
  epsilon: float = 1e-5,
) -> tf.Tensor:
  """`normalization.group_norm` by the weights 'LAYER/scale' and 'LAYER/offset'."""
  scale, offset = weights[f'{layer}/scale'], weights[f'{layer}/offset']
  return normalization.group_norm(h, scale, offset, groups, epsilon)


def with_group_norm(
  layer: str, kernel: tf.Tensor, axis: int = -1
) -> dict[str, tf.Tensor]:
  """Returns a convolution's weights by name, with GroupNorm's of an axis' length."""
  return {
    f'{layer}/kernel': kernel,
    f'{layer}/scale': tf.ones([kernel.shape[axis]]),
    f'{layer}/offset': tf.zeros([kernel.shape[axis]]),
  }
