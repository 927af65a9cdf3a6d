"""The embedding classifier that all algorithms train.

The classifier consists of an encoder g(x; phi), a table of class rows, and a head that
turns embeddings and rows into logits. An encoder for sparse examples adds a table of
feature rows. Clients receive and send rows of these tables.
"""

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tff_xc import heads, precision as precision_lib
from tff_xc.encoders import encoder as encoder_lib, layers

# The name of the table of class rows.
CLASS = 'class'


class ModelWeights(NamedTuple):
  """All weights of an embedding classifier, by name."""

  encoder: encoder_lib.Weights  # The encoder's trainable weights, except its tables.
  encoder_state: encoder_lib.Weights  # The encoder's weights without gradients.
  # float32 [rows, row_dim]: first the class table ('class'), then the encoder's tables.
  tables: encoder_lib.Weights

  @property
  def class_table(self) -> tf.Tensor:
    """The class rows, float32 [rows, row_dim]."""
    return self.tables[CLASS]


@dataclasses.dataclass(frozen=True)
class EmbeddingClassifier:
  """An encoder, a head, and the number and kind of labels."""

  encoder: encoder_lib.Encoder  # g(x; phi)
  head: heads.Head  # Computes scores of labels from embeddings and class rows.
  num_classes: int  # n, the number of labels.
  label_sets: bool = False  # Whether a training example has a set of labels.
  # The precision of products in `encode` and `logits`, one of `precision.NAMES`.
  precision: str = precision_lib.FLOAT32
  # Maps random initial weights to the weights that training starts from; see
  # `experiment.start`. None if training starts from the random weights.
  start: Callable[[ModelWeights], ModelWeights] | None = dataclasses.field(
    default=None, compare=False, repr=False
  )

  def __post_init__(self):
    # A NumPy integer would make TensorFlow computations on row ids int64.
    object.__setattr__(self, 'num_classes', operator.index(self.num_classes))
    if self.encoder.targets and not self.encoder.tied:
      raise ValueError('an encoder of sequences of classes is tied to their rows')
    for name, table in self.encoder.tied.items():
      if table.num_rows != self.num_rows or self.num_rows != self.num_classes:
        raise ValueError(
          f'the table {name!r} of {table.num_rows} rows cannot be tied to'
          f' {self.num_rows} class rows of {self.num_classes} classes'
        )

  @property
  def num_rows(self) -> int:
    """The number of class rows; it equals `num_classes` if each label has one row."""
    return self.head.num_rows(self.num_classes)

  @property
  def rows_per_label(self) -> int:
    """The number of class rows for each label."""
    rows = self.head.rows_of(tf.zeros([1], tf.int32))
    return rows.shape.num_elements()

  @property
  def shares_rows(self) -> bool:
    """Whether the head hashes labels into rows that several labels share."""
    return self.head.rows_of(tf.zeros([1], tf.int32)).shape.rank > 1

  @property
  def row_dim(self) -> int:
    """The length of a class row: d, or d + 1 with a bias."""
    return self.head.row_dim(self.encoder.embedding_dim)

  def init(self, seed: tf.Tensor) -> ModelWeights:
    """Returns the initial weights, passed through `start` if set; `seed` is int32 [2]."""
    fold = layers.fold
    encoder = collections.OrderedDict(self.encoder.init(fold(seed, 0)))
    tables = collections.OrderedDict()
    tables[CLASS] = self.head.init(fold(seed, 2), self.num_classes, self.encoder.embedding_dim)
    for name in self.encoder.tables:
      tables[name] = encoder.pop(name)
    state = self.encoder.init_non_trainable(fold(seed, 1))
    weights = ModelWeights(encoder, state, tables)
    return self.start(weights) if self.start else weights

  def encode(
    self, weights: ModelWeights, x, training: bool, seed: tf.Tensor
  ) -> tuple[tf.Tensor, encoder_lib.Weights]:
    """Returns (embeddings of `x`, the updated encoder state).

    If `weights` has only some rows of the encoder's tables, the ids in `x` are indices of
    these rows. `seed`, int32 [2], is for encoders that draw random numbers.
    """
    own = {n: t for n, t in weights.tables.items() if n != CLASS}
    own |= dict.fromkeys(self.encoder.tied, weights.class_table)
    with precision_lib.of_products(self.precision):
      return self.encoder.apply(
        union(weights.encoder, own), weights.encoder_state, x, training=training, seed=seed
      )

  def embed(self, weights: ModelWeights, x) -> tf.Tensor:
    """Returns the embeddings [B, ...] of `x` [B, ...] in test mode."""
    return self.encode(weights, x, False, tf.zeros([2], tf.int32))[0]

  def logits(self, embeddings, rows, ids) -> tf.Tensor:
    """Returns `heads.Head.logits`, computed in the model's precision."""
    with precision_lib.of_products(self.precision):
      return self.head.logits(embeddings, rows, ids)

  def weight_specs(self) -> ModelWeights:
    """Returns the `tf.TensorSpec`s of the weights, without computing any."""
    return self._weight_specs

  @functools.cached_property
  def _weight_specs(self) -> ModelWeights:
    # Autograph's conversion would take a second. TFF also traces without autograph.
    function = tf.function(lambda: self.init(tf.zeros([2], tf.int32)), autograph=False)
    outputs = function.get_concrete_function().structured_outputs
    return tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), outputs)


def replaced(weights: encoder_lib.Weights, by: encoder_lib.Weights) -> collections.OrderedDict:
  """Returns `weights` in their order, with values replaced by those in `by`."""
  return collections.OrderedDict((name, by.get(name, value)) for name, value in weights.items())


def union(*parts: encoder_lib.Weights) -> collections.OrderedDict:
  """Joins weights by name; raises ValueError if two weights have the same name."""
  joined = collections.OrderedDict()
  for part in parts:
    for name, value in part.items():
      if name in joined:
        raise ValueError(f'the weight name {name!r} repeats')
      joined[name] = value
  return joined
