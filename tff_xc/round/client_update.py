"""The computation of a client: it trains the encoder and class rows, and returns an update.

The algorithm's parts may change the update. If an update is not finite, it is dropped, which means
that zeros replace it.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import (
  algorithm as algorithm_lib,
  examples as examples_lib,
  frozen,
  local_training,
  losses,
  parts as parts_lib,
  randomness,
  request,
  tables,
)


class ClientUpdate(NamedTuple):
  """The message of a client to the server."""

  # Changes of the encoder's trained weights (after minus before training), by name; 0 if the update
  # is dropped.
  encoder_delta: encoder_lib.Weights
  # float32 [N, row_dim] by table, the rows in the form that the table's merge defines. Padding is
  # 0.
  rows: Mapping[str, tf.Tensor]
  # float32 scalar, the client's weight in means: its number of examples, or 1 with 'uniform'
  # weighting. A client without examples has the weight 0. A client whose update is dropped also has
  # the weight 0, except if a part has `always_counts`.
  weight: tf.Tensor
  # Numbers for the round's metrics, by name; all 0 for a client without examples.
  measured: collections.OrderedDict
  told: parts_lib.Told
  state: Any = ()  # The client's new state, which is not sent; () without client states.


def build(algorithm: algorithm_lib.Algorithm):
  """Returns a function that trains on one client and returns its `ClientUpdate`.

  The function has these arguments:

    weights: `ModelWeights`, whose tables have only the rows that the client received.
    held: `SelectedRows` by table.
    examples: `ClientExamples`.
    round_seed: the round's seed, int32 [5].
    received: what the client received from each part, by name. None: that of the first round.
  """

  keeper, head = algorithm.client_state, None
  if algorithm.head_epochs:
    head = frozen.head_only(algorithm)
    passes = dataclasses.replace(algorithm.local_training, epochs=algorithm.head_epochs, steps=0)
    head = dataclasses.replace(head, local_training=passes)

  def update(weights, held, examples, round_seed, received=None):
    examples = _of_held(algorithm, held, examples)
    received = _received(algorithm, held, received)
    of_server = weights.tables
    for part in algorithm.parts:
      weights = part.received(algorithm, weights)
    own = _prepared(algorithm, held, examples, received)
    arguments = held[classifier.CLASS], own, round_seed, received
    if keeper is not None:
      weights = keeper.own_model(weights, examples.state)
    done = 0.0
    if head:
      weights, of_head = _train(head, weights, *arguments)
      done = of_head['batches']
    after, measured = _train(algorithm, weights, *arguments, done=done)
    of_classes, steps = arguments[0], measured['batches']
    measured['batches'] = steps + done
    local = parts_lib.Local(
      received=(),
      kept=examples.state,
      before=weights,
      after=after,
      change=(),
      weight=(),
      steps=steps,
      gradients=lambda: _mean_gradients(algorithm, weights, of_classes, own, round_seed),
      rate=algorithm.local_training.rate(round_seed),
      embedded=lambda of: _embedded(algorithm, after, of_classes, own, of),
      held=held,
      of_server=of_server,
      client_id=examples.client_id,
      round_seed=round_seed,
    )
    return _message(algorithm, local, examples, measured, received)

  return update


def build_training(algorithm: algorithm_lib.Algorithm, own_rows_only: bool = False):
  """Returns a function that trains on one client and sends nothing.

  The function has the same arguments as the function that `build` returns. The result is the
  `ModelWeights` after local training, and a dictionary with the sum of losses, the number of
  correct predictions, and the number of batches. With `own_rows_only`, training does not change the
  class rows of classes that the client does not have.
  """

  def train(weights, held, examples, round_seed, received=None):
    of_classes = held[classifier.CLASS]
    examples = _of_held(algorithm, held, examples)
    received = _received(algorithm, held, received)
    local = _prepared(algorithm, held, examples, received)
    kept = None
    if own_rows_only:
      before, own = weights.class_table, of_classes.counts[:, None] > 0

      def kept(rows):
        return tf.where(own, rows, before)

    return _train(algorithm, weights, of_classes, local, round_seed, received, kept)

  return train


def _received(algorithm, held, received):
  """Returns `received`, see `build`. If it is None, returns that of the first round."""
  if received is not None:
    return received
  received = parts_lib.initial(algorithm)
  for part in algorithm.parts:
    if part.beside is not None:
      received[part.name] = tf.gather(part.beside, held[classifier.CLASS].ids)
  return received


def _prepared(algorithm, held, examples, received):
  """Returns the examples that `_localised` returns, after the algorithm's parts changed them."""
  local = _localised(algorithm, held, examples)
  for part in algorithm.parts:
    local = part.examples(local, held[classifier.CLASS], received[part.name])
  return local


def _of_held(algorithm, held, examples) -> examples_lib.ClientExamples:
  """Returns the examples whose class row the client received.

  Some requests omit rows of the client's own classes.
  """
  asked = algorithm.tables[0].request
  if not asked.omits:
    return examples
  if algorithm.model.label_sets or algorithm.model.shares_rows:
    raise ValueError('requests that omit own rows take one label of one row')
  rows = algorithm.model.head.rows_of(examples.labels)
  places = tf.where(request.holds(held[classifier.CLASS], rows))[:, 0]
  return _batch(examples, tf.cast(places, tf.int32))


def _localised(algorithm, held, examples) -> examples_lib.ClientExamples:
  """Replaces row ids in the examples by the indices of these rows among the received rows."""
  client_id = examples.client_id
  size, count = encoder_lib.count(examples.labels), encoder_lib.count(examples.x)
  one_each = request.fail_unless(
    tf.equal(count, size), 'it has {} examples and {} labels', (count, size), client_id
  )
  for table in algorithm.tables:

    def slots_of(ids, table=table):
      return table.request.positions(held[table.name], ids, client_id, table.name)

    with tf.control_dependencies([one_each]):
      examples = tables.localised(algorithm.model, table.name, examples, slots_of)
  return examples


def _trained_of(algorithm, weights):
  """Returns (trained weights of the encoder, received rows of each trained table)."""
  part = frozen.trained_part(algorithm, weights)
  if losses.trains_rows(algorithm.loss):
    return part.encoder, part.tables
  # The loss does not train class rows. Leave out these rows, so that weight decay does not change
  # them.
  rows = part.tables.items()
  others = ((name, t) for name, t in rows if name != classifier.CLASS)
  return part.encoder, collections.OrderedDict(others)


def _within(weights, trained) -> classifier.ModelWeights:
  """Returns `weights` with their trained part replaced by `trained`."""
  encoder, tables_ = trained
  return weights._replace(
    encoder=classifier.replaced(weights.encoder, encoder),
    tables=classifier.replaced(weights.tables, tables_),
  )


def _train(algorithm, weights, held, examples, round_seed, received, kept=None, done=0.0):
  """Returns (the weights after local training, sums by name: loss, correct, batches).

  If `kept` is not None, it is called with the class rows after every step and returns the rows to
  keep. `done` is the number of steps that the client has already taken, in whole epochs. The orders
  of examples and the random numbers continue after these steps.
  """
  training = algorithm.local_training
  rate = training.rate(round_seed)
  optimizer, scale = training.optimizer(rate), training.loss_scale(rate)
  initial = _trained_of(algorithm, weights)
  size = encoder_lib.count(examples.labels)
  order_seed, encoder_seed = (
    randomness.client_seed(round_seed, examples.client_id, purpose)
    for purpose in (randomness.Purpose.ORDER, randomness.Purpose.ENCODER)
  )
  steps, visits = training.steps_and_visits(size)
  first = tf.cast(done, tf.int32)

  def body(step, order, trained, encoder_state, optimizer_state, losses_, correct):
    order = training.order(order_seed, step, order)
    batch = training.batch(order, step)
    count = tf.cast(tf.size(batch), tf.float32)
    seed = randomness.step_seed(encoder_seed, step)
    now = _within(weights, trained)._replace(encoder_state=encoder_state)
    loss, hits, gradients, encoder_state = _gradients(
      algorithm, now, weights, held, _batch(examples, batch), seed, received, scale
    )
    optimizer_state, trained = optimizer.next(optimizer_state, trained, gradients)
    if kept:
      encoder, rows = trained
      new = {classifier.CLASS: kept(rows[classifier.CLASS])}
      trained = encoder, classifier.replaced(rows, new)
    sums = losses_ + loss * count, correct + hits
    return step + 1, order, trained, encoder_state, optimizer_state, *sums

  specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), initial)
  _, _, trained, encoder_state, _, loss, correct = tf.while_loop(
    lambda step, *_: step < first + steps,
    body,
    [
      first,
      tf.range(size),
      initial,
      weights.encoder_state,
      optimizer.initialize(specs),
      tf.constant(0.0),
      tf.constant(0.0),
    ],
  )
  # Training may visit an example several times. Scale the sums to one visit per example.
  share = tf.math.divide_no_nan(tf.cast(size, tf.float32), tf.cast(visits, tf.float32))
  after = _within(weights, trained)._replace(encoder_state=encoder_state)
  sums = {'loss': loss * share, 'correct': correct * share}
  return after, {**sums, 'batches': tf.cast(steps, tf.float32)}


def _batch(examples, places) -> examples_lib.ClientExamples:
  """Returns the examples with these indices."""
  weights = examples.weights
  return examples._replace(
    x=encoder_lib.take(examples.x, places),
    labels=encoder_lib.take(examples.labels, places),
    weights=weights if isinstance(weights, tuple) else tf.gather(weights, places),
  )


def _in_order(algorithm, examples):
  """Returns (number of batches in one pass, a function from a batch number to its examples).

  The pass goes through the examples in the stored order.
  """
  once = local_training.LocalTraining(batch_size=algorithm.local_training.batch_size)
  size = encoder_lib.count(examples.labels)
  order, (steps, _) = tf.range(size), once.steps_and_visits(size)
  return steps, lambda step: _batch(examples, once.batch(order, step))


def _mean_gradients(algorithm, weights, held, examples, round_seed):
  """Computes `parts.Local.gradients`, batch by batch in the stored order."""
  training = algorithm.local_training
  plain = dataclasses.replace(algorithm, penalties=())
  steps, batch = _in_order(algorithm, examples)
  size, trained = encoder_lib.count(examples.labels), _trained_of(algorithm, weights)
  encoder_seed = randomness.client_seed(round_seed, examples.client_id, randomness.Purpose.ENCODER)

  def body(step, sums):
    part = batch(step)
    # With negative step numbers, the seeds differ from the seeds of local steps.
    seed = randomness.step_seed(encoder_seed, -1 - step)
    _, _, found, _ = _gradients(plain, weights, weights, held, part, seed, {}, 1.0)
    share = tf.cast(encoder_lib.count(part.labels), tf.float32)
    share /= tf.cast(size, tf.float32)

    def add(total, g):
      return total + share * g

    return step + 1, tf.nest.map_structure(add, sums, found)

  zeros = tf.nest.map_structure(tf.zeros_like, trained)
  _, means = tf.while_loop(lambda step, *_: step < steps, body, [tf.constant(0), zeros])

  def decayed(g, w):
    return g + training.weight_decay * w if training.weight_decay else g

  return tf.nest.map_structure(decayed, means, trained)


def _embedded(algorithm, weights, held, examples, of):
  """Computes `parts.Local.embedded`, batch by batch in the stored order."""
  steps, batch = _in_order(algorithm, examples)
  size, slots = encoder_lib.count(examples.labels), tf.size(held.ids)

  def add_up(t, labels):
    return tf.math.unsorted_segment_sum(t, labels, slots)

  def body(step, sums):
    part = batch(step)
    embeddings = algorithm.model.embed(weights, part.x)
    return step + 1, sums + add_up(of(embeddings), part.labels)

  dim = algorithm.model.encoder.embedding_dim
  _, sums = tf.while_loop(
    lambda step, _: step < steps,
    body,
    [tf.constant(0), tf.zeros([slots, dim])],
    # The static shape of the initial sums may contain the number of rows. The static shape of later
    # sums does not contain it.
    shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, dim])],
  )
  return sums, add_up(tf.ones([size]), examples.labels)


def _gradients(algorithm, weights, initial, held, examples, seed, received, scale):
  """Returns (mean loss, number of correct predictions, gradients, encoder state).

  The loss excludes penalties. The gradients include penalties and are multiplied by `scale`.
  """
  model, padded = algorithm.model, algorithm.tables[0].request.selects
  targets, owners = examples.labels, None
  if model.encoder.targets:
    targets, owners = model.encoder.targets(examples.x, examples.labels)

  # If the encoder makes several targets from an example, the example's value is the mean over these
  # targets.
  def of_examples(each):
    return (
      each
      if owners is None
      else tf.math.unsorted_segment_mean(each, owners, tf.size(examples.labels))
    )

  trained = _trained_of(algorithm, weights)
  # If batch statistics are frozen, the encoder runs in inference mode.
  training = algorithm.frozen.isdisjoint(weights.encoder_state)
  with tf.GradientTape() as tape:
    tape.watch(trained)
    embeddings, encoder_state = model.encode(weights, examples.x, training, seed)
    ids = held.ids if padded else None
    logits = model.logits(embeddings, weights.class_table, ids)
    step = losses.LocalStep(
      logits,
      targets,
      held,
      embeddings,
      examples.x,
      seed,
      weights,
      initial,
      examples.state,
      received,
    )
    each = of_examples(algorithm.loss(step))
    if isinstance(examples.weights, tuple):
      loss = tf.reduce_mean(each)
    else:
      loss = tf.math.divide_no_nan(
        tf.reduce_sum(examples.weights * each), tf.reduce_sum(examples.weights)
      )
    objective = loss
    for penalty in algorithm.penalties:
      objective += penalty(step)
    scaled = scale * objective
  best = tf.argmax(
    tf.where(held.mask, logits, logits.dtype.min) if padded else logits,
    axis=1,
    output_type=tf.int32,
  )
  # A weight that the loss does not depend on has a zero gradient.
  gradients = tape.gradient(scaled, trained, unconnected_gradients='zero')
  # If the model reads a weight by rows, the weight's gradient is sparse. Convert every gradient to
  # a dense tensor.
  gradients = tf.nest.map_structure(tf.convert_to_tensor, gradients)
  if owners is None:
    return loss, _hits(best, examples.labels), gradients, encoder_state
  hits = of_examples(tf.cast(tf.equal(best, targets), tf.float32))
  return loss, tf.reduce_sum(hits), gradients, encoder_state


def _hits(best: tf.Tensor, targets) -> tf.Tensor:
  """Returns the number of examples whose best row is a target.

  `best` int32 [B] is the index of the row with the largest logit.
  """
  if not isinstance(targets, sparse.LabelSets):
    return tf.reduce_sum(tf.cast(tf.equal(best, targets), tf.float32))
  example = tf.ragged.row_splits_to_segment_ids(targets.row_splits, out_type=tf.int32)
  hit = tf.cast(tf.equal(tf.gather(best, example), targets.ids), tf.float32)
  each = tf.math.unsorted_segment_sum(hit, example, tf.size(best))
  return tf.reduce_sum(tf.minimum(each, 1.0))


def _message(algorithm, local, examples, measured, received) -> ClientUpdate:
  """Returns the update of a client. If the update is not finite, zeros replace it."""
  before, after, held = local.before, local.after, local.held
  trained = [frozen.trained_part(algorithm, w) for w in (after, before)]
  delta = tf.nest.map_structure(
    tf.subtract, *(classifier.union(part.encoder, part.encoder_state) for part in trained)
  )
  rows, used = collections.OrderedDict(), {}
  for table in algorithm.tables:
    name, mask = table.name, held[table.name].mask
    sent = table.merge.sent(before.tables[name], after.tables[name])
    if table.request.selects:  # Otherwise there is no padding.
      sent = tf.where(mask[: tf.shape(sent)[0], None], sent, 0.0)
    rows[name] = sent
    used[name] = tf.reduce_sum(tf.cast(mask, tf.float32))
  count = tf.cast(encoder_lib.count(examples.labels), tf.float32)
  takes_part = tf.minimum(count, 1.0)
  weight = takes_part if algorithm.weighting == 'uniform' else count
  local = local._replace(weight=weight)

  answers = {}
  for part in algorithm.parts:
    seen = local._replace(received=received[part.name])
    answers[part.name], delta, rows = _answered(algorithm, part.on_client, seen, delta, rows)
  finite = _is_finite([*tf.nest.flatten(delta), *rows.values()])
  delta, rows = _if_finite(finite, (delta, rows))
  for part in algorithm.parts:
    if type(part).sent is parts_lib.Part.sent:
      continue
    seen = local._replace(received=received[part.name])
    answer, delta, rows = _answered(algorithm, part.sent, seen, delta, rows)
    answers[part.name] = answer
    if answer.is_finite is not None:
      finite = tf.logical_and(finite, answer.is_finite)
      delta, rows = _if_finite(answer.is_finite, (delta, rows))

  # `multiply_no_nan` by zero gives zero even for NaN.
  def kept(t):
    return tf.math.multiply_no_nan(t, tf.cast(finite, tf.float32))

  measured = collections.OrderedDict(
    loss=kept(measured['loss']),
    correct=kept(measured['correct']),
    examples=kept(count),
    clients=takes_part,
    dropped=takes_part - kept(takes_part),
    batches=measured['batches'],
    **{f'{name}_rows': k * takes_part for name, k in used.items()},
  )
  beyond = [
    tf.reduce_max(tf.abs(rows[table.name])) > table.merge.secure_bound
    for table in algorithm.tables
    if getattr(table.merge, 'secure_bound', None) is not None
  ]
  if beyond:
    measured['rows_clipped'] = tf.cast(tf.reduce_any(beyond), tf.float32)
  if algorithm.measures_largest_loss:
    measured['mean_loss'] = tf.math.divide_no_nan(measured['loss'], measured['examples'])
  if not any(part.always_counts for part in algorithm.parts):
    weight = kept(weight)
  state, replies = _settled(algorithm, answers, examples, finite)
  counted = tf.cast(weight > 0, tf.float32)
  of_round = parts_lib.Round(tf.constant(1.0), counted, weight)
  told = parts_lib.Told(of_round, replies)
  return ClientUpdate(delta, rows, weight, measured, told, state)


def _answered(algorithm, hook, local, delta, rows):
  """Calls a part's hook. Returns (its answer, delta, rows) with the hook's changes."""
  changes = _changes(algorithm, local.before.tables, rows, local.held)
  answer = hook(local._replace(change=(delta, changes)))
  if answer.change is None:
    return answer, delta, rows
  delta, changed = answer.change
  onto = local.before.tables if answer.onto is None else answer.onto
  new = _sent(algorithm, onto, changed, local.held)
  for table in algorithm.tables:
    if answer.onto is None and not table.merge.sends_deltas:
      # If the hook changed nothing, send exactly the old rows, without rounding errors.
      name = table.name
      is_same = tf.reduce_all(tf.equal(changed[name], changes[name]))
      new[name] = tf.cond(is_same, lambda n=name: rows[n], lambda n=name: new[n])
  return answer, delta, new


def _if_finite(finite, values):
  """Returns `values` if `finite` is True, else zeros."""
  # Multiplying in both cases would cost one more pass over the numbers. `multiply_no_nan` makes the
  # zeros, because constant zeros would stay in memory as long as the graph exists.
  factor = tf.cast(finite, tf.float32)

  def zeros():
    return tf.nest.map_structure(lambda t: tf.math.multiply_no_nan(t, factor), values)

  return tf.cond(finite, lambda: values, zeros)


def _changes(algorithm, before, rows, held):
  """Returns by table the changes of the rows that a client sends. Padding is 0."""
  changes = collections.OrderedDict(rows)
  for table in algorithm.tables:
    if not table.merge.sends_deltas:
      name = table.name
      moved = rows[name] - before[name]
      # In padding, `rows` is 0, so `moved` would be minus the old row. Padding has no change.
      mask = held[name].mask[: tf.shape(moved)[0], None]
      changes[name] = tf.where(mask, moved, 0.0)
  return changes


def _sent(algorithm, before, changes, held):
  """Returns the rows to send, given their `changes`. The inverse function is `_changes`."""
  rows = collections.OrderedDict(changes)
  for table in algorithm.tables:
    if not table.merge.sends_deltas:
      name, change = table.name, changes[table.name]
      mask = held[name].mask[: tf.shape(change)[0], None]
      rows[name] = tf.where(mask, before[name] + change, 0.0)
  return rows


def _is_finite(values: list[tf.Tensor]) -> tf.Tensor:
  """Returns whether all numbers, and the float32 sum of each tensor, are finite."""
  each = [tf.math.is_finite(tf.reduce_sum(t)) for t in values]
  return tf.reduce_all([tf.constant(True), *each])


def _settled(algorithm, answers, examples, finite):
  """Returns (the client's new state, its replies by part).

  The state does not change and the reply is zero if the update is dropped, if the client has no
  examples, or if the answer has a number that is not finite.
  """
  has_examples = encoder_lib.count(examples.labels) > 0
  state, replies = (), collections.OrderedDict()
  for part in algorithm.parts:
    name, kept, reply = part.name, answers[part.name].kept, answers[part.name].reply
    numbers = [t for t in tf.nest.flatten((kept, reply)) if t.dtype.is_floating]
    holds = tf.reduce_all([finite, has_examples, _is_finite(numbers)])
    # Unlike `tf.where`, `tf.cond` does not copy the branches' tensors.
    replies[name] = tf.nest.map_structure(
      lambda t, h=holds: tf.cond(h, lambda: t, lambda: tf.zeros_like(t)), reply
    )
    if part.spec is None:
      continue
    new = tf.nest.map_structure(
      lambda tensor, spec: tf.ensure_shape(tensor, spec.shape), kept, part.spec
    )
    old = examples.state
    state = examples_lib.KeptState(
      tf.logical_or(holds, old.known),
      tf.cond(holds, lambda new=new: new, lambda old=old: old.value),
    )
  return state, replies
