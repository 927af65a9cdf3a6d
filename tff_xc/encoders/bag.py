"""FedAwS's encoder for sparse text, a bag of weighted features.

The encoder averages the features' rows in a table, weighted by value. Two hidden layers
with ReLU, a linear layer, and scaling to norm 1 follow (FedAwS, section 5: widths 512,
1024, 1024, 512). The average equals that of `tf.nn.safe_embedding_lookup_sparse`: it
ignores features without a positive value, and is zero for an example without features.
"""

import collections
import itertools

import tensorflow as tf

from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib, layers

FEATURE = 'feature'


def build_bag_encoder(
  *,
  num_features: int,
  feature_dim: int = 512,
  hidden_dims: tuple[int, ...] = (1024, 1024),
  embedding_dim: int = 512,
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are `sparse.SparseFeatures` of `num_features`.

  Its weights are the table 'feature' with a row of `feature_dim` numbers per feature,
  and 'dense0/kernel', 'dense0/bias' and so on; d is `embedding_dim`.
  """
  widths = (feature_dim, *hidden_dims, embedding_dim)
  shapes = list(itertools.pairwise(widths))

  def init(seed):
    weights = collections.OrderedDict()
    weights[FEATURE] = tf.random.stateless_normal(
      [num_features, feature_dim], layers.fold(seed, 0), stddev=feature_dim**-0.5
    )
    for i, shape in enumerate(shapes):
      seed_i = layers.fold(seed, i + 1)
      weights |= layers.init_dense(f'dense{i}', seed_i, *shape)
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    h = weighted_mean(trainable[FEATURE], x)
    for i in range(len(shapes)):
      h = layers.dense(h, trainable, f'dense{i}')
      h = tf.nn.relu(h) if i + 1 < len(shapes) else h
    return layers.unit_norm(h), non_trainable

  return encoder_lib.Encoder(
    example_spec=encoder_lib.SparseSpec(num_features),
    embedding_dim=embedding_dim,
    init=init,
    apply=apply,
    tables={FEATURE: encoder_lib.feature_table(num_features)},
    last_layer=layers.names_of_dense(f'dense{len(shapes) - 1}'),
  )


def weighted_mean(table: tf.Tensor, x: sparse.SparseFeatures) -> tf.Tensor:
  """Returns [b, dim], each example's mean of rows of `table` [F, dim], weighted by value."""
  size = tf.size(x.row_splits) - 1
  example = tf.ragged.row_splits_to_segment_ids(x.row_splits, out_type=tf.int32)
  values = tf.nn.relu(x.values)
  sums = tf.math.unsorted_segment_sum(values, example, size)
  places = tf.stack([example, x.ids], axis=1)
  # A sparse product and its sparse gradient copy no row for each feature of each example.
  weights = tf.SparseTensor(
    tf.cast(places, tf.int64),
    tf.math.divide_no_nan(values, tf.gather(sums, example)),
    tf.stack([tf.cast(size, tf.int64), tf.shape(table, tf.int64)[0]]),
  )
  return layers.sparse_product(weights, table)
