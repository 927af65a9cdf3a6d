"""Several multilayer perceptrons on sparse text, side by side: FedMLH's encoder.

Medini, Huang, Wang, Mohan, Shrivastava: "Extreme Classification in Log Memory
using Count-Min Sketch"; FedMLH trains such networks federated. Each of R
sub-models has two hidden layers with ReLU, and all have the same input. Their
output layers are the class table (`heads.HashedHead`).
"""

import collections
import functools

import tensorflow as tf

from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers


def build_mlp_encoder(
  num_features: int, hidden_dim: int, num_tables: int = 0
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are `sparse.SparseFeatures`.

  Its weights are 'hidden0/kernel' [num_features, R hidden_dim], 'hidden0/bias',
  'hidden1/kernel' [R, hidden_dim, hidden_dim] and 'hidden1/bias' [R, 1,
  hidden_dim], as PyTorch initialises dense layers.

  Args:
    num_features: the examples' features.
    hidden_dim: of both layers.
    num_tables: R; embeddings are float32 [B, R, hidden_dim]. 0: one network,
      whose embeddings are [B, hidden_dim].
  """
  r = num_tables or 1

  def init(seed):
    draw = lambda number, shape, fan_in: initializers.torch_uniform(
      initializers.fold(seed, number), shape, fan_in
    )
    return collections.OrderedDict(
      [
        (
          'hidden0/kernel',
          draw(0, [num_features, r * hidden_dim], num_features),
        ),
        ('hidden0/bias', draw(1, [r * hidden_dim], num_features)),
        ('hidden1/kernel', draw(2, [r, hidden_dim, hidden_dim], hidden_dim)),
        ('hidden1/bias', draw(3, [r, 1, hidden_dim], hidden_dim)),
      ]
    )

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed  # Nothing here is random or differs in training.
    first = _sums(trainable['hidden0/kernel'], x) + trainable['hidden0/bias']
    h = tf.reshape(tf.nn.relu(first), [-1, r, hidden_dim])
    h = tf.matmul(tf.transpose(h, [1, 0, 2]), trainable['hidden1/kernel'])
    h = tf.nn.relu(h + trainable['hidden1/bias'])
    h = tf.transpose(h, [1, 0, 2])
    return (h if num_tables else h[:, 0]), non_trainable

  return encoder_lib.Encoder(
    example_spec=encoder_lib.SparseSpec(num_features),
    embedding_dim=hidden_dim,
    init=init,
    apply=apply,
    copies=functools.partial(build_mlp_encoder, num_features, hidden_dim),
  )


def _sums(kernel: tf.Tensor, x: sparse.SparseFeatures) -> tf.Tensor:
  """Returns float32 [B, outputs], the examples times a kernel [features, outputs]."""
  size = tf.size(x.row_splits) - 1
  example = tf.ragged.row_splits_to_segment_ids(x.row_splits, out_type=tf.int32)
  matrix = tf.SparseTensor(
    tf.cast(tf.stack([example, x.ids], axis=1), tf.int64),
    x.values,
    tf.cast(tf.stack([size, kernel.shape[0]]), tf.int64),
  )
  return tf.sparse.sparse_dense_matmul(matrix, kernel)
