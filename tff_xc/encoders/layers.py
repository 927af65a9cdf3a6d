"""Layers that several encoders share."""

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers


def dense(h: tf.Tensor, weights: encoder_lib.Weights, layer: str) -> tf.Tensor:
  """A dense layer whose kernel is stored as in PyTorch.

  In this layout, the gradient by `h` is a plain product, and the kernel's
  gradient transposes its small factor only. With [inputs, outputs], large
  factors are transposed, which takes several times as long on some processors.

  Args:
    h: float32 [B, inputs].
    weights: has 'LAYER/kernel', float32 [outputs, inputs], and 'LAYER/bias',
      float32 [outputs].
    layer: LAYER.

  Returns:
    float32 [B, outputs].
  """
  kernel, bias = weights[f'{layer}/kernel'], weights[f'{layer}/bias']
  return tf.nn.bias_add(tf.matmul(h, kernel, transpose_b=True), bias)


def init_dense(
  layer: str, seed: tf.Tensor, inputs: int, outputs: int
) -> dict[str, tf.Tensor]:
  """Returns the weights of `dense` by name: He's normal kernel, zero bias."""
  kernel = initializers.he_normal(seed, [inputs, outputs])
  return {
    f'{layer}/kernel': tf.transpose(kernel),
    f'{layer}/bias': tf.zeros([outputs]),
  }
