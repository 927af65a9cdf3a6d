"""MobileNetV2 and MobileNetV3-Large with GroupNorm, for photographs.

Sandler et al.: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018
(FedVC and FedIR); Howard et al.: "Searching for MobileNetV3", 2019 (FedSS). The layers,
their kernel sizes and their padding are those of `tf.keras.applications`. GroupNorm
replaces each BatchNorm, because averaging over clients with few classes spoils batch
statistics. Neither FedVC nor FedSS gives the number of groups. We use 8 groups like TFF's
Landmarks task (`tff.simulation.baselines.landmark`), and epsilon 1e-3 like Keras.

The embedding is the output of a linear layer ('bottleneck') on the pooled features. In
FedSS, MobileNetV3 has an embedding of 64 dimensions instead of 1280. Figure 8 of FedSS shows the
class table's share of all parameters. It implies about 3.71 million parameters in the rest of the
network. Without the class table, our network has 3,033,456 parameters with 64 dimensions, and
4,202,032 with 1280 dimensions, as many as Keras's network. The last layers of the paper's network
are therefore unknown.
"""

import collections
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tff_xc import errors, precision
from tff_xc.encoders import encoder as encoder_lib, layers

_LEAST_SIDE = 32
_EPSILON = 1e-3
# All widths of both networks are multiples of this number.
_MOST_GROUPS = 8


class Block(NamedTuple):
  """An inverted residual block."""

  inputs: int  # Input channels.
  # Channels of the depthwise convolution. If this number equals `inputs`, the block begins
  # with the depthwise convolution. Otherwise a 1x1 convolution precedes it.
  expanded: int
  outputs: int  # Output channels.
  side: int  # Kernel side of the depthwise convolution.
  stride: int  # Stride of the depthwise convolution.
  squeezed: int  # Channels of the squeeze-and-excite layer; 0 for a block without one.
  # The activation after the first two convolutions.
  activation: Callable[[tf.Tensor], tf.Tensor]


class Network(NamedTuple):
  """A MobileNet."""

  first: int  # Filters of the first convolution.
  blocks: tuple[Block, ...]
  last: int  # Filters of the last convolution.
  activation: Callable[[tf.Tensor], tf.Tensor]  # After the first and last convolution.


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
  """Returns relu6(x + 3) / 6."""
  return tf.nn.relu6(x + 3.0) * (1.0 / 6.0)


def hard_swish(x: tf.Tensor) -> tf.Tensor:
  """Returns x relu6(x + 3) / 6."""
  return x * hard_sigmoid(x)


def _v2() -> Network:
  # Outputs, number of blocks, stride of the first block (Table 2 of the paper).
  stages = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
  blocks, inputs = [], 32
  for outputs, count, stride in stages:
    for i in range(count):
      expanded = 6 * inputs if blocks else inputs
      step = 1 if i else stride
      blocks.append(Block(inputs, expanded, outputs, 3, step, 0, tf.nn.relu6))
      inputs = outputs
  return Network(32, tuple(blocks), 1280, tf.nn.relu6)


def _v3() -> Network:
  relu, swish = tf.nn.relu, hard_swish
  # Side, expanded, outputs, squeezed, activation, stride (Table 1 of the paper).
  rows = (
    (3, 16, 16, 0, relu, 1),
    (3, 64, 24, 0, relu, 2),
    (3, 72, 24, 0, relu, 1),
    (5, 72, 40, 24, relu, 2),
    (5, 120, 40, 32, relu, 1),
    (5, 120, 40, 32, relu, 1),
    (3, 240, 80, 0, swish, 2),
    (3, 200, 80, 0, swish, 1),
    (3, 184, 80, 0, swish, 1),
    (3, 184, 80, 0, swish, 1),
    (3, 480, 112, 120, swish, 1),
    (3, 672, 112, 168, swish, 1),
    (5, 672, 160, 168, swish, 2),
    (5, 960, 160, 240, swish, 1),
    (5, 960, 160, 240, swish, 1),
  )
  blocks, inputs = [], 16
  for side, expanded, outputs, squeezed, activation, stride in rows:
    blocks.append(Block(inputs, expanded, outputs, side, stride, squeezed, activation))
    inputs = outputs
  return Network(16, tuple(blocks), 960, swish)


V2, V3_LARGE = _v2(), _v3()


def build(
  network: Network, *, image_size: int = 224, embedding_dim: int = 64, groups: int = 8
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are uint8 [image_size, image_size, 3].

  The layers are 'first', 'block0/expand', 'block0/depthwise', 'block0/squeeze',
  'block0/excite', 'block0/project' (and so on for other blocks), 'last' and 'bottleneck'.
  A weight's name is its layer's name and '/kernel', '/scale', '/offset' or '/bias'.
  `image_size` is at least 32 (the papers use 224 and 299). With an `embedding_dim` of 0,
  the network has no bottleneck, and the pooled features are the embedding. GroupNorm has
  1, 2, 4 or 8 `groups`.
  """
  if image_size < _LEAST_SIDE:
    raise errors.InputError(
      f'images of {image_size} x {image_size} pixels are too small for a MobileNet; give'
      f' at least {_LEAST_SIDE} (--image_size)'
    )
  if groups < 1 or _MOST_GROUPS % groups:
    raise errors.InputError(f'groups is {groups}; it must divide {_MOST_GROUPS}, take 1, 2, 4 or 8')

  def apply(trainable, non_trainable, x, training, seed):

    def norm(layer, h):
      return layers.group_norm(h, trainable, layer, groups, _EPSILON)

    def convolution(layer, h, stride=1):
      kernel = trainable[f'{layer}/kernel']
      h = precision.product(tf.nn.conv2d, h, kernel, stride, 'SAME')
      return norm(layer, h)

    def inverted_residual(name: str, block: Block, x):
      h = x
      if block.expanded != block.inputs:
        h = block.activation(convolution(f'{name}/expand', h))
      strides = [1, block.stride, block.stride, 1]
      kernel = trainable[f'{name}/depthwise/kernel']
      # A depthwise convolution adds few products per output, so it is always in float32.
      h = tf.nn.depthwise_conv2d(h, kernel, strides, 'SAME')
      h = block.activation(norm(f'{name}/depthwise', h))
      if block.squeezed:
        pooled = tf.reduce_mean(h, axis=[1, 2])
        gate = tf.nn.relu(layers.dense(pooled, trainable, f'{name}/squeeze'))
        gate = hard_sigmoid(layers.dense(gate, trainable, f'{name}/excite'))
        h = h * gate[:, None, None, :]
      h = convolution(f'{name}/project', h)
      return h + x if block.stride == 1 and block.inputs == block.outputs else h

    h = tf.cast(x, tf.float32) * (1.0 / 127.5) - 1.0
    h = network.activation(convolution('first', h, 2))
    for i, block in enumerate(network.blocks):
      h = inverted_residual(f'block{i}', block, h)
    h = network.activation(convolution('last', h))
    h = tf.reduce_mean(h, axis=[1, 2])
    if embedding_dim:
      h = layers.dense(h, trainable, 'bottleneck')
    return h, non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([image_size, image_size, 3], tf.uint8),
    embedding_dim=embedding_dim or network.last,
    init=functools.partial(_initial_weights, network, embedding_dim),
    apply=apply,
    last_layer=layers.names_of_dense('bottleneck') if embedding_dim else (),
  )


def _initial_weights(network: Network, embedding_dim: int, seed: tf.Tensor):
  """Returns the weights by name, in the order of the layers."""
  weights = collections.OrderedDict()
  seeds = (layers.fold(seed, i) for i in itertools.count())

  def convolution(layer, side, inputs, outputs):
    kernel = layers.he_normal(next(seeds), [side, side, inputs, outputs])
    weights.update(layers.with_group_norm(layer, kernel))

  convolution('first', 3, 3, network.first)
  for i, block in enumerate(network.blocks):
    name = f'block{i}'
    if block.expanded != block.inputs:
      convolution(f'{name}/expand', 1, block.inputs, block.expanded)
    # Each filter has one input channel.
    shape = [block.side, block.side, 1, block.expanded]
    kernel = layers.he_normal(next(seeds), shape)
    kernel = tf.transpose(kernel, [0, 1, 3, 2])
    weights |= layers.with_group_norm(f'{name}/depthwise', kernel, axis=2)
    if block.squeezed:
      for layer, *sizes in (
        ('squeeze', block.expanded, block.squeezed),
        ('excite', block.squeezed, block.expanded),
      ):
        weights |= layers.init_dense(f'{name}/{layer}', next(seeds), *sizes)
    convolution(f'{name}/project', 1, block.expanded, block.outputs)
  convolution('last', 1, network.blocks[-1].outputs, network.last)
  if embedding_dim:
    weights |= layers.init_dense('bottleneck', next(seeds), network.last, embedding_dim)
  return weights
