"""Multilayer perceptrons: FedMLH's parallel sub-models for sparse text, and one for vectors.

Medini, Huang, Wang, Mohan, Shrivastava: "Extreme Classification in Log Memory
using Count-Min Sketch"; FedMLH trains these networks on federated data. There are R
sub-models with two hidden layers with ReLU each. All sub-models have the same input. The
class table (`heads.HashedHead`) has the weights of their output layers.
"""

import collections
import functools

import tensorflow as tf

from tff_xc import precision
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib, layers

# If a larger share of a batch's entries is nonzero, a dense product is faster: a sparse
# product takes 16 times as long per entry.
_DENSE_SHARE = 1 / 16


def build_mlp_encoder(
  num_features: int, hidden_dim: int, num_tables: int = 0, dense_share: float = _DENSE_SHARE
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are `sparse.SparseFeatures`.

  The weights are 'hidden0/kernel' [num_features, R hidden_dim], 'hidden0/bias',
  'hidden1/kernel' [R, hidden_dim, hidden_dim] and 'hidden1/bias' [R, 1,
  hidden_dim], initialized like PyTorch's dense layers. R is `num_tables`, and embeddings
  are float32 [B, R, hidden_dim]. With `num_tables` 0, there is one network, and embeddings
  are [B, hidden_dim]. The first layer converts a batch to a dense matrix if more than
  `dense_share` of the batch's entries are nonzero.
  """
  r = num_tables or 1

  shapes = {
    'hidden0/kernel': ([num_features, r * hidden_dim], num_features),
    'hidden0/bias': ([r * hidden_dim], num_features),
    'hidden1/kernel': ([r, hidden_dim, hidden_dim], hidden_dim),
    'hidden1/bias': ([r, 1, hidden_dim], hidden_dim),
  }

  def init(seed):
    return collections.OrderedDict(
      (name, layers.torch_uniform(layers.fold(seed, i), shape, fan_in))
      for i, (name, (shape, fan_in)) in enumerate(shapes.items())
    )

  def apply(trainable, non_trainable, x, training, seed):
    sums = _sums(trainable['hidden0/kernel'], x, dense_share)
    first = sums + trainable['hidden0/bias']
    h = tf.reshape(tf.nn.relu(first), [-1, r, hidden_dim])
    h = tf.transpose(h, [1, 0, 2])
    h = precision.product(tf.matmul, h, trainable['hidden1/kernel'])
    h = tf.nn.relu(h + trainable['hidden1/bias'])
    h = tf.transpose(h, [1, 0, 2])
    return (h if num_tables else h[:, 0]), non_trainable

  return encoder_lib.Encoder(
    example_spec=encoder_lib.SparseSpec(num_features),
    embedding_dim=hidden_dim,
    init=init,
    apply=apply,
    last_layer=('hidden1/kernel', 'hidden1/bias'),
    copies=functools.partial(build_mlp_encoder, num_features, hidden_dim, dense_share=dense_share),
  )


def _sums(kernel: tf.Tensor, x: sparse.SparseFeatures, dense_share: float) -> tf.Tensor:
  """Returns float32 [B, outputs], the product of x and a kernel [features, outputs]."""
  size = tf.size(x.row_splits) - 1
  example = tf.ragged.row_splits_to_segment_ids(x.row_splits, out_type=tf.int32)
  places = tf.cast(tf.stack([example, x.ids], axis=1), tf.int64)
  shape = tf.cast(tf.stack([size, kernel.shape[0]]), tf.int64)

  def dense():
    return tf.matmul(tf.scatter_nd(places, x.values, shape), kernel)

  def by_entries():
    matrix = tf.SparseTensor(places, x.values, shape)
    return layers.sparse_product(matrix, kernel)

  entries = tf.cast(tf.reduce_prod(shape), tf.float32)
  stored = tf.cast(tf.size(x.ids), tf.float32)
  return tf.cond(stored > dense_share * entries, dense, by_entries)


def build_dense_mlp_encoder(
  num_features: int, hidden_dim: int, embedding_dim: int
) -> encoder_lib.Encoder:
  """Returns an encoder with two hidden layers with ReLU and a linear layer.

  Examples are float32 [num_features]. The `layers.dense` layers are named 'hidden0',
  'hidden1' and 'dense'.
  """
  shapes = {
    'hidden0': (num_features, hidden_dim),
    'hidden1': (hidden_dim, hidden_dim),
    'dense': (hidden_dim, embedding_dim),
  }

  def init(seed):
    weights = collections.OrderedDict()
    for number, (layer, shape) in enumerate(shapes.items()):
      layer_seed = layers.fold(seed, number)
      weights |= layers.init_dense(layer, layer_seed, *shape)
    return weights

  def apply(trainable, non_trainable, x, training, seed):
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
