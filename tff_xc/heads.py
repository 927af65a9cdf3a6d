"""Heads: labels and class rows, logits, and how all labels are scored.

Most heads have one row per label. A head that hashes labels has fewer rows, and
several for each label: the number of labels and the number of table rows are
two numbers.
"""

import dataclasses
from typing import Protocol

import tensorflow as tf

from tff_xc.encoders import initializers
from tff_xc.encoders import normalization


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

  def logits(
    self, embeddings: tf.Tensor, rows: tf.Tensor, ids: tf.Tensor
  ) -> tf.Tensor:
    """Returns float32 [B, N].

    Args:
      embeddings: float32 [B, ...], as the encoder returns them.
      rows: float32 [N, row_dim], the rows held.
      ids: int32 [N], their numbers in the table.
    """

  def scoring_rows(self, table: tf.Tensor):
    """Returns (rows [n, d], bias [n] or None) that rank labels, or None.

    For any embedding e, e . rows + bias orders labels as the head does. A head
    that scores labels in another way returns None and has `label_scores`:
    (embeddings [B, ...], table) -> float32 [B, n].
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

  Attributes:
    scale: factor of the logits.
    unit_rows: whether initial rows have norm exactly 1 (FedAwS).
  """

  scale: float = 20.0
  unit_rows: bool = False

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim

  def init(self, seed, num_labels, embedding_dim):
    table = tf.random.stateless_normal(
      [num_labels, embedding_dim], seed, stddev=embedding_dim**-0.5
    )
    return normalization.unit_norm(table) if self.unit_rows else table

  def logits(self, embeddings, rows, ids):
    del ids
    return self.scale * tf.matmul(
      normalization.unit_norm(embeddings),
      normalization.unit_norm(rows),
      transpose_b=True,
    )

  def scoring_rows(self, table):
    return normalization.unit_norm(table), None


@dataclasses.dataclass(frozen=True)
class LinearHead(_OneRowPerLabel):
  """Logits g(x) . w_c, plus b_c (the row's last entry) if `bias`."""

  bias: bool = True

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + int(self.bias)

  def init(self, seed, num_labels, embedding_dim):
    return initializers.torch_uniform(
      seed, [num_labels, self.row_dim(embedding_dim)], embedding_dim
    )

  def logits(self, embeddings, rows, ids):
    del ids
    if not self.bias:
      return tf.matmul(embeddings, rows, transpose_b=True)
    # One more coordinate of the embeddings: splitting the rows would copy them,
    # and their gradient once more.
    ones = tf.ones_like(embeddings[:, :1])
    extended = tf.concat([embeddings, ones], axis=1)
    return tf.matmul(extended, rows, transpose_b=True)

  def scoring_rows(self, table):
    return (table[:, :-1], table[:, -1]) if self.bias else (table, None)
