"""The form of an encoder: named weights and a pure function of them.

Weights are ordered dictionaries from unique names to tensors, so that no weight
is lost or trained twice. (A federated learner that keys variables by repeated
names trains only the last variable of each name.)
"""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tff_xc.data import sparse

Weights = Mapping[str, tf.Tensor]
_NORM_FLOOR = 1e-12


class SparseSpec(NamedTuple):
  """Examples are `sparse.SparseFeatures` with ids in [0, num_features)."""

  num_features: int


@dataclasses.dataclass(frozen=True)
class Encoder:
  """An encoder g(x; phi) in functional form.

  Attributes:
    example_spec: spec of one stored example, without the batch dimension.
    embedding_dim: d, the length of an embedding.
    init: `seed` int32 [2] -> trainable weights, by name.
    apply: (trainable, non_trainable, x [B, ...], training, seed int32 [2]) ->
      (embeddings float32 [B, d], updated non_trainable).
    init_non_trainable: `seed` -> weights without gradients, such as batch
      statistics. They are averaged over clients like the others.
    feature_table: for sparse examples, the name of the trainable weight
      [num_features, ...] of which `apply` reads only the rows `x.ids`; or None.
  """

  example_spec: tf.TensorSpec | SparseSpec
  embedding_dim: int
  init: Callable[[tf.Tensor], Weights]
  apply: Callable[..., tuple[tf.Tensor, Weights]]
  init_non_trainable: Callable[[tf.Tensor], Weights] = lambda seed: (
    collections.OrderedDict()
  )
  feature_table: str | None = None

  def batch_spec(self) -> tf.TensorSpec | sparse.SparseFeatures:
    """Returns the specs of a batch of any size."""
    spec = self.example_spec
    if not isinstance(spec, SparseSpec):
      return tf.TensorSpec([None, *spec.shape], spec.dtype)
    return sparse.SparseFeatures(
      tf.TensorSpec([None], tf.int32),
      tf.TensorSpec([None], tf.int32),
      tf.TensorSpec([None], tf.float32),
    )


def count(x) -> tf.Tensor:
  """Returns the number of examples of x, dense or sparse, int32 scalar."""
  if isinstance(x, sparse.SparseFeatures):
    return tf.size(x.row_splits) - 1
  return tf.shape(x)[0]


def take(x, places: tf.Tensor):
  """Returns the examples at `places` int32 [B] of x, dense or sparse."""
  if not isinstance(x, sparse.SparseFeatures):
    return tf.gather(x, places)
  ids, values = [
    tf.gather(
      tf.RaggedTensor.from_row_splits(t, x.row_splits, validate=False), places
    )
    for t in (x.ids, x.values)
  ]
  return sparse.SparseFeatures(
    ids.row_splits, ids.flat_values, values.flat_values
  )


def unit_norm(x: tf.Tensor) -> tf.Tensor:
  """Divides by the l2 norm along the last axis plus 1e-12."""
  squared = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
  # The gradient of sqrt at zero is infinite, so a zero vector avoids sqrt: it
  # stays zero, with zero gradient.
  safe = tf.where(squared > 0, squared, 1.0)
  return x / (tf.where(squared > 0, tf.sqrt(safe), 0.0) + _NORM_FLOOR)
