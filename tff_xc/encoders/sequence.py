"""Encodes a user's sequence of items by causal self-attention.

Kang, McAuley: "Self-Attentive Sequential Recommendation" (SASRec), ICDM 2018,
arXiv:1808.09781, with layer normalization before each sub-layer. An example is a user's
latest items. Its feature ids are the items, in any order, and a feature's value is 1 / age,
where the newest item has age 1. In tests, the example's embedding is the output at the
newest item. In training, every item of the example has an embedding and a target. The target is the
next item. The target of the newest item is the label. One pass therefore trains on a whole history.

Position embeddings are learned, and positions are counted from the newest item. An item
attends to itself and to older items. The shorter examples of a batch are padded on the
left. Padding is masked in the attention and affects no result.
"""

import collections

import tensorflow as tf

from tff_xc import precision
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib, layers

ITEM = 'item'
_EXCLUDED = -1e9  # A float32 softmax gives this score the weight zero.
_FLOOR = 1e-6  # Added to variances.


def build_sequence_encoder(
  *, num_items: int, length: int, dim: int = 64, blocks: int = 1, dropout: float = 0.2
) -> encoder_lib.Encoder:
  """Returns the encoder; examples are `sparse.SparseFeatures` of at most `length` items.

  The encoder's weights are the table 'item' with a row of `dim` numbers per item,
  'position' [length, dim], and for each block 'block0/query/kernel' and so on. The caller
  ties the table to the class rows (`encoder.tied`). In training, `dropout` is the dropout
  rate of the input and of every sub-layer's output.
  """

  def init(seed):
    def draw(number, rows):
      return tf.random.stateless_normal([rows, dim], layers.fold(seed, number), stddev=dim**-0.5)

    weights = collections.OrderedDict()
    weights[ITEM] = draw(0, num_items)
    # Small initial values, so that an item's encoding hardly depends on its position at first.
    weights['position'] = 0.1 * draw(1, length)
    for block in range(blocks):
      of_block = layers.fold(seed, 2 + block)
      for i, layer in enumerate(_LAYERS):
        name = f'block{block}/{layer}'
        weights |= layers.init_dense(name, layers.fold(of_block, i), dim, dim)
      # This bias would add the same number to all scores of a query, which softmax ignores.
      del weights[f'block{block}/key/bias']
      for layer in ('attend', 'feed'):
        weights |= _init_norm(f'block{block}/{layer}', dim)
    return weights | _init_norm('last', dim)

  def apply(trainable, non_trainable, x, training, seed):
    places, age, count = _places(x, length)
    rows = tf.gather(trainable[ITEM], x.ids)
    rows += tf.gather(trainable['position'], age - 1)
    shape = tf.concat([count, [dim]], axis=0)
    h = tf.scatter_nd(places, rows, shape)
    h = tf.ensure_shape(h, [None, None, dim])
    is_there = tf.scatter_nd(places, tf.ones_like(x.values), count) > 0

    def dropped(t, number):
      if not training or not dropout:
        return t
      drawn = tf.random.stateless_uniform(tf.shape(t), layers.fold(seed, number))
      return tf.where(drawn < dropout, 0.0, t / (1.0 - dropout))

    h = dropped(h, 0)
    for block in range(blocks):
      name = f'block{block}'
      attended = _attention(_norm(h, trainable, f'{name}/attend'), is_there, trainable, name)
      h += dropped(attended, 2 * block + 1)
      inner = _norm(h, trainable, f'{name}/feed')
      inner = tf.nn.relu(_dense(inner, trainable, f'{name}/inner'))
      h += dropped(_dense(inner, trainable, f'{name}/outer'), 2 * block + 2)
    h = _norm(h, trainable, 'last')
    return (tf.gather_nd(h, places) if training else h[:, -1]), non_trainable

  def targets(x, y):
    places, age, count = _places(x, length)
    ids = tf.scatter_nd(places, x.ids, count)
    after = tf.minimum(places + tf.constant([0, 1]), count - 1)
    newest = tf.gather(y, places[:, 0])
    # In TFF's graphs, `==` would compare the identities of tensors.
    is_newest = tf.equal(age, 1)
    return tf.where(is_newest, newest, tf.gather_nd(ids, after)), places[:, 0]

  return encoder_lib.Encoder(
    example_spec=encoder_lib.SparseSpec(num_items),
    embedding_dim=dim,
    init=init,
    apply=apply,
    targets=targets,
    tables={ITEM: encoder_lib.feature_table(num_items)},
  )


_LAYERS = 'query', 'key', 'value', 'inner', 'outer'


def _places(x: sparse.SparseFeatures, length: int):
  """Returns (indices int32 [k, 2] in a padded batch, ages [k], the batch's shape [2])."""
  example = tf.ragged.row_splits_to_segment_ids(x.row_splits, out_type=tf.int32)
  age = tf.cast(tf.round(1.0 / x.values), tf.int32)
  age = tf.clip_by_value(age, 1, length)
  longest = tf.reduce_max(tf.pad(age, [[0, 1]], constant_values=1))
  count = tf.stack([tf.size(x.row_splits) - 1, longest])
  return tf.stack([example, longest - age], axis=1), age, count


def _dense(h, weights, layer):
  """Applies a dense layer to h [B, T, d]."""
  flat = layers.dense(tf.reshape(h, [-1, h.shape[-1]]), weights, layer)
  return tf.reshape(flat, [tf.shape(h)[0], -1, flat.shape[-1]])


def _init_norm(layer: str, dim: int) -> dict[str, tf.Tensor]:
  return {f'{layer}/scale': tf.ones([dim]), f'{layer}/offset': tf.zeros([dim])}


def _norm(h, weights, layer):
  """Applies layer normalization to h [B, T, d]."""
  mean, variance = tf.nn.moments(h, axes=[-1], keepdims=True)
  unit = (h - mean) * tf.math.rsqrt(variance + _FLOOR)
  return unit * weights[f'{layer}/scale'] + weights[f'{layer}/offset']


def _attention(h, is_there, weights, name):
  """Returns the attention of each item in h [B, T, d] to itself and older items."""
  size, dim = tf.shape(h)[1], h.shape[-1]
  weights = {**weights, f'{name}/key/bias': tf.zeros([dim])}
  query, key, value = (_dense(h, weights, f'{name}/{part}') for part in _LAYERS[:3])
  scores = precision.product(tf.matmul, query, key, transpose_b=True)
  itself = tf.eye(size, dtype=tf.bool)
  older = tf.linalg.band_part(tf.ones([size, size]), -1, 0) > 0
  # Padding attends to itself, too, because a softmax needs at least one term.
  seen = tf.logical_or(tf.logical_and(older, is_there[:, None, :]), itself)
  scores = tf.where(seen, scores * dim**-0.5, _EXCLUDED)
  return precision.product(tf.matmul, tf.nn.softmax(scores), value)
