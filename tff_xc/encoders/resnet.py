"""The residual networks of He et al. (2016) for CIFAR, with GroupNorm.

The paper is "Deep Residual Learning for Image Recognition", section 4.2. A 3x3 convolution
of 16 filters is followed by three stages of n blocks with 16, 32 and 64 filters. The
network has 6n + 2 layers. A block has two 3x3 convolutions and a shortcut around them. The
first block of stages 2 and 3 halves the side of the feature maps. The shortcut of such a
block takes every second pixel and sets the new channels to zero (the paper's option A,
without parameters).

Two things differ from the paper. First, GroupNorm replaces BatchNorm, because averaging
over clients with one class spoils batch statistics. Second, a linear layer follows the
average pooling, so that embeddings can have any direction. Pooled ReLU features are never
negative, so without this layer the angle between two embeddings would be at most 90
degrees. The layer exists even if the embedding has 64 dimensions, the number of pooled
features.
"""

import collections
import itertools

import tensorflow as tf

from tff_xc import errors, precision
from tff_xc.encoders import encoder as encoder_lib, layers

_FILTERS = (16, 32, 64)
# Mean and standard deviation of red, green and blue in the 50,000 training images of
# CIFAR-10, for pixels from 0 to 255.
_MEAN = (125.3, 123.0, 113.9)
_DEVIATION = (63.0, 62.1, 66.7)
_MARGIN = 4


def build_resnet_encoder(
  *,
  depth: int = 8,
  embedding_dim: int = 64,
  image_size: int = 32,
  groups: int = 8,
  augment: bool = True,
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are uint8 [image_size, image_size, 3].

  The layers are 'conv', 'stage1/block0/conv0' and so on, and 'dense'. A weight's name is
  its layer's name and '/kernel', '/scale', '/offset' or '/bias'. `depth` is the number of
  layers, 6n + 2: 8, 14, 20, and so on. `image_size` is at least 4. GroupNorm has 1, 2, 4, 8
  or 16 `groups`. With `augment`, training applies `shift` to images.
  """
  if depth < 8 or (depth - 2) % 6:
    raise errors.InputError(
      f'depth is {depth}; a CIFAR ResNet has 6n + 2 layers, such as 8, 20 or 32'
    )
  if image_size < 4:
    raise errors.InputError(f'image_size is {image_size}; give at least 4')
  if groups < 1 or _FILTERS[0] % groups:
    raise errors.InputError(
      f'groups is {groups}; it must divide {_FILTERS[0]}, take 1, 2, 4, 8 or 16'
    )
  blocks, inputs = [], _FILTERS[0]
  for stage, filters in enumerate(_FILTERS, start=1):
    for block in range((depth - 2) // 6):
      blocks.append((f'stage{stage}/block{block}', inputs, filters))
      inputs = filters

  def init(seed):
    weights = collections.OrderedDict()
    seeds = (layers.fold(seed, i) for i in itertools.count())

    def add(layer, inputs, filters):
      kernel = layers.he_normal(next(seeds), [3, 3, inputs, filters])
      weights.update(layers.with_group_norm(layer, kernel))

    add('conv', 3, _FILTERS[0])
    for name, inputs, filters in blocks:
      add(f'{name}/conv0', inputs, filters)
      add(f'{name}/conv1', filters, filters)
    return weights | layers.init_dense('dense', next(seeds), _FILTERS[-1], embedding_dim)

  def apply(trainable, non_trainable, x, training, seed):
    h = standardized(x, augment and training, seed)
    h = tf.nn.relu(_conv_norm(trainable, 'conv', h, 1, groups))
    for name, inputs, filters in blocks:
      stride = 1 if inputs == filters else 2
      h = _block(trainable, name, h, stride, groups)
    h = tf.reduce_mean(h, axis=[1, 2])
    return layers.dense(h, trainable, 'dense'), non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([image_size, image_size, 3], tf.uint8),
    embedding_dim=embedding_dim,
    init=init,
    apply=apply,
    last_layer=layers.names_of_dense('dense'),
  )


def standardized(x: tf.Tensor, augment: bool, seed: tf.Tensor) -> tf.Tensor:
  """Standardizes images to float32 with CIFAR's mean and deviation; `augment` also shifts them."""
  x = (tf.cast(x, tf.float32) - _MEAN) / _DEVIATION
  return shift(x, seed) if augment else x


def shift(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Mirrors half of the images at random, and shifts images by up to 4 pixels per direction.

  This is the paper's augmentation. Each image gets 4 pixels of zeros (the mean color) on
  each side, and is cropped to its original size at a random position. The random numbers
  depend on an image's index in the batch.
  """
  batch, side = tf.shape(x)[0], x.shape[1]
  draws = tf.random.stateless_uniform([3, batch], seed, 0, 2 * (2 * _MARGIN + 1), tf.int32)
  down, right = draws[0] // 2, draws[1] // 2
  # In TFF's graphs, `==` would compare the identities of tensors.
  mirrored = tf.equal(draws[2, :, None] % 2, 1)
  pixels = tf.range(side)
  rows = down[:, None] + pixels
  columns = right[:, None] + tf.where(mirrored, side - 1 - pixels, pixels)
  margin = [_MARGIN, _MARGIN]
  x = tf.pad(x, [[0, 0], margin, margin, [0, 0]])
  x = tf.gather(x, rows, axis=1, batch_dims=1)
  return tf.gather(x, columns, axis=2, batch_dims=1)


def _conv_norm(weights, layer: str, x, stride: int, groups: int):
  kernel = weights[f'{layer}/kernel']
  x = precision.product(tf.nn.conv2d, x, kernel, stride, 'SAME')
  return layers.group_norm(x, weights, layer, groups)


def _block(weights, name: str, x, stride: int, groups: int):
  """Applies two convolutions and the shortcut around them."""
  h = tf.nn.relu(_conv_norm(weights, f'{name}/conv0', x, stride, groups))
  h = _conv_norm(weights, f'{name}/conv1', h, 1, groups)
  if stride > 1:
    new_channels = h.shape[-1] - x.shape[-1]
    # This takes every second pixel. A slice would take ten times as long.
    x = tf.nn.avg_pool2d(x, 1, stride, 'VALID')
    x = tf.pad(x, [[0, 0], [0, 0], [0, 0], [0, new_channels]])
  return tf.nn.relu(h + x)
