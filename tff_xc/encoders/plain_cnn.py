"""Networks of the federated papers: 5x5 convolutions, then dense layers.

That of FEMNIST (TurboSVM-FL, Table 5) and that of CIFAR (Hsu, Qi and Brown:
"Federated Visual Classification with Real-World Data Distribution",
arXiv:2003.08082) differ in their sizes only.
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
  """Returns convolutions 'conv0', 'conv1', ... of `filters`, and dense layers.

  Each convolution is 5x5 and followed by ReLU and 2x2 max pooling, each dense
  layer by ReLU. Weights are drawn as PyTorch does by default. `prepare` makes of
  (x [B, ...], training, seed) images float32 [B, *image_shape], of side, side, channels.
  `dense` has the width of each dense layer by name; the last one is d.
  """
  side, _, channels = image_shape
  flat = (side // 2 ** len(filters)) ** 2 * filters[-1]
  shapes = {}
  inputs = channels
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
      # The same as ReLU first, on a quarter of the numbers.
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

  Two convolutions of 64 filters, dense layers of 384 and 192. With the class
  layer of 10 classes it has 1,756,426 parameters. Examples are uint8
  [32, 32, 3]. `augment`: mirror and shift images at random in training; the paper does
  not say how it augments CIFAR, so this is the usual way.
  """
  return build_plain_cnn(
    example_spec=tf.TensorSpec([32, 32, 3], tf.uint8),
    prepare=lambda x, training, seed: resnet.standardized(x, augment and training, seed),
    image_shape=(32, 32, 3),
    filters=(64, 64),
    dense={'dense0': 384, 'dense1': 192},
  )
