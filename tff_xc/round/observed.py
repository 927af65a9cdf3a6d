"""Computes what the server sees of one client: its requests and its update."""

from typing import NamedTuple

import tensorflow as tf

from tff_xc import classifier
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import algorithm as algorithm_lib, client_update, personal, tables as tables_lib


class Update(NamedTuple):
  """The changes that a client sends, with the ids of its class rows."""

  encoder: encoder_lib.Weights  # Changes by name, after minus before.
  ids: tf.Tensor  # int32 [N], ids of the received class rows.
  mask: tf.Tensor  # bool [N], False on padding.
  rows: tf.Tensor  # float32 [N, row_dim], changes of the class rows.
  others: dict  # Changes of rows of other tables, float32 [N', row_dim] by table.


def build_requests(algorithm: algorithm_lib.Algorithm):
  """Returns a function (labels int32 [k], client id, round's seed) -> row ids int32.

  The labels are those of all of the client's examples, `ClientExamples.all_labels`. The result has
  the ids of the class rows that the client requests, in the order of the request.
  """
  model, table = algorithm.model, algorithm.tables[0]

  def requests(labels, client_id, seed):
    rows = tf.reshape(model.head.rows_of(labels), [-1])
    held = tables_lib.request_of(table, 0, rows, client_id, seed)
    return tf.boolean_mask(held.ids, held.mask)

  integers = tf.TensorSpec([None], tf.int32)
  signature = (integers, tf.TensorSpec([], tf.int64), tf.TensorSpec([5], tf.int32))
  return tf.function(requests, input_signature=signature, autograph=False)


def build_update(algorithm: algorithm_lib.Algorithm):
  """Returns a function from whole `ModelWeights` to a client's `Update`.

  The function has the same arguments as the function that `personal.build` returns. The client has
  no state, so it trains as in its first round.
  """
  model = algorithm.model
  train = client_update.build_training(algorithm)

  def update(weights, examples, seed):
    examples = personal.first_time(algorithm, examples)
    held = tables_lib.held_rows(model, algorithm.tables, examples, seed)
    before = personal.received(algorithm, weights, held)
    after, _ = train(before, held, examples, seed)
    changes = {}
    for name, rows in after.tables.items():
      mask = held[name].mask[: tf.shape(rows)[0], None]
      changes[name] = tf.where(mask, rows - before.tables[name], 0.0)
    of_classes = held[classifier.CLASS]
    return Update(
      tf.nest.map_structure(tf.subtract, after.encoder, before.encoder),
      of_classes.ids,
      of_classes.mask,
      changes.pop(classifier.CLASS),
      changes,
    )

  return tf.function(update, input_signature=personal.signature(model), autograph=False)
