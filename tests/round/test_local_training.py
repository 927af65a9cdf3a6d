"""Local training: its batches, epochs and update."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tff_xc.round import algorithm
from tff_xc.round import client_update
from tff_xc.round import examples
from tff_xc.round import local_training
from tff_xc.round import losses
from tff_xc.round import merge
from tff_xc.round import request
from tff_xc.round import tables

SEED = tf.constant([1, 2])


class _Recorder:
  """An objective with zero gradient that records the size of every batch."""

  def __init__(self):
    self.targets = tf.Variable(
      tf.zeros([0], tf.int32), shape=[None], trainable=False
    )
    self.sizes = tf.Variable(
      tf.zeros([0], tf.int32), shape=[None], trainable=False
    )

  def __call__(self, step):
    self.targets.assign(tf.concat([self.targets, step.targets], 0))
    self.sizes.assign(tf.concat([self.sizes, [tf.size(step.targets)]], 0))
    return 0.0 * tf.reduce_sum(step.logits, axis=1)


def update(algorithm_, client, seed=SEED):
  """Returns a client's update in the first round."""
  held = {
    table.name: table.request.held_rows(tf.constant(client.y), SEED)
    for table in algorithm_.tables
  }
  client = tf.nest.map_structure(tf.constant, client)
  weights = algorithm_.model.init(SEED)
  rows = {n: tf.gather(weights.tables[n], held[n].ids) for n in held}
  weights = weights._replace(tables=collections.OrderedDict(rows))
  return client_update.build(algorithm_)(weights, held, client, seed)


def train(loss, training, labels, model=None, seed=SEED, **answers):
  model = model or tiny.model()
  table = tables.Table('class', request.AllRows(model.num_rows))
  made = algorithm.Algorithm(
    model, (table,), loss, local_training=training, **answers
  )
  return update(made, tiny.cohort([labels])[0], seed)


def test_rows_of_padding_are_zero_also_where_rows_are_sent_whole():
  model = tiny.model()
  requested = request.OwnAndSampled(model.num_rows, 4, 0)
  table = tables.Table('class', requested, merge=merge.ReplaceRows())
  training = local_training.LocalTraining(0.1, 4)
  made = algorithm.Algorithm(
    model, (table,), losses.HeldSoftmax(12), local_training=training
  )
  rows = update(made, tiny.cohort([[3, 5, 3]])[0]).rows['class'].numpy()
  assert rows.shape[0] == 4
  assert np.count_nonzero(rows.any(axis=1)) == 2


def test_every_epoch_visits_all_examples_once_in_another_order():
  recorder = _Recorder()
  train(recorder, local_training.LocalTraining(0.1, 4, 3), list(range(10)))
  np.testing.assert_array_equal(recorder.sizes, [4, 4, 2] * 3)
  epochs = recorder.targets.numpy().reshape(3, 10)
  for epoch in epochs:
    assert sorted(epoch) == list(range(10))
  assert len({tuple(e) for e in epochs}) == 3


def test_the_update_counts_and_measures():
  update = train(
    losses.HeldSoftmax(12),
    local_training.LocalTraining(0.1, 4),
    [0, 1, 2, 3, 4],
  )
  assert update.weight == 5
  measured = {k: float(v) for k, v in update.measured.items()}
  assert measured['examples'] == 5
  assert measured['class_rows'] == 12
  assert measured['clients'] == 1
  assert measured['dropped'] == 0
  assert 0 <= measured['correct'] <= 5


def test_more_epochs_report_their_mean_loss():
  once, twice = (
    train(
      losses.HeldSoftmax(12),
      local_training.LocalTraining(1e-9, 64, e),
      [0, 1, 2],
    ).measured['loss']
    for e in (1, 2)
  )
  np.testing.assert_allclose(once, twice, rtol=1e-5)


@pytest.mark.parametrize(
  ('steps', 'sizes'),
  [(1, [4]), (3, [4, 4, 2]), (5, [4, 4, 2, 4, 4])],
)
def test_a_number_of_steps_takes_the_place_of_epochs(steps, sizes):
  recorder = _Recorder()
  training = local_training.LocalTraining(0.1, 4, 7, steps)
  train(recorder, training, list(range(10)))
  np.testing.assert_array_equal(recorder.sizes, sizes)
  assert len(set(recorder.targets.numpy()[:10])) == min(sum(sizes), 10)


@pytest.mark.parametrize('steps', [1, 2, 5])
def test_the_measured_loss_is_a_mean_over_what_the_steps_visit(steps):
  one = lambda step: 2.0 + 0.0 * tf.reduce_sum(step.logits, axis=1)
  update = train(
    one, local_training.LocalTraining(0.1, 2, steps=steps), [0, 1, 2]
  )
  np.testing.assert_allclose(update.measured['loss'], 2.0 * 3, rtol=1e-6)
  assert update.weight == 3


def test_clients_may_weigh_alike():
  for labels, weight in (([0, 1, 2], 1.0), ([], 0.0)):
    update = train(
      losses.HeldSoftmax(12),
      local_training.LocalTraining(steps=1),
      labels,
      weighting='uniform',
    )
    assert update.weight == weight
    assert update.measured['examples'] == len(labels)


def test_an_update_that_is_not_finite_is_all_zero():
  diverges = lambda step: tf.reduce_sum(step.logits, axis=1) * float('nan')
  update = train(diverges, local_training.LocalTraining(), [0, 1])
  assert update.weight == 0
  assert update.measured['dropped'] == 1
  assert update.measured['examples'] == 0
  for delta in [*update.encoder_delta.values(), update.rows['class']]:
    np.testing.assert_array_equal(delta, 0)


def test_without_examples_nothing_happens():
  update = train(losses.HeldSoftmax(12), local_training.LocalTraining(), [])
  assert update.weight == 0
  assert update.measured['dropped'] == 0
  np.testing.assert_array_equal(update.rows['class'], 0)


def test_encoder_state_travels_with_the_encoder():
  """The encoder updates a weight without gradient, and the client sends it."""
  plain = tiny.linear_encoder()

  def apply(trainable, non_trainable, x, training, seed):
    embeddings, _ = plain.apply(trainable, non_trainable, x, training, seed)
    return embeddings, collections.OrderedDict(
      batches=non_trainable['batches'] + 1.0
    )

  counting = tiny.model()
  encoder = type(plain)(
    plain.example_spec,
    plain.embedding_dim,
    plain.init,
    apply,
    lambda seed: collections.OrderedDict(batches=tf.constant(0.0)),
  )
  counting = type(counting)(encoder, counting.head, counting.num_classes)
  update = train(
    losses.HeldSoftmax(12),
    local_training.LocalTraining(0.1, 2),
    [0, 1, 2],
    model=counting,
  )
  assert update.encoder_delta['batches'] == 2
  assert set(update.encoder_delta) == {'kernel', 'bias', 'batches'}


@pytest.mark.parametrize('replaced', [False, True])
def test_weight_decay_is_of_all_that_is_trained(replaced):
  """Without a gradient, 3 steps leave (1 - 0.1 0.5)^3 of a weight."""
  model = tiny.model_with_statistics()
  requested = request.OwnAndSampled(model.num_rows, 4, 2)
  made = algorithm.Algorithm(
    model,
    (tables.Table('class', requested),),
    lambda step: 0.0 * tf.reduce_sum(step.logits, axis=1),
    local_training=local_training.LocalTraining(
      0.1, 2, 3, weight_decay=0.5, replace_nonfinite=replaced
    ),
  )
  [client] = tiny.cohort([[3, 5]])
  found = update(made, client)
  before = model.init(SEED)
  held = requested.held_rows(client.y, SEED)
  rows = tf.where(
    held.mask[:, None], tf.gather(before.class_table, held.ids), 0
  )
  share = 0.95**3 - 1
  for delta, weight in (
    (found.encoder_delta['kernel'], before.encoder['kernel']),
    (found.rows['class'], rows),
  ):
    np.testing.assert_allclose(delta, share * weight, rtol=1e-4, atol=1e-7)
  # Statistics move by their own rule: here half way to the mean, three times.
  mean = np.mean(client.x, axis=0)
  np.testing.assert_allclose(
    found.encoder_delta['mean'], (1 - 0.5**3) * mean, rtol=1e-4
  )


def test_a_weight_name_that_repeats_is_refused():
  from tff_xc import classifier

  with pytest.raises(ValueError, match='repeats'):
    classifier.union({'a': 1}, {'a': 2})


@pytest.mark.parametrize(
  ('weights', 'message'),
  [
    ([1.0, 1.0], '2 example weights'),
    ([1.0] * 4, '4 example weights'),
    ([1.0, -0.5, 1.0], 'weight is -0.5'),
  ],
)
def test_example_weights_that_do_not_fit_fail(weights, message):
  with pytest.raises(tf.errors.InvalidArgumentError, match=message):
    train_weighted(weights)


def train_weighted(weights, **answers):
  model = tiny.model()
  made = algorithm.Algorithm(
    model,
    (tables.Table('class', request.AllRows(12)),),
    losses.HeldSoftmax(12),
    example_weights=algorithm.GIVEN,
    **answers,
  )
  [client] = tiny.cohort([[0, 1, 2]])
  return update(made, client._replace(weights=np.float32(weights)))


def test_examples_of_weight_zero_do_not_count():
  assert train_weighted([0.0, 0.0, 0.0]).measured['loss'] == 0
  assert train_weighted([0.0, 2.0, 0.0]).measured['loss'] > 0


class Keeps:
  """Keeps a number."""

  spec = tf.TensorSpec([])

  def __init__(self, new):
    self.new = new

  def next(self, state, before, after):
    return state.value + self.new


@pytest.mark.parametrize(
  ('new', 'labels', 'kept'),
  [
    (1.0, [0, 1], (True, 6.0)),
    (float('nan'), [0, 1], (True, 5.0)),
    (1.0, [], (True, 5.0)),
  ],
)
def test_a_state_that_is_not_finite_is_not_kept(new, labels, kept):
  [client] = tiny.cohort([labels])
  state = examples.KeptState(np.bool_(True), np.float32(5))
  made = algorithm.Algorithm(
    tiny.model(),
    (tables.Table('class', request.AllRows(12)),),
    losses.HeldSoftmax(12),
    client_state=Keeps(new),
  )
  found = update(made, client._replace(state=state)).state
  assert (bool(found.known), float(found.value)) == kept
