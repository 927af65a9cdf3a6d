"""The interface of encoders: named weights and a pure function of them.

Weights are ordered dictionaries from unique names to tensors. If two weights had the same
name, only one of them would be trained.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_xc.data import sparse
from tff_xc.encoders import layers

Weights = Mapping[str, tf.Tensor]


class SparseSpec(NamedTuple):
  """Examples are `sparse.SparseFeatures` with ids in [0, num_features)."""

  num_features: int


class Table(NamedTuple):
  """A trainable weight [num_rows, dim] whose rows are named by ids in examples."""

  num_rows: int
  ids: Callable[..., tf.Tensor]  # x -> int32 [k], the ids of the rows that x uses.
  # (x, new ids int32 [k]) -> x with the new ids instead of its ids, in the same order.
  with_ids: Callable[..., Any]


def feature_table(num_rows: int) -> Table:
  """Returns a table with a row for each feature id of `sparse.SparseFeatures`."""
  return Table(num_rows, lambda x: x.ids, lambda x, ids: x._replace(ids=ids))


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
      statistics. They are averaged over clients like the trainable weights.
    tables: by name, the trainable weights that are tables. `apply` reads only a few rows of
      each table.
    tied: by name, tables that are replaced by the class rows, because an example's features
      are classes. `apply` receives the class rows under this name, and the encoder has no
      weights for them; see the function `tied`.
    targets: for examples that are sequences of classes, (x, y int32 [B]) -> (targets
      int32 [S], index of the example of each target int32 [S]). In training, `apply` then
      returns S embeddings, one for each target, and the tied features are also labels.
      None for other examples.
    last_layer: names of the weights of the last layer. The layer's output is the
      embedding, or becomes the embedding by a function without weights. The tuple is empty
      if the encoder has no such layer.
    copies: count -> an encoder that computes `count` copies in parallel, faster than one
      after the other; see `side_by_side`. None if there is no faster form.
  """

  example_spec: tf.TensorSpec | SparseSpec
  embedding_dim: int
  init: Callable[[tf.Tensor], Weights]
  apply: Callable[..., tuple[tf.Tensor, Weights]]
  init_non_trainable: Callable[[tf.Tensor], Weights] = lambda seed: collections.OrderedDict()
  tables: Mapping[str, 'Table'] = dataclasses.field(default_factory=dict, hash=False)
  tied: Mapping[str, 'Table'] = dataclasses.field(default_factory=dict, hash=False)
  targets: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None
  last_layer: tuple[str, ...] = ()
  copies: Callable[[int], 'Encoder'] | None = None

  def batch_spec(self) -> tf.TensorSpec | sparse.SparseFeatures:
    """Returns the spec of a batch of any size."""
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

  x is a tensor, or a tuple in compressed row format: `row_splits`, then the values.
  """
  if isinstance(x, tuple):
    return tf.size(x.row_splits) - 1
  return tf.shape(x)[0]


def take(x, places: tf.Tensor):
  """Returns the examples of x at `places`, int32 [B]; x is as in `count`."""
  if not isinstance(x, tuple):
    return tf.gather(x, places)
  _, *values = x
  rows = [
    tf.gather(tf.RaggedTensor.from_row_splits(v, x.row_splits, validate=False), places)
    for v in values
  ]
  return type(x)(rows[0].row_splits, *(r.flat_values for r in rows))


def tied(encoder: Encoder, name: str) -> Encoder:
  """Returns an encoder that reads class rows instead of its table `name`.

  A client then requests, receives and sends one set of rows, for its features and its
  labels together. Class rows must be as long as the table's rows.
  """
  others = dict(encoder.tables)
  table = others.pop(name)

  def init(seed):
    weights = collections.OrderedDict(encoder.init(seed))
    del weights[name]
    return weights

  return dataclasses.replace(encoder, init=init, tables=others, tied={name: table})


def side_by_side(encoder: Encoder, count: int) -> Encoder:
  """Returns an encoder of `count` copies; embeddings are float32 [B, count, d].

  If the encoder has a faster parallel form (`Encoder.copies`), this function returns that
  form. Otherwise the copies compute one after the other, and the weights of copy r are
  named 'copyR/NAME'. The copies' tables become ordinary weights, so clients receive and
  send whole tables.
  """
  if encoder.copies is not None:
    return encoder.copies(count)
  names = [f'copy{r}/' for r in range(count)]

  def drawn(init):
    def of_all(seed):
      return collections.OrderedDict(
        (prefix + name, weight)
        for r, prefix in enumerate(names)
        for name, weight in init(layers.fold(seed, r)).items()
      )

    return of_all

  def apply(trainable, non_trainable, x, training, seed):
    embeddings, states = [], collections.OrderedDict()
    for r, prefix in enumerate(names):

      def own(weights, prefix=prefix):
        return collections.OrderedDict(
          (name.removeprefix(prefix), weight)
          for name, weight in weights.items()
          if name.startswith(prefix)
        )

      embedding, state = encoder.apply(
        own(trainable), own(non_trainable), x, training=training, seed=layers.fold(seed, r)
      )
      embeddings.append(embedding)
      states |= {prefix + name: value for name, value in state.items()}
    return tf.stack(embeddings, axis=1), states

  return dataclasses.replace(
    encoder,
    init=drawn(encoder.init),
    apply=apply,
    init_non_trainable=drawn(encoder.init_non_trainable),
    tables={},
    last_layer=tuple(p + name for p in names for name in encoder.last_layer),
  )
