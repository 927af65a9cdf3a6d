"""CNNs of federated papers: 5x5 convolutions followed by dense layers.

The networks for FEMNIST (TurboSVM-FL, Table 5) and for CIFAR (Hsu, Qi and Brown:
"Federated Visual Classification with Real-World Data Distribution",
arXiv:2003.08082) differ only in their sizes.
"""

import collections
from collections.abc import Callable, Sequence

import tensorflow as tf

from tff_xc import precision
from tff_xc.encoders import encoder as encoder_lib, layers, resnet


def build_plain_cnn(
  *,
  example_spec: tf.TensorSpec,
  prepare: Callable[..., tf.Tensor],
  image_shape: Sequence[int],
  filters: Sequence[int],
  dense: dict[str, int],
) -> encoder_lib.Encoder:
  """Returns an encoder of convolutions 'conv0', 'conv1', ... and dense layers.

  Each convolution is 5x5 and followed by ReLU and 2x2 max pooling. Each dense layer is
  followed by ReLU. Initial weights follow PyTorch's defaults.

  Args:
    example_spec: spec of one stored example.
    prepare: (x [B, ...], training, seed) -> images float32 [B, *image_shape].
    image_shape: side, side and channels.
    filters: number of filters of each convolution.
    dense: width of each dense layer by name; the last width is d.
  """
  side, _, inputs = image_shape
  flat = (side // 2 ** len(filters)) ** 2 * filters[-1]
  shapes = {}
  for i, outputs in enumerate(filters):
    shapes[f'conv{i}'], inputs = [5, 5, inputs, outputs], outputs
  inputs = flat
  for name, outputs in dense.items():
    shapes[name], inputs = [inputs, outputs], outputs

  def init(seed):
    weights = collections.OrderedDict()
    for i, (layer, shape) in enumerate(shapes.items()):
      weights |= layers.init_torch(layer, seed, i, shape)
      if layer in dense:  # `layers.dense` takes [outputs, inputs].
        weights[f'{layer}/kernel'] = tf.transpose(weights[f'{layer}/kernel'])
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    h = prepare(x, training, seed)
    for i in range(len(filters)):
      kernel = trainable[f'conv{i}/kernel']
      h = precision.product(tf.nn.conv2d, h, kernel, 1, 'SAME')
      h = layers.conv_bias(h, trainable[f'conv{i}/bias'])
      # ReLU before pooling would give the same result from four times as many numbers.
      h = tf.nn.relu(tf.nn.max_pool2d(h, 2, 2, 'VALID'))
    h = tf.reshape(h, [-1, flat])
    for layer in dense:
      h = tf.nn.relu(layers.dense(h, trainable, layer))
    return h, non_trainable

  return encoder_lib.Encoder(
    example_spec=example_spec,
    embedding_dim=inputs,
    init=init,
    apply=apply,
    last_layer=layers.names_of_dense(list(dense)[-1]),
  )


def build_cifar_encoder(*, augment: bool = True) -> encoder_lib.Encoder:
  """Returns the CIFAR CNN of FedVC and FedIR without its class layer.

  The network has two convolutions with 64 filters each, and dense layers of width 384 and
  192. With a class layer for 10 classes it has 1,756,426 parameters. Examples are uint8
  [32, 32, 3]. With `augment`, training mirrors and shifts images at random. This is the
  usual augmentation of CIFAR; the paper does not describe its augmentation.
  """
  return build_plain_cnn(
    example_spec=tf.TensorSpec([32, 32, 3], tf.uint8),
    prepare=lambda x, training, seed: resnet.standardized(x, augment and training, seed),
    image_shape=(32, 32, 3),
    filters=(64, 64),
    dense={'dense0': 384, 'dense1': 192},
  )
