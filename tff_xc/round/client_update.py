"""What a client computes: SGD on the encoder and the rows that it holds."""

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import client_message
from tff_xc.round import examples as examples_lib
from tff_xc.round import frozen
from tff_xc.round import importance
from tff_xc.round import losses
from tff_xc.round import randomness
from tff_xc.round import request
from tff_xc.round import tables


class _Trained(NamedTuple):
  """The trained weights: of the encoder, and the held rows of each table."""

  encoder: encoder_lib.Weights
  tables: Mapping[str, tf.Tensor]

  def within(self, weights: classifier.ModelWeights) -> classifier.ModelWeights:
    """Returns `weights` with these in place of theirs."""
    return weights._replace(
      encoder=classifier.replaced(weights.encoder, self.encoder),
      tables=classifier.replaced(weights.tables, self.tables),
    )


def _trained_of(algorithm, weights) -> _Trained:
  part = frozen.trained_part(algorithm, weights)
  return _Trained(part.encoder, part.tables)


def build(algorithm: algorithm_lib.Algorithm):
  """Returns a function of tensors that trains on one client.

  It takes (weights: `ModelWeights` whose tables are the rows held; held: by
  table, `SelectedRows`; examples: `ClientExamples`; round_seed int32 [2]; target:
  float32 [N], FedIR's p of the class rows held, or None; bounds: by name, for
  `robust.bounded`, or None) and returns a `client_message.ClientUpdate`.
  """

  def update(weights, held, examples, round_seed, target=None, bounds=None):
    local = importance.weighted(
      algorithm,
      _localised(algorithm, held, examples),
      held[classifier.CLASS],
      target,
    )
    after, measured = _train(
      algorithm, weights, held[classifier.CLASS], local, round_seed
    )
    return client_message.of(
      algorithm, weights, after, held, examples, measured, bounds
    )

  return update


def _train(algorithm, weights, held, examples, round_seed):
  """Trains on the localised examples of a client.

  Returns:
    (the weights after, the sums of losses and hits over the examples, and the
    number of minibatches).
  """
  training = algorithm.local_training
  optimizer = training.optimizer()
  initial = _trained_of(algorithm, weights)
  size = encoder_lib.count(examples.y)
  order_seed, encoder_seed = (
    randomness.client_seed(round_seed, examples.client_id, purpose)
    for purpose in (randomness.Purpose.ORDER, randomness.Purpose.ENCODER)
  )
  steps, visits = training.steps_and_visits(size)

  def body(step, trained, encoder_state, optimizer_state, losses_, correct):
    batch = training.batch(order_seed, step, size)
    count = tf.cast(tf.size(batch), tf.float32)
    of_step = _StepExamples(
      *_taken(examples, batch), randomness.step_seed(encoder_seed, step)
    )
    now = trained.within(weights)._replace(encoder_state=encoder_state)
    loss, hits, gradients, encoder_state = _gradients(
      algorithm, now, weights, held, of_step, examples.state
    )
    optimizer_state, trained = optimizer.next(
      optimizer_state, trained, gradients
    )
    sums = losses_ + loss * count, correct + hits
    return step + 1, trained, encoder_state, optimizer_state, *sums

  specs = tf.nest.map_structure(
    lambda t: tf.TensorSpec(t.shape, t.dtype), initial
  )
  _, trained, encoder_state, _, loss, correct = tf.while_loop(
    lambda step, *_: step < steps,
    body,
    [
      tf.constant(0),
      initial,
      weights.encoder_state,
      optimizer.initialize(specs),
      *(tf.constant(0.0), tf.constant(0.0)),
    ],
  )
  # Turns sums over visits into sums over the client's examples.
  share = tf.math.divide_no_nan(
    tf.cast(size, tf.float32), tf.cast(visits, tf.float32)
  )
  after = trained.within(weights)._replace(encoder_state=encoder_state)
  sums = {'loss': loss * share, 'correct': correct * share}
  return after, {**sums, 'batches': tf.cast(steps, tf.float32)}


class _StepExamples(NamedTuple):
  """The examples of one step: x, slots y, weights or (), encoder's seed."""

  x: Any
  y: Any
  weights: Any
  seed: tf.Tensor


def _localised(algorithm, held, examples) -> examples_lib.ClientExamples:
  """Returns the examples with slots in place of the rows that they name."""
  client_id = examples.client_id
  size, count = encoder_lib.count(examples.y), encoder_lib.count(examples.x)
  one_each = request.fail_unless(
    tf.equal(count, size),
    'it has {} examples x and {} labels y',
    (count, size),
    client_id,
  )
  checks = [one_each, *_weight_checks(examples.weights, size, client_id)]
  for table in algorithm.tables:

    def slots_of(ids, table=table):
      return table.request.positions(
        held[table.name], ids, client_id, table.name
      )

    with tf.control_dependencies(checks):
      examples = tables.keys(algorithm.model, table.name).localised(
        examples, slots_of
      )
  return examples


def _weight_checks(weights, size, client_id) -> list[tf.Operation]:
  """Returns the checks of a client's example weights, if it has any."""
  if isinstance(weights, tuple):
    return []
  count, least = tf.size(weights), tf.reduce_min(tf.pad(weights, [[0, 1]]))
  return [
    request.fail_unless(
      tf.equal(count, size),
      'it has {} example weights and {} examples; its sampling must give a'
      ' weight to each',
      (count, size),
      client_id,
    ),
    request.fail_unless(
      least >= 0,
      'an example weight is {}; expected 0 or more',
      (least,),
      client_id,
    ),
  ]


def _taken(examples, batch):
  """Returns (x, y, weights) of the examples numbered `batch` int32 [B]."""
  weights = examples.weights
  return (
    encoder_lib.take(examples.x, batch),
    encoder_lib.take(examples.y, batch),
    weights if isinstance(weights, tuple) else tf.gather(weights, batch),
  )


def _gradients(algorithm, weights, initial, held, examples, state):
  """Returns (loss, hits, gradients, encoder state) of one step.

  The gradients are those of the loss times its scale in the local training.
  The loss is the mean over the batch, sum w l / sum w with example weights,
  plus the penalties.
  """
  model, padded = algorithm.model, algorithm.tables[0].request.selects
  trained = _trained_of(algorithm, weights)
  # Frozen statistics are those of test time: training must see the same.
  training = algorithm.frozen.isdisjoint(weights.encoder_state)
  with tf.GradientTape() as tape:
    tape.watch(trained)
    embeddings, encoder_state = model.encode(
      weights, examples.x, training, examples.seed
    )
    ids = held.ids if padded else None
    logits = model.head.logits(embeddings, weights.class_table, ids)
    step = losses.LocalStep(
      logits,
      examples.y,
      held,
      embeddings,
      examples.x,
      examples.seed,
      weights,
      initial,
      state,
    )
    each = algorithm.loss(step)
    if isinstance(examples.weights, tuple):
      loss = tf.reduce_mean(each)
    else:
      loss = tf.math.divide_no_nan(
        tf.reduce_sum(examples.weights * each), tf.reduce_sum(examples.weights)
      )
    for penalty in algorithm.penalties:
      loss += penalty(step)
    scaled = algorithm.local_training.loss_scale * loss
  best = tf.argmax(
    tf.where(held.mask, logits, logits.dtype.min) if padded else logits,
    axis=1,
    output_type=tf.int32,
  )
  # A weight that the loss does not depend on has a zero gradient.
  gradients = tape.gradient(scaled, trained, unconnected_gradients='zero')
  # Of a weight that is read by rows, it comes as these rows.
  gradients = tf.nest.map_structure(tf.convert_to_tensor, gradients)
  return loss, _hits(best, examples.y), gradients, encoder_state


def _hits(best: tf.Tensor, targets) -> tf.Tensor:
  """Returns the number of examples whose best slot int32 [B] is a target."""
  if not isinstance(targets, sparse.LabelSets):
    return tf.reduce_sum(tf.cast(tf.equal(best, targets), tf.float32))
  example = tf.ragged.row_splits_to_segment_ids(
    targets.row_splits, out_type=tf.int32
  )
  hit = tf.cast(tf.equal(tf.gather(best, example), targets.ids), tf.float32)
  each = tf.math.unsorted_segment_sum(hit, example, tf.size(best))
  return tf.reduce_sum(tf.minimum(each, 1.0))
