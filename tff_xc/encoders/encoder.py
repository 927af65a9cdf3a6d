"""The form of an encoder: named weights and a pure function of them.

Weights are ordered dictionaries from unique names to tensors, so that no weight
is lost or trained twice. (A federated learner that keys variables by repeated
names trains only the last variable of each name.)
"""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tff_xc.data import sparse

Weights = Mapping[str, tf.Tensor]


class SparseSpec(NamedTuple):
  """Examples are `sparse.SparseFeatures` with ids in [0, num_features)."""

  num_features: int


class Table(NamedTuple):
  """A trainable weight [num_rows, dim] of which examples name the rows.

  Attributes:
    num_rows: its number of rows.
    ids: x -> int32 [k], the rows that examples use.
    with_ids: (x, ids int32 [k]) -> x with other ids, in the same order.
  """

  num_rows: int
  ids: Callable[..., tf.Tensor]
  with_ids: Callable[..., Any]


def sparse_features(num_features: int) -> Table:
  """Returns the table of `sparse.SparseFeatures`: one row for each feature."""
  return Table(
    num_features,
    ids=lambda x: x.ids,
    with_ids=lambda x, ids: x._replace(ids=ids),
  )


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
    tables: by name, the trainable weights of which `apply` reads few rows.
    last_layer: names of the weights of the last layer, whose output is the
      embedding (before a function without weights); empty: there is none.
    copies: number -> that many of the encoder side by side, in a form that is
      faster than one after the other; see `tff_xc.encoders.copies`.
  """

  example_spec: tf.TensorSpec | SparseSpec
  embedding_dim: int
  init: Callable[[tf.Tensor], Weights]
  apply: Callable[..., tuple[tf.Tensor, Weights]]
  init_non_trainable: Callable[[tf.Tensor], Weights] = lambda seed: (
    collections.OrderedDict()
  )
  tables: Mapping[str, 'Table'] = dataclasses.field(
    default_factory=dict, hash=False
  )
  last_layer: tuple[str, ...] = ()
  copies: Callable[[int], 'Encoder'] | None = None

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
  """Returns the number of examples of x, int32 scalar.

  Args:
    x: a tensor, or a tuple in compressed row form: `row_splits`, then values.
  """
  if isinstance(x, tuple):
    return tf.size(x.row_splits) - 1
  return tf.shape(x)[0]


def take(x, places: tf.Tensor):
  """Returns the examples of x at `places` int32 [B]; x as in `count`."""
  if not isinstance(x, tuple):
    return tf.gather(x, places)
  _, *values = x
  rows = [
    tf.gather(
      tf.RaggedTensor.from_row_splits(v, x.row_splits, validate=False), places
    )
    for v in values
  ]
  return type(x)(rows[0].row_splits, *(r.flat_values for r in rows))
