"""Personal models of clients: the global model after some local steps.

The client trains as in a round, with the algorithm's loss, optimizer and batches. The client trains
the rows that it would request: all rows, or its own rows and sampled negatives. The client sends
nothing, and its model is not stored. For TFF's models,
`tff.learning.algorithms.build_personalization_eval_computation` does the same.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from tff_xc import classifier, errors
from tff_xc.data import sparse
from tff_xc.round import (
  algorithm as algorithm_lib,
  client_update,
  examples as examples_lib,
  frozen,
  losses,
  tables as tables_lib,
)

# The weights that change. ALL: the weights that clients train in rounds, and frozen class rows (see
# `build`); HEAD: all received class rows; ROWS: only the rows of the client's own classes.
PARTS = ALL, HEAD, ROWS = 'all', 'head', 'rows'


def build(
  algorithm: algorithm_lib.Algorithm,
  steps: int,
  part: str = ALL,
  learning_rate: float | None = None,
):
  """Returns a function from the global model to a client's personal model.

  The function takes `ModelWeights` with whole tables, `ClientExamples` without weights and state,
  and the seed of a round, int32 [5]. The client trains as it would in this round, but without a
  client state, like a client in its first round. The function returns `ModelWeights` with whole
  tables. Rows that the client did not receive do not change.

  Args:
    algorithm: an algorithm whose requests have room for the client's rows.
    steps: the number of minibatches, at least 1.
    part: one of `PARTS`.
    learning_rate: the learning rate of the client's optimizer. None: the algorithm's learning rate
      without its schedule, because a schedule may end at 0.
  """
  if steps < 1:
    raise ValueError(f'{steps} steps; without any, a model is the global one')
  training = dataclasses.replace(algorithm.local_training, steps=steps, epochs=1, schedule=None)
  if learning_rate is not None:
    training = dataclasses.replace(training, learning_rate=learning_rate)
  algorithm = dataclasses.replace(algorithm, local_training=training)
  # A client also fine-tunes class rows that were frozen in the rounds (FedBABU), except under the
  # hinge loss, which MOON's term may wrap.
  if not isinstance(getattr(algorithm.loss, 'loss', algorithm.loss), losses.PositiveHinge):
    trained = algorithm.frozen - {classifier.CLASS}
    algorithm = dataclasses.replace(algorithm, frozen=trained, head_epochs=0)
  if part != ALL:
    is_trained = losses.trains_rows(algorithm.loss)
    if classifier.CLASS in algorithm.frozen or not is_trained:
      raise errors.InputError(
        f'--personalize_part={part}: clients of this algorithm do not train class'
        ' rows; give --personalize_part=all'
      )
    algorithm = frozen.train_only(algorithm, 'head')
  model = algorithm.model
  train = client_update.build_training(algorithm, own_rows_only=part == ROWS)

  def personal(weights, examples, seed):
    examples = first_time(algorithm, examples)
    held = tables_lib.held_rows(model, algorithm.tables, examples, seed)
    after, _ = train(received(algorithm, weights, held), held, examples, seed)
    own = dict(weights.tables)
    for table in algorithm.tables:
      own[table.name] = rows = after.tables[table.name]
      if table.request.selects:
        kept = held[table.name].mask[: tf.shape(rows)[0]]
        own[table.name] = tf.tensor_scatter_nd_update(
          weights.tables[table.name],
          tf.boolean_mask(held[table.name].ids[: tf.size(kept)], kept)[:, None],
          tf.boolean_mask(rows, kept),
        )
    return after._replace(tables=classifier.replaced(weights.tables, own))

  return tf.function(personal, input_signature=signature(model), autograph=False)


def signature(model: classifier.EmbeddingClassifier) -> tuple:
  """Returns the specs of whole weights, a client's examples and a round's seed."""
  integers = tf.TensorSpec([None], tf.int32)
  of_client = examples_lib.ClientExamples(
    model.encoder.batch_spec(),
    sparse.LabelSets(integers, integers) if model.label_sets else integers,
    tf.TensorSpec([], tf.int64),
    integers,
  )
  return model.weight_specs(), of_client, tf.TensorSpec([5], tf.int32)


def first_time(
  algorithm: algorithm_lib.Algorithm, examples: examples_lib.ClientExamples
) -> examples_lib.ClientExamples:
  """Returns `examples` with the state of a client that has not participated yet."""
  if algorithm.client_state is None:
    return examples
  nothing = examples_lib.nothing_kept(algorithm.client_state.spec)
  return examples._replace(state=tf.nest.map_structure(tf.constant, nothing))


def received(
  algorithm: algorithm_lib.Algorithm, weights: classifier.ModelWeights, held: Mapping
) -> classifier.ModelWeights:
  """Returns the weights that a client receives if it requests the rows `held`."""
  own = dict(weights.tables)
  for table in algorithm.tables:
    if table.request.selects:
      rows = tf.gather(own[table.name], held[table.name].ids)
      own[table.name] = table.used(rows, held[table.name])
  tables = classifier.replaced(weights.tables, own)
  return weights._replace(tables=tables)
