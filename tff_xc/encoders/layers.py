"""Layers that several encoders share."""

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers


def dense(h: tf.Tensor, weights: encoder_lib.Weights, layer: str) -> tf.Tensor:
  """A dense layer whose kernel is stored as in PyTorch.

  In this form, the three products of a training step read the kernel by rows.
  To read it by columns takes up to twelve times as long where TensorFlow does
  not use oneDNN, and a fifth longer where it does.

  Args:
    h: float32 [B, inputs].
    weights: has 'LAYER/kernel', float32 [outputs, inputs], and 'LAYER/bias',
      float32 [outputs].
    layer: LAYER.

  Returns:
    float32 [B, outputs].
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
  kernel = initializers.he_normal(seed, [inputs, outputs])
  return {
    f'{layer}/kernel': tf.transpose(kernel),
    f'{layer}/bias': tf.zeros([outputs]),
  }
