"""A small convolutional encoder for images of handwriting, 28 to a few hundred pixels wide.

The encoder has four 3x3 convolutions, each followed by GroupNorm and ReLU, and a dense
layer that computes the embedding. After each of the first three convolutions, 2x2 max
pooling comes before GroupNorm, because this order saves a third of the time. GroupNorm
replaces BatchNorm, as in FedSS and FedVC, because averaging over clients with few classes
spoils batch statistics.
"""

import collections

import tensorflow as tf

from tff_xc import precision
from tff_xc.encoders import encoder as encoder_lib, layers

_POOLED = (True, True, True, False)


def build_conv_encoder(
  *,
  image_size: int = 28,
  channels: int | None = None,
  filters: int = 32,
  groups: int = 8,
  embedding_dim: int = 64,
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are uint8 [image_size, image_size].

  If `channels` is set, examples are uint8 [image_size, image_size, channels]. `image_size`
  is at least 8. Every convolution has `filters` outputs, which GroupNorm divides into `groups`
  groups. `filters` is a multiple of `groups`.
  """
  side = image_size // 8
  shape = [image_size, image_size, *([channels] if channels else [])]
  flat = side * side * filters

  def init(seed):
    weights = collections.OrderedDict()
    inputs = channels or 1
    for i in range(len(_POOLED)):
      shape, inputs = [3, 3, inputs, filters], filters
      kernel = layers.he_normal(layers.fold(seed, i), shape)
      weights |= layers.with_group_norm(f'conv{i}', kernel)
    dense_seed = layers.fold(seed, len(_POOLED))
    weights |= layers.init_dense('dense', dense_seed, flat, embedding_dim)
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    h = tf.cast(x, tf.float32) / 255.0
    h = h if channels else h[..., None]
    for i, pooled in enumerate(_POOLED):
      kernel = trainable[f'conv{i}/kernel']
      h = precision.product(tf.nn.conv2d, h, kernel, 1, 'SAME')
      if pooled:
        h = tf.nn.max_pool2d(h, 2, 2, 'VALID')
      h = tf.nn.relu(layers.group_norm(h, trainable, f'conv{i}', groups))
    h = tf.reshape(h, [-1, flat])
    return layers.dense(h, trainable, 'dense'), non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec(shape, tf.uint8),
    embedding_dim=embedding_dim,
    init=init,
    apply=apply,
    last_layer=layers.names_of_dense('dense'),
  )
