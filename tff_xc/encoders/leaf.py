"""The encoders of the LEAF experiments (TurboSVM-FL): the FEMNIST CNN.

With a class layer of 62 rows and a bias it has 6,603,710 parameters.
"""

import collections
import math

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers
from tff_xc.encoders import layers

_SIDE = 28
_KERNELS = ([5, 5, 1, 32], [5, 5, 32, 64])


def _dense_inputs() -> int:
  side = _SIDE // 2 ** len(_KERNELS)
  return side * side * _KERNELS[-1][-1]


def build_femnist_encoder(*, embedding_dim: int = 2048) -> encoder_lib.Encoder:
  """Returns the FEMNIST CNN without its class layer.

  Two 5x5 convolutions, 32 and 64 filters, each followed by ReLU and 2x2 max
  pooling, then a dense layer with ReLU. Weights are initialised as in PyTorch.

  Examples are float32 [28, 28] in [0, 1], white 1.0; LEAF's flat 784 floats
  also work.

  Args:
    embedding_dim: d, the width of the dense layer.
  """
  dense = [_dense_inputs(), embedding_dim]
  shapes = {f'conv{i}': shape for i, shape in enumerate(_KERNELS)}
  shapes['dense'] = dense

  def init(seed):
    weights = collections.OrderedDict()
    for i, (layer, shape) in enumerate(shapes.items()):
      fan_in = math.prod(shape[:-1])
      draw = lambda part, shape, i=i, fan_in=fan_in: initializers.torch_uniform(
        initializers.fold(seed, 2 * i + part), shape, fan_in
      )
      weights[f'{layer}/kernel'] = draw(0, shape)
      weights[f'{layer}/bias'] = draw(1, shape[-1:])
    weights['dense/kernel'] = tf.transpose(weights['dense/kernel'])
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed  # Nothing here is random or differs in training.
    h = tf.reshape(x, [-1, _SIDE, _SIDE, 1])
    for i in range(len(_KERNELS)):
      h = tf.nn.conv2d(h, trainable[f'conv{i}/kernel'], 1, 'SAME')
      h = tf.nn.bias_add(h, trainable[f'conv{i}/bias'])
      # The same as ReLU first, on a quarter of the numbers.
      h = tf.nn.relu(tf.nn.max_pool2d(h, 2, 2, 'VALID'))
    h = tf.reshape(h, [-1, dense[0]])
    return tf.nn.relu(layers.dense(h, trainable, 'dense')), non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([_SIDE, _SIDE], tf.float32),
    embedding_dim=embedding_dim,
    init=init,
    apply=apply,
  )
