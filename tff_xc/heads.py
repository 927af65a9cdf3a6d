"""Heads: labels and class rows, logits, and how all labels are scored.

Most heads have one row per label. A head that hashes labels has fewer rows, and
several for each label: the number of labels and the number of table rows are
two numbers.
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
    """Returns a fresh class table, float32 [num_rows, row_dim]."""

  def rows_of(self, labels: tf.Tensor) -> tf.Tensor:
    """Returns the rows of labels int32 [k]: int32 [k], or [k, R] if R each."""

  def logits(self, embeddings: tf.Tensor, rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns float32 [B, N] of embeddings [B, ...] and rows held, float32 [N, row_dim].

    `ids` int32 [N] are their numbers in the table; None if all are held, in order.
    """

  def scoring_rows(self, table: tf.Tensor):
    """Returns (rows [n, d], bias [n] or None) that rank labels, or None.

    For any embedding e, e . rows + bias orders labels as the head does. A head
    that scores labels in another way returns None and has `label_scores`:
    (embeddings [B, ...], table) -> float32 [n, B], a row for each label.
    """


class _OneRowPerLabel:
  """Base of the heads whose table has the labels' rows in their order."""

  def num_rows(self, num_labels: int) -> int:
    return num_labels

  def rows_of(self, labels: tf.Tensor) -> tf.Tensor:
    return labels


@dataclasses.dataclass(frozen=True)
class CosineHead(_OneRowPerLabel):
  """Logits scale * cos(g(x), w_c), without bias (FedSS: scale 20).

  `unit_rows`: initial rows have norm exactly 1 (FedAwS).
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
    # One more coordinate of the embeddings: splitting the rows would copy them,
    # and their gradient once more.
    ones = tf.ones_like(embeddings[:, :1])
    extended = tf.concat([embeddings, ones], axis=1)
    return precision.product(tf.matmul, extended, rows, transpose_b=True)

  def scoring_rows(self, table):
    return (table[:, :-1], table[:, -1]) if self.bias else (table, None)


@dataclasses.dataclass(frozen=True)
class PrototypeHead(_OneRowPerLabel):
  """Logits -scale / 2 |g(x) - C_c|^2 of prototypes C_c, means of embeddings (FedProto).

  A row is C_c, and then 1; or zeros of a label that has no prototype yet, which is
  last, and never found best. `unit`: embeddings and prototypes are compared at norm 1,
  so that logits are scale * cos(g(x), C_c). Logits lack a summand that all labels share.
  """

  scale: float = 2.0
  unit: bool = False

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + 1

  def init(self, seed, num_labels, embedding_dim):
    return tf.zeros([num_labels, self.row_dim(embedding_dim)])

  def compared(self, vectors):
    """Returns embeddings or prototypes [..., d] as they are compared."""
    return layers.unit_norm(vectors) if self.unit else vectors

  def logits(self, embeddings, rows, ids):
    prototypes, half = self._parts(rows, -1e9)
    products = precision.product(tf.matmul, self.compared(embeddings), prototypes, transpose_b=True)
    return self.scale * (products + half)

  def scoring_rows(self, table):
    # Of unit prototypes all summands are the same, whatever an embedding's norm.
    return self._parts(table, -float('inf'))

  def _parts(self, rows, unknown: float):
    """Returns (C [N, d], -|C|^2 / 2 [N]), the latter `unknown` without a prototype."""
    prototypes = self.compared(rows[:, :-1])
    half = -tf.reduce_sum(tf.square(prototypes), axis=1) / 2.0
    return prototypes, tf.where(rows[:, -1] > 0, half, unknown)


SCORES = ('logsigmoid', 'logit', 'median')
_MOST_ORDERED = 64  # Tables of a median: it compares each two of them.


@dataclasses.dataclass(frozen=True)
class HashedHead:
  """R tables of B buckets; a label has one bucket in each (FedMLH).

  Row r B + b is bucket b of table r: weights, then a bias. Its logit is its
  product with the embedding of sub-model r. A label's score is the mean over its
  buckets of 'logsigmoid', the log of the bucket's probability (the paper), or of
  'logit' (the published code), or the 'median' of these logs (of two middle ones the
  mean). They may rank labels differently.
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
    """Returns float32 [B, N]; embeddings are float32 [B, R, d]."""
    extended = _with_ones(embeddings)
    if ids is None:
      by_table = precision.product(tf.matmul, extended, self._of_tables(rows), transpose_b=True)
      return tf.reshape(tf.transpose(by_table, [1, 0, 2]), [-1, self.num_rows(0)])
    # The rows of a table side by side, so that each sub-model has one product.
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
    return None  # A label's score is no inner product.

  def label_scores(self, embeddings, table):
    """Returns float32 [n, b] of embeddings [b, R, d]; besides it, little memory is needed.

    A bucket's logits of all examples lie side by side, so that a label's score
    is the mean of R rows. To gather R single numbers for each label and example
    takes ten times as long. A median holds R times as many numbers.
    """
    of_rows = self.row_scores(embeddings, table)
    with tf.init_scope():  # Hashed once, not with every block of examples.
      labels = tf.range(self.num_labels)
      rows = self.rows_of(labels)
      label_of_row = tf.repeat(labels, self.num_tables)
    if self.score == 'median':
      numbers = tf.unstack(rows, axis=1)
      return self.joined([tf.gather(of_rows, each) for each in numbers])
    rows = tf.reshape(rows, [-1])
    return tf.sparse.segment_mean(of_rows, rows, label_of_row)

  def joined(self, of_tables):
    """Returns labels' scores [n, b] from those of their buckets, R times [n, b]."""
    if self.score != 'median':
      return sum(of_tables[1:], of_tables[0]) / len(of_tables)
    ordered, count = [*of_tables], len(of_tables)
    # Neighbors change places until all are in order: `tf.sort` takes 40 times as long.
    for turn in range(count):
      for i in range(turn % 2, count - 1, 2):
        a, b = ordered[i : i + 2]
        ordered[i : i + 2] = tf.minimum(a, b), tf.maximum(a, b)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0

  def row_scores(self, embeddings, table):
    """Returns float32 [R B, b], what labels' scores join, by `rows_of`."""
    logits = tf.matmul(self._of_tables(table), _with_ones(embeddings), transpose_b=True)
    if self.score != 'logit':
      logits = tf.math.log_sigmoid(logits)
    return tf.reshape(logits, [self.num_rows(0), -1])


def _with_ones(embeddings: tf.Tensor) -> tf.Tensor:
  """Returns float32 [R, b, d + 1] of embeddings [b, R, d].

  The last coordinate meets the rows' biases; to split the rows would copy them.
  """
  ones = tf.ones_like(embeddings[..., :1])
  return tf.transpose(tf.concat([embeddings, ones], axis=2), [1, 0, 2])
