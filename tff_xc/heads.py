"""Heads: how labels map to class rows, and how logits and scores of labels are computed.

Most heads have one row per label. A head that hashes labels has several rows for each
label, but labels share rows. The number of labels can therefore differ from the number of
table rows.
"""

import dataclasses
from typing import Protocol

import tensorflow as tf

from tff_xc import errors, precision
from tff_xc.data import hashing
from tff_xc.encoders import layers


class Head(Protocol):
  """Turns embeddings and class rows into logits and scores of labels."""

  def num_rows(self, num_labels: int) -> int:
    """Returns the number of rows in the class table."""

  def row_dim(self, embedding_dim: int) -> int:
    """Returns the length of a class row."""

  def init(self, seed: tf.Tensor, num_labels: int, embedding_dim: int):
    """Returns a class table with random initial rows, float32 [num_rows, row_dim]."""

  def rows_of(self, labels: tf.Tensor) -> tf.Tensor:
    """Returns the row numbers of labels int32 [k]: int32 [k], or [k, R] for R rows per label."""

  def logits(self, embeddings: tf.Tensor, rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns logits float32 [B, N] for embeddings [B, ...] and rows float32 [N, row_dim].

    `ids`, int32 [N], are the row numbers of `rows` in the table. None means that `rows`
    is the whole table in order.
    """

  def scoring_rows(self, table: tf.Tensor):
    """Returns (rows [n, d], bias [n] or None) that rank labels, or None for other heads.

    For any embedding e, the order of the numbers e . rows + bias is the head's order of
    labels. A head whose scores have another form returns None and has a method
    `label_scores`: (embeddings [B, ...], table) -> float32 [n, B], one row for each label.
    """


class _OneRowPerLabel:
  """Base class of heads whose table has one row per label, in the order of labels."""

  def num_rows(self, num_labels: int) -> int:
    return num_labels

  def rows_of(self, labels: tf.Tensor) -> tf.Tensor:
    return labels


@dataclasses.dataclass(frozen=True)
class CosineHead(_OneRowPerLabel):
  """Logits scale * cos(g(x), w_c), without bias (FedSS: scale 20).

  With `unit_rows`, the initial rows have norm 1 (FedAwS).
  """

  scale: float = 20.0
  unit_rows: bool = False

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim

  def init(self, seed, num_labels, embedding_dim):
    table = tf.random.stateless_normal(
      [num_labels, embedding_dim], seed, stddev=embedding_dim**-0.5
    )
    return layers.unit_norm(table) if self.unit_rows else table

  def logits(self, embeddings, rows, ids):
    return self.scale * precision.product(
      tf.matmul, layers.unit_norm(embeddings), layers.unit_norm(rows), transpose_b=True
    )

  def scoring_rows(self, table):
    return layers.unit_norm(table), None


@dataclasses.dataclass(frozen=True)
class LinearHead(_OneRowPerLabel):
  """Logits g(x) . w_c, plus b_c (the row's last entry) if `bias`."""

  bias: bool = True

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + int(self.bias)

  def init(self, seed, num_labels, embedding_dim):
    return layers.torch_uniform(seed, [num_labels, self.row_dim(embedding_dim)], embedding_dim)

  def logits(self, embeddings, rows, ids):
    if not self.bias:
      return precision.product(tf.matmul, embeddings, rows, transpose_b=True)
    # Append 1 to the embeddings, so that one product includes the bias. Splitting the rows
    # into weights and bias would copy the rows and their gradient.
    ones = tf.ones_like(embeddings[:, :1])
    extended = tf.concat([embeddings, ones], axis=1)
    return precision.product(tf.matmul, extended, rows, transpose_b=True)

  def scoring_rows(self, table):
    return (table[:, :-1], table[:, -1]) if self.bias else (table, None)


@dataclasses.dataclass(frozen=True)
class PrototypeHead(_OneRowPerLabel):
  """Logits -scale / 2 |g(x) - C_c|^2, where the prototypes C_c are mean embeddings (FedProto).

  A row is C_c followed by 1. The row of a label without a prototype is all zeros. A label
  without a prototype is ranked last and is never the predicted label. With `unit`,
  embeddings and prototypes are scaled to norm 1, so logits are scale * cos(g(x), C_c).
  The computed logits omit the summand that is the same for all labels.
  """

  scale: float = 2.0
  unit: bool = False

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + 1

  def init(self, seed, num_labels, embedding_dim):
    return tf.zeros([num_labels, self.row_dim(embedding_dim)])

  def compared(self, vectors):
    """Returns embeddings or prototypes [..., d], scaled to norm 1 if `unit`."""
    return layers.unit_norm(vectors) if self.unit else vectors

  def logits(self, embeddings, rows, ids):
    prototypes, half = self._parts(rows, -1e9)
    products = precision.product(tf.matmul, self.compared(embeddings), prototypes, transpose_b=True)
    return self.scale * (products + half)

  def scoring_rows(self, table):
    # If prototypes have norm 1, the bias -|C|^2 / 2 is the same for all labels. The order of
    # labels then does not depend on the embedding's norm.
    return self._parts(table, -float('inf'))

  def _parts(self, rows, unknown: float):
    """Returns (C [N, d], -|C|^2 / 2 [N]); rows without a prototype get `unknown` instead."""
    prototypes = self.compared(rows[:, :-1])
    half = -tf.reduce_sum(tf.square(prototypes), axis=1) / 2.0
    return prototypes, tf.where(rows[:, -1] > 0, half, unknown)


SCORES = ('logsigmoid', 'logit', 'median')
# The most tables for the score 'median'. Its time grows with the square of their number.
_MOST_ORDERED = 64


@dataclasses.dataclass(frozen=True)
class HashedHead:
  """R tables of B buckets; each label has one bucket in each table (FedMLH).

  Row r B + b of the class table is bucket b of hash table r. The row consists of weights
  and a bias. The bucket's logit is the product of the weights with the embedding of
  sub-model r, plus the bias. `score` selects one of three scores of a label, which may rank
  labels differently:
    'logsigmoid': mean, over the label's buckets, of the log of the bucket's probability
      (the paper).
    'logit': mean of the logits of the label's buckets (the published code).
    'median': median of the logs of the buckets' probabilities. For an even R, this is the
      mean of the two middle logs.
  """

  num_labels: int
  num_tables: int
  num_buckets: int
  score: str = 'logsigmoid'

  def __post_init__(self):
    if self.score not in SCORES:
      raise ValueError(f'unknown score {self.score!r}: expected one of {SCORES}')
    if self.score == 'median' and self.num_tables > _MOST_ORDERED:
      raise errors.InputError(
        f'a median is taken of at most {_MOST_ORDERED} tables, and there are'
        f' {self.num_tables:,}; use fewer --hash_tables or another --bucket_score'
      )
    if not 1 <= self.num_tables * self.num_buckets <= tf.int32.max:
      raise errors.InputError(
        f'{self.num_tables:,} tables of {self.num_buckets:,} buckets: expected at'
        f' least one of each, and at most {tf.int32.max:,} buckets in all'
      )

  def num_rows(self, num_labels: int) -> int:
    return self.num_tables * self.num_buckets

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + 1

  def init(self, seed, num_labels, embedding_dim):
    shape = [self.num_rows(num_labels), self.row_dim(embedding_dim)]
    return layers.torch_uniform(seed, shape, embedding_dim)

  def rows_of(self, labels):
    hashed = hashing.buckets_in_tables(labels, self.num_tables, self.num_buckets)
    return hashed + self.num_buckets * tf.range(self.num_tables)

  def logits(self, embeddings, rows, ids):
    """Returns logits float32 [B, N]; embeddings are float32 [B, R, d]."""
    extended = _with_ones(embeddings)
    if ids is None:
      by_table = precision.product(tf.matmul, extended, self._of_tables(rows), transpose_b=True)
      return tf.reshape(tf.transpose(by_table, [1, 0, 2]), [-1, self.num_rows(0)])
    # Sort the rows by hash table, so that each sub-model needs one product.
    table = ids // self.num_buckets
    order = tf.argsort(table, stable=True)
    sizes = tf.math.bincount(table, minlength=self.num_tables)
    of_tables = tf.split(tf.gather(rows, order), sizes, num=self.num_tables)
    products = [
      precision.product(tf.matmul, extended[r], of_table, transpose_b=True)
      for r, of_table in enumerate(of_tables)
    ]
    places = tf.math.invert_permutation(order)
    return tf.gather(tf.concat(products, axis=1), places, axis=1)

  def _of_tables(self, table):
    """Returns the table's rows as float32 [R, B, d + 1]."""
    return tf.reshape(table, [self.num_tables, self.num_buckets, -1])

  def scoring_rows(self, table):
    return None  # A label's score is not an inner product.

  def label_scores(self, embeddings, table):
    """Returns scores float32 [n, b] for embeddings [b, R, d].

    A bucket's logits for all examples are adjacent in memory, so the scores of a label are
    the mean of R rows. Gathering R single numbers for each label and example would take
    ten times as long. The median needs R times as much memory as the other scores.
    """
    of_rows = self.row_scores(embeddings, table)
    with tf.init_scope():  # Hash once, not for every block of examples.
      labels = tf.range(self.num_labels)
      rows = self.rows_of(labels)
      label_of_row = tf.repeat(labels, self.num_tables)
    if self.score == 'median':
      numbers = tf.unstack(rows, axis=1)
      return self.joined([tf.gather(of_rows, each) for each in numbers])
    rows = tf.reshape(rows, [-1])
    return tf.sparse.segment_mean(of_rows, rows, label_of_row)

  def joined(self, of_tables):
    """Returns the scores of labels [n, b] from R scores [n, b] of their buckets."""
    if self.score != 'median':
      return sum(of_tables[1:], of_tables[0]) / len(of_tables)
    ordered, count = [*of_tables], len(of_tables)
    # This is odd-even sort, which swaps neighbors. `tf.sort` takes 40 times as long.
    for turn in range(count):
      for i in range(turn % 2, count - 1, 2):
        a, b = ordered[i : i + 2]
        ordered[i : i + 2] = tf.minimum(a, b), tf.maximum(a, b)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0

  def row_scores(self, embeddings, table):
    """Returns the scores of all buckets, float32 [R B, b], in the order of the table's rows."""
    logits = tf.matmul(self._of_tables(table), _with_ones(embeddings), transpose_b=True)
    if self.score != 'logit':
      logits = tf.math.log_sigmoid(logits)
    return tf.reshape(logits, [self.num_rows(0), -1])


def _with_ones(embeddings: tf.Tensor) -> tf.Tensor:
  """Returns embeddings [b, R, d] as float32 [R, b, d + 1] with a last coordinate of 1.

  The last coordinate multiplies the biases. Splitting the rows into weights and biases
  would copy the rows.
  """
  ones = tf.ones_like(embeddings[..., :1])
  return tf.transpose(tf.concat([embeddings, ones], axis=2), [1, 0, 2])
