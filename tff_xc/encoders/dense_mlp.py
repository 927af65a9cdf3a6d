"""A multilayer perceptron on rows of numbers."""

import collections

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers
from tff_xc.encoders import layers


def build_dense_mlp_encoder(
  num_features: int, hidden_dim: int, embedding_dim: int
) -> encoder_lib.Encoder:
  """Returns two hidden layers with ReLU and a linear layer on dense rows.

  Examples are float32 [num_features]. The weights are those of
  `layers.dense`: 'hidden0', 'hidden1' and 'dense'.

  Args:
    num_features: the examples' features.
    hidden_dim: of both hidden layers.
    embedding_dim: d.
  """
  shapes = {
    'hidden0': (num_features, hidden_dim),
    'hidden1': (hidden_dim, hidden_dim),
    'dense': (hidden_dim, embedding_dim),
  }

  def init(seed):
    weights = collections.OrderedDict()
    for number, (layer, shape) in enumerate(shapes.items()):
      layer_seed = initializers.fold(seed, number)
      weights |= layers.init_dense(layer, layer_seed, *shape)
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed  # Nothing here is random or differs in training.
    for layer in ('hidden0', 'hidden1'):
      x = tf.nn.relu(layers.dense(x, trainable, layer))
    return layers.dense(x, trainable, 'dense'), non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([num_features], tf.float32),
    embedding_dim=embedding_dim,
    init=init,
    apply=apply,
    last_layer=layers.names_of_dense('dense'),
  )
