"""Local training: batches, epochs and the update."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tff_xc.round import (
  algorithm,
  client_update,
  examples,
  local_training,
  losses,
  merge,
  parts,
  request,
  tables,
)

SEED = tf.constant([1, 2])


class _Recorder:
  """An objective with zero gradient that records the size of every batch."""

  def __init__(self):
    self.targets = tf.Variable(tf.zeros([0], tf.int32), shape=[None], trainable=False)
    self.sizes = tf.Variable(tf.zeros([0], tf.int32), shape=[None], trainable=False)

  def __call__(self, step):
    self.targets.assign(tf.concat([self.targets, step.targets], 0))
    self.sizes.assign(tf.concat([self.sizes, [tf.size(step.targets)]], 0))
    return 0.0 * tf.reduce_sum(step.logits, axis=1)


def update(algorithm_, client, seed=SEED):
  """Returns a client's update in the first round."""
  held = {
    table.name: table.request.held_rows(tf.constant(client.labels), SEED)
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
  made = algorithm.Algorithm(model, (table,), loss, local_training=training, **answers)
  return update(made, tiny.cohort([labels])[0], seed)


def test_rows_of_padding_are_zero_also_where_rows_are_sent_whole():
  requested = request.OwnAndSampled(12, 4, 0)
  table = tables.Table('class', requested, merge=merge.ReplaceRows())
  training = local_training.LocalTraining(0.1, 4)
  made = algorithm.Algorithm(
    tiny.model(), (table,), losses.HeldSoftmax(12), local_training=training
  )
  rows = update(made, tiny.cohort([[3, 5, 3]])[0]).rows['class'].numpy()
  assert rows.shape[0] == 4
  assert np.count_nonzero(rows.any(axis=1)) == 2


@pytest.mark.parametrize(
  ('epochs', 'steps', 'sizes'),
  [
    (3, 0, [4, 4, 2] * 3),
    # A number of steps replaces the epochs.
    (7, 1, [4]),
    (7, 3, [4, 4, 2]),
    (7, 5, [4, 4, 2, 4, 4]),
  ],
)
def test_every_epoch_visits_all_examples_once_in_another_order(epochs, steps, sizes):
  recorder = _Recorder()
  training = local_training.LocalTraining(0.1, 4, epochs, steps)
  train(recorder, training, list(range(10)))
  np.testing.assert_array_equal(recorder.sizes, sizes)
  visited = recorder.targets.numpy()
  assert len(set(visited[:10])) == min(sum(sizes), 10)
  if not steps:
    orders = visited.reshape(epochs, 10)
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == epochs


def test_an_order_is_drawn_once_an_epoch():
  training = local_training.LocalTraining(batch_size=4)
  order = tf.range(10)
  for step in range(7):  # An epoch has three steps.
    found = training.order(SEED, tf.constant(step), order)
    assert (found is order) == bool(step % 3)
    order = found


@pytest.mark.parametrize('given', [{'epochs': 2}, *({'steps': n} for n in (1, 2, 5))])
def test_the_measured_loss_is_a_mean_over_what_the_steps_visit(given):
  def one(step):
    return 2.0 + 0.0 * tf.reduce_sum(step.logits, axis=1)

  found = train(one, local_training.LocalTraining(0.1, 2, **given), [0, 1, 2])
  np.testing.assert_allclose(found.measured['loss'], 2.0 * 3, rtol=1e-6)
  assert found.weight == 3


@pytest.mark.parametrize(
  ('labels', 'weighting', 'factor', 'weight', 'counts'),
  [
    ([0, 1, 2, 3, 4], 'examples', 1.0, 5, (5, 12, 1, 0)),
    ([0, 1, 2], 'uniform', 1.0, 1, (3, 12, 1, 0)),
    ([], 'examples', 1.0, 0, (0, 0, 0, 0)),
    ([], 'uniform', 1.0, 0, (0, 0, 0, 0)),
    ([0, 1], 'examples', float('nan'), 0, (0, 12, 1, 1)),  # This client is dropped.
  ],
)
def test_the_update_counts_and_measures(labels, weighting, factor, weight, counts):
  loss = losses.HeldSoftmax(12)
  found = train(
    lambda step: factor * loss(step),
    local_training.LocalTraining(0.1, 4),
    labels,
    weighting=weighting,
  )
  assert found.weight == weight
  names = ('examples', 'class_rows', 'clients', 'dropped')
  assert tuple(float(found.measured[name]) for name in names) == counts
  assert 0 <= found.measured['correct'] <= counts[0]
  for delta in [*found.encoder_delta.values(), found.rows['class']]:
    assert np.isfinite(delta).all()
    assert np.any(delta.numpy() != 0) == bool(weight)


@pytest.mark.parametrize('replaced', [False, True])
def test_weight_decay_is_of_all_that_is_trained(replaced):
  """Without gradients, 3 steps multiply a trained weight by (1 - 0.1 0.5)^3."""
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
  held = requested.held_rows(client.labels, SEED)
  rows = tf.where(held.mask[:, None], tf.gather(before.class_table, held.ids), 0)
  share = 0.95**3 - 1
  for delta, weight in (
    (found.encoder_delta['kernel'], before.encoder['kernel']),
    (found.rows['class'], rows),
  ):
    np.testing.assert_allclose(delta, share * weight, rtol=1e-4, atol=1e-7)
  # Statistics move by another rule: here, three times half of the way to the mean.
  mean = np.mean(client.x, axis=0)
  np.testing.assert_allclose(found.encoder_delta['mean'], (1 - 0.5**3) * mean, rtol=1e-4)


class Keeps(parts.Part):
  """Keeps a number as client state, and sends it."""

  name = 'number'

  spec = tf.TensorSpec([])

  def __init__(self, new):
    self.new = new

  def on_client(self, local):
    return parts.Answer(local.kept.value + self.new, self.new)


@pytest.mark.parametrize(
  ('new', 'labels', 'kept'),
  [(1.0, [0, 1], (True, 6.0)), (float('nan'), [0, 1], (True, 5.0)), (1.0, [], (True, 5.0))],
)
def test_a_state_that_is_not_finite_is_not_kept(new, labels, kept):
  [client] = tiny.cohort([labels])
  state = examples.KeptState(np.bool_(True), np.float32(5))
  made = algorithm.Algorithm(
    tiny.model(),
    (tables.Table('class', request.AllRows(12)),),
    losses.HeldSoftmax(12),
    parts=(Keeps(tf.constant(new)),),
  )
  found = update(made, client._replace(state=state))
  assert (bool(found.state.known), float(found.state.value)) == kept
  assert float(found.told.replies['number']) == kept[1] - 5
