"""FedAwS's encoder for sparse text, a bag of weighted features.

The encoder averages the table rows of an example's features, weighted by the features'
values. The average passes through two hidden layers with ReLU and a linear layer, and the
result is scaled to norm 1. FedAwS, section 5, has the widths 512, 1024, 1024, 512. Like
`tf.nn.safe_embedding_lookup_sparse`, the average ignores features without a positive
value, and is zero for an example without features.
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

  The encoder's weights are the table 'feature' with a row of `feature_dim` numbers per
  feature, and 'dense0/kernel', 'dense0/bias' and so on. An embedding has `embedding_dim`
  numbers.
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
  """Returns [B, dim], the mean of the rows of `table` [F, dim] for each example's features.

  The means are weighted by the features' values.
  """
  size = tf.size(x.row_splits) - 1
  example = tf.ragged.row_splits_to_segment_ids(x.row_splits, out_type=tf.int32)
  values = tf.nn.relu(x.values)
  sums = tf.math.unsorted_segment_sum(values, example, size)
  places = tf.stack([example, x.ids], axis=1)
  # `tf.gather` would copy a row for each feature of each example. A sparse product does not.
  weights = tf.SparseTensor(
    tf.cast(places, tf.int64),
    tf.math.divide_no_nan(values, tf.gather(sums, example)),
    tf.stack([tf.cast(size, tf.int64), tf.shape(table, tf.int64)[0]]),
  )
  return layers.sparse_product(weights, table)
