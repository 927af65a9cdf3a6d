"""The server's steps on the encoder and on a table."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests import graphs, tiny
from tff_xc import classifier
from tff_xc.round import algorithm, folding, losses, merge, optimizers, request, server, tables

VALUE = tf.reshape(tf.range(6.0), [3, 2])
WEIGHTS = classifier.ModelWeights(
  collections.OrderedDict(a=tf.constant([1.0, 2.0])),
  collections.OrderedDict(mean=tf.constant(5.0)),
  collections.OrderedDict([('class', VALUE)]),
)
DELTA = collections.OrderedDict(a=tf.constant([0.5, 0.0]), mean=tf.constant(1.0))
ROWS = folding.RowSums(tf.constant([1]), tf.constant([[2.0, 4.0]]), tf.constant([2.0]))
EMPTY = folding.RowSums(tf.zeros([0], tf.int32), tf.zeros([0, 2]), tf.zeros([0]))
SEED = tf.constant([3, 4])
SGD = optimizers.build_sgd(1.0)
ROW_MOMENTUM = optimizers.RowMomentum(1.0, 0.9)


class Halve:
  """A step that halves the table, and counts its calls and rows."""

  metrics = ('largest',)

  def __init__(self, on_all_rows=True):
    self.on_all_rows = on_all_rows

  def initialize(self, table_spec):
    return tf.zeros([], tf.int32)

  def next(self, state, rows, context):
    more = tf.size(context.merged.ids)
    return state + more, rows / 2, {'largest': tf.reduce_max(rows)}


class Difference:
  """A step that measures how far rows moved, and changes nothing."""

  metrics = ('moved', 'round', 'seed')

  def __init__(self, on_all_rows):
    self.on_all_rows = on_all_rows

  def initialize(self, table_spec):
    return ()

  def next(self, state, rows, context):
    moved = tf.reduce_sum(tf.abs(rows - context.rows_before()))
    return (
      state,
      rows,
      {
        'moved': moved,
        'round': tf.cast(context.round_number, tf.float32),
        'seed': tf.cast(context.seed[0], tf.float32),
      },
    )


def table(*steps, optimizer=SGD):
  return tables.Table('class', request.AllRows(3), optimizer=optimizer, steps=steps)


def one_step(of, sums=ROWS, total=4.0, state=None, value=VALUE):
  state = state or of.initialize(tf.TensorSpec([3, 2]))
  total = tf.constant(total)
  return of.next(state, value, sums, total, SEED, tf.constant(7))


@pytest.mark.parametrize('has_update', [True, False])
def test_the_encoder_takes_its_step_and_its_state_is_averaged(has_update):
  _, encoder, averaged = server.encoder_step(
    SGD, SGD.initialize(None), WEIGHTS, DELTA, tf.constant(has_update)
  )
  np.testing.assert_allclose(encoder['a'], [1.5 if has_update else 1, 2])
  np.testing.assert_allclose(averaged['mean'], 6 if has_update else 5)


def test_row_steps_see_the_rounds_rows_after_the_optimizer():
  seen = []

  def step(rows):
    return seen.append(rows.numpy()) or rows * 10.0

  def again(rows):
    return rows + 1.0

  _, value, _ = one_step(table(server.RowStep(step), server.RowStep(again)))
  np.testing.assert_allclose(seen, [[[2.5, 4.0]]])
  np.testing.assert_allclose(value, [[0, 1], [26.0, 41.0], [4, 5]])


@pytest.mark.parametrize('on_all_rows', [False, True])
def test_steps_change_nothing_where_no_client_was_left(on_all_rows):
  steps = (Halve(on_all_rows), server.RowStep(lambda rows: rows * 10, on_all_rows))
  state, value, measured = one_step(table(*steps), total=0.0)
  np.testing.assert_array_equal(value, VALUE)
  assert state.steps[0] == 0
  assert np.isnan(measured['largest'])


def test_steps_on_all_rows_come_last_and_keep_their_state():
  state, value, measured = one_step(table(server.RowStep(lambda rows: rows * 2), Halve()))
  np.testing.assert_allclose(value, [[0, 0.5], [2.5, 4], [2, 2.5]])
  assert state.steps == ((), 1)
  assert measured['largest'] == 8


@pytest.mark.parametrize('on_all_rows', [False, True])
@pytest.mark.parametrize('optimizer', [SGD, ROW_MOMENTUM])
def test_a_step_sees_the_rows_before_the_seed_and_the_round(on_all_rows, optimizer):
  of = table(Difference(on_all_rows), optimizer=optimizer)
  state, value, measured = one_step(of)
  assert {k: float(v) for k, v in measured.items()} == {'moved': 1.5, 'round': 7, 'seed': 3}
  if optimizer is ROW_MOMENTUM:  # The rows before the round include the effect of momentum.
    measured = one_step(of, state=state, value=value)[2]
    np.testing.assert_allclose(measured['moved'], 1.5 * 1.9, rtol=1e-5)


def test_steps_on_all_rows_find_every_row_up_to_date():
  """Each round halves all rows, including rows that no client requested and momentum moved."""
  values = []
  for optimizer in (optimizers.build_sgd(1.0, 0.9), ROW_MOMENTUM):
    of = table(Halve(), optimizer=optimizer)
    state, value, _ = one_step(of)
    for sums, total in ((EMPTY, 4.0), (EMPTY, 0.0), (ROWS, 4.0), (EMPTY, 4.0)):
      state, value, _ = one_step(of, sums, total, state, value)
    values.append(value)
  np.testing.assert_allclose(values[1], values[0], rtol=1e-5)
  np.testing.assert_allclose(values[0][0], VALUE[0] / 2**4)


@pytest.mark.parametrize('steps', [(), (Halve(False), Difference(False))])
def test_steps_on_the_rounds_rows_cost_these_rows_alone(steps):
  row_dim, many = 2, 100_000
  of = table(*steps, optimizer=ROW_MOMENTUM)
  value = tf.TensorSpec([many, row_dim])
  state = tf.nest.map_structure(
    lambda t: tf.TensorSpec.from_tensor(tf.convert_to_tensor(t)), of.initialize(value)
  )
  sums = folding.RowSums(
    tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, row_dim]), tf.TensorSpec([None])
  )
  concrete = tf.function(of.next).get_concrete_function(
    state, value, sums, tf.TensorSpec([]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.int32)
  )
  assert not graphs.work_on_all_rows(concrete, many)
  scatters = map(graphs.is_scatter, concrete.graph.get_operations())
  # One for the table, one for the velocity, and one for the last step; none in a tf.cond.
  assert sum(scatters) == 3


def test_what_does_not_fit_is_refused():
  def made(*args, **given):
    return tables.Table('class', request.AllRows(3), *args, **given)

  assert made(optimizer=SGD).optimizer == optimizers.Dense(SGD)
  for merged in (merge.ReplaceRows(), merge.KeepRows(), merge.StackRows()):
    made(merged, steps=(Halve(),))
    with pytest.raises(ValueError, match='takes no optimizer'):
      made(merged, ROW_MOMENTUM)
  with pytest.raises(ValueError, match='KeepRows sends no rows'):
    made(merge.KeepRows(), steps=(Halve(False),))
  with pytest.raises(ValueError, match='come after'):
    made(steps=(Halve(), Halve(False)))
  step = Halve()
  step.metrics = ('smallest',)
  with pytest.raises(ValueError, match=r"'smallest'.*'largest'"):
    one_step(table(step))


@pytest.mark.parametrize('name', ['loss', 'class_rows', 'largest'])
def test_a_metric_that_exists_is_refused(name):
  step, again = Halve(), Halve()
  step.metrics = (name,)
  with pytest.raises(ValueError, match=f'metric {name!r} already'):
    algorithm.Algorithm(tiny.model(3), (table(step, again),), losses.HeldSoftmax(3))
