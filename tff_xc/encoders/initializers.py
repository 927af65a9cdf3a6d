"""Stateless weight initialisation: the same seed gives the same weights."""

import tensorflow as tf


def fold(seed: tf.Tensor, data) -> tf.Tensor:
  """Returns a new seed int32 [2], derived from `seed` and an integer."""
  return tf.random.experimental.stateless_fold_in(seed, data)


def he_normal(seed: tf.Tensor, shape: list[int]) -> tf.Tensor:
  """Normal with variance 2 / fan_in; the last axis is the output."""
  fan_in = 1
  for size in shape[:-1]:
    fan_in *= size
  return tf.random.stateless_normal(shape, seed) * (2.0 / fan_in) ** 0.5


def torch_uniform(seed: tf.Tensor, shape: list[int], fan_in: int) -> tf.Tensor:
  """PyTorch's default for dense and convolution: U(-1, 1) / sqrt(fan_in)."""
  bound = fan_in**-0.5
  return tf.random.stateless_uniform(shape, seed, -bound, bound)
