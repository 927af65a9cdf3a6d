"""The embedding classifier that all algorithms train.

It consists of an encoder g(x; phi) in R^d, a class table W with one row per
class, and a head that turns embeddings and rows into logits. Row c of the table
is w_c, followed by the class's bias if the head has one. Clients receive and
send rows.
"""

import collections
import dataclasses
import functools
from typing import NamedTuple
from typing import Protocol

import tensorflow as tf

from tff_xc.encoders import encoder as encoder_lib
from tff_xc.encoders import initializers

# Rows are normalised as the encoders normalise embeddings.
unit_norm = encoder_lib.unit_norm


class ModelWeights(NamedTuple):
  """All weights of an embedding classifier.

  Attributes:
    encoder: trainable encoder weights by name.
    encoder_state: encoder weights without gradients, by name.
    class_table: float32 [n, row_dim].
  """

  encoder: encoder_lib.Weights
  encoder_state: encoder_lib.Weights
  class_table: tf.Tensor


class Head(Protocol):
  """Turns embeddings [B, d] and class rows [N, row_dim] into logits [B, N]."""

  def row_dim(self, embedding_dim: int) -> int:
    """Returns the length of a class row."""

  def init(self, seed: tf.Tensor, num_classes: int, embedding_dim: int):
    """Returns a fresh class table, float32 [num_classes, row_dim]."""

  def logits(self, embeddings: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns float32 [B, N]."""

  def scoring_rows(self, table: tf.Tensor):
    """Returns (rows [n, d], bias [n] or None) that rank classes.

    For any embedding e, e . rows + bias orders classes as its logits do.
    """


@dataclasses.dataclass(frozen=True)
class CosineHead:
  """Logits scale * cos(g(x), w_c), without bias (FedSS: scale 20).

  Attributes:
    scale: factor of the logits.
    unit_rows: whether initial rows have norm exactly 1 (FedAwS).
  """

  scale: float = 20.0
  unit_rows: bool = False

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim

  def init(self, seed, num_classes, embedding_dim):
    table = tf.random.stateless_normal(
      [num_classes, embedding_dim], seed, stddev=embedding_dim**-0.5
    )
    return unit_norm(table) if self.unit_rows else table

  def logits(self, embeddings, rows):
    return self.scale * tf.matmul(
      unit_norm(embeddings), unit_norm(rows), transpose_b=True
    )

  def scoring_rows(self, table):
    return unit_norm(table), None


@dataclasses.dataclass(frozen=True)
class LinearHead:
  """Logits g(x) . w_c, plus b_c (the row's last entry) if `bias`."""

  bias: bool = True

  def row_dim(self, embedding_dim: int) -> int:
    return embedding_dim + int(self.bias)

  def init(self, seed, num_classes, embedding_dim):
    return initializers.torch_uniform(
      seed, [num_classes, self.row_dim(embedding_dim)], embedding_dim
    )

  def logits(self, embeddings, rows):
    if not self.bias:
      return tf.matmul(embeddings, rows, transpose_b=True)
    return tf.matmul(embeddings, rows[:, :-1], transpose_b=True) + rows[:, -1]

  def scoring_rows(self, table):
    return (table[:, :-1], table[:, -1]) if self.bias else (table, None)


@dataclasses.dataclass(frozen=True)
class EmbeddingClassifier:
  """Encoder, head and the number of classes n."""

  encoder: encoder_lib.Encoder
  head: Head
  num_classes: int

  @property
  def row_dim(self) -> int:
    """Returns the length of a class row: d, or d + 1 with a bias."""
    return self.head.row_dim(self.encoder.embedding_dim)

  def init(self, seed: tf.Tensor) -> ModelWeights:
    """Returns fresh weights; `seed` is int32 [2]."""
    fold = initializers.fold
    return ModelWeights(
      encoder=self.encoder.init(fold(seed, 0)),
      encoder_state=self.encoder.init_non_trainable(fold(seed, 1)),
      class_table=self.head.init(
        fold(seed, 2), self.num_classes, self.encoder.embedding_dim
      ),
    )

  def embed(self, weights: ModelWeights, x: tf.Tensor) -> tf.Tensor:
    """Returns the embeddings [B, d] of `x` [B, ...], as at test time."""
    embeddings, _ = self.encoder.apply(
      weights.encoder,
      weights.encoder_state,
      x,
      training=False,
      seed=tf.zeros([2], tf.int32),
    )
    return embeddings

  def weight_specs(self) -> ModelWeights:
    """Returns the `tf.TensorSpec`s of the weights, without computing any."""
    return self._weight_specs

  @functools.cached_property
  def _weight_specs(self) -> ModelWeights:
    function = tf.function(lambda: self.init(tf.zeros([2], tf.int32)))
    outputs = function.get_concrete_function().structured_outputs
    return tf.nest.map_structure(
      lambda t: tf.TensorSpec(t.shape, t.dtype), outputs
    )

  def encoder_bytes(self) -> int:
    """Bytes of the encoder's weights, trainable and not."""
    specs = self.weight_specs()
    return sum(
      s.shape.num_elements() * s.dtype.size
      for s in tf.nest.flatten([specs.encoder, specs.encoder_state])
    )


def merged(*parts: encoder_lib.Weights) -> collections.OrderedDict:
  """Joins weights by name.

  Raises:
    ValueError: for a repeated name, which would lose a weight.
  """
  joined = collections.OrderedDict()
  for part in parts:
    for name, value in part.items():
      if name in joined:
        raise ValueError(f'the weight name {name!r} repeats')
      joined[name] = value
  return joined
