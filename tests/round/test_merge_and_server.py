"""The union of rows by id, and the server's step on them."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests import graphs
from tff_xc import classifier
from tff_xc.round import merge
from tff_xc.round import optimizers
from tff_xc.round import request
from tff_xc.round import server
from tff_xc.round import table_optimizers

SUMS = merge.RowSums(
  ids=tf.constant([4, 1, 4, 0, 1, 4]),
  rows=tf.reshape(tf.range(12.0), [6, 2]),
  weights=tf.constant([1.0, 2, 3, 4, 5, 6]),
)


def test_entries_of_one_id_are_added():
  added = merge.add_by_id(SUMS)
  np.testing.assert_array_equal(added.ids, [0, 1, 4])
  np.testing.assert_allclose(added.rows, [[6, 7], [10, 12], [14, 17]])
  np.testing.assert_allclose(added.weights, [4, 7, 10])


def test_a_clients_message_has_no_padding():
  held = request.SelectedRows(
    tf.constant([5, 3, 5]), tf.constant([True, True, False]), tf.zeros([3])
  )
  delta = tf.constant([[1.0, 2], [3, 4], [9, 9]])
  update = merge.row_update(held, delta, tf.constant(2.0))
  np.testing.assert_array_equal(update.ids, [5, 3])
  np.testing.assert_array_equal(update.rows, [[1, 2], [3, 4]])
  assert tf.size(merge.row_update(held, delta, tf.constant(0.0)).ids) == 0


def test_rows_average_over_the_cohort_or_over_their_holders():
  added = merge.add_by_id(SUMS)
  np.testing.assert_allclose(
    merge.AddRows().delta(added, tf.constant(100.0))[2], [0.14, 0.17]
  )
  renormalised = merge.AddRows(row_renormalise=True)
  np.testing.assert_allclose(
    renormalised.delta(added, tf.constant(100.0))[2], [1.4, 1.7]
  )


def test_replaced_rows_are_means_over_the_examples_of_their_holders():
  """Whatever weights the clients have in the mean of the encoder."""
  added = merge.add_by_id(SUMS)
  np.testing.assert_allclose(
    merge.ReplaceRows().delta(added, tf.constant(3.0))[2], [1.4, 1.7]
  )


@pytest.mark.usefixtures('tff_worker')
def test_the_sparse_sum_weighs_and_adds_over_clients():
  update = lambda ids, rows, weight: merge.RowUpdate(
    np.array(ids, np.int32), np.array(rows, np.float32), np.float32(weight)
  )
  sums = merge.build_sparse_sum(2)([
    update([7, 2], [[1, 1], [2, 2]], 3),
    update([], np.zeros([0, 2]), 0),
    update([2], [[10, 20]], 0.5),
  ])  # fmt: skip
  np.testing.assert_array_equal(sums.ids, [2, 7])
  np.testing.assert_allclose(sums.rows, [[11, 16], [3, 3]])
  np.testing.assert_allclose(sums.weights, [3.5, 3])


def _updates(clients=60, distinct=100):
  random = np.random.default_rng(0)

  def update():
    size = random.integers(0, 9)
    return merge.RowUpdate(
      random.choice(distinct, size, replace=False).astype(np.int32),
      random.normal(size=[size, 3]).astype(np.float32),
      np.float32(random.integers(1, 5)),
    )

  return [update() for _ in range(clients)]


@pytest.mark.parametrize('runtime', ['in_process', 'tff_worker'])
def test_a_sum_over_full_stacks_is_the_sum(runtime, request, monkeypatch):
  request.getfixturevalue(runtime)
  monkeypatch.setattr(merge, '_STACK_ROWS', (8, 16, 32))
  updates = _updates()
  expected, weights = np.zeros([100, 3]), np.zeros(100)
  for update in updates:
    expected[update.ids] += update.rows * update.weight
    weights[update.ids] += update.weight
  sums = merge.build_sparse_sum.__wrapped__(3)(updates)
  ids = np.flatnonzero(weights)
  np.testing.assert_array_equal(sums.ids, ids)
  np.testing.assert_allclose(sums.rows, expected[ids], atol=1e-5)
  np.testing.assert_allclose(sums.weights, weights[ids])


def test_an_accumulator_holds_few_more_rows_than_there_are_ids(monkeypatch):
  """The bound does not depend on the clients: here 600, with 2,400 rows."""
  bounds = (8, 16, 32)
  monkeypatch.setattr(merge, '_STACK_ROWS', bounds)
  empty = merge.RowSums(
    tf.zeros([0], tf.int32), tf.zeros([0, 3]), tf.zeros([0])
  )
  stacks, held = [empty] * 4, []
  for update in _updates(600, 40):
    new = merge.RowSums(
      update.ids, update.rows, tf.fill([len(update.ids)], update.weight)
    )
    stacks = merge._folded([merge._joined(stacks[0], new), *stacks[1:]])
    held.append([int(tf.size(stack.ids)) for stack in stacks])
  assert np.max(held, axis=0)[3] == 40  # Every id occurs once.
  assert (np.max(held, axis=0)[:3] <= bounds).all()


WEIGHTS = classifier.ModelWeights(
  collections.OrderedDict(a=tf.constant([1.0, 2.0])),
  collections.OrderedDict(mean=tf.constant(5.0)),
  tf.reshape(tf.range(6.0), [3, 2]),
)
DELTA = collections.OrderedDict(
  a=tf.constant([0.5, 0.0]), mean=tf.constant(1.0)
)
ROWS = merge.RowSums(
  tf.constant([1]), tf.constant([[2.0, 4.0]]), tf.constant([2.0])
)


class _Halve:
  """A table step that halves the table and counts its calls."""

  def initialize(self, table_spec):
    return tf.zeros([], tf.int32)

  def next(self, state, table, merged):
    return state + tf.size(merged.ids), table / 2


def one_step(of_server, total=4.0):
  specs = tf.nest.map_structure(
    lambda t: tf.TensorSpec(t.shape, t.dtype), WEIGHTS
  )
  return of_server.next(
    of_server.initialize(specs),
    WEIGHTS,
    DELTA,
    merge.AddRows().delta(ROWS, tf.constant(total)),
    ROWS,
    tf.constant(total),
  )


def plain(**changes):
  sgd = optimizers.build_sgd(1.0)
  return server.Server(encoder_optimizer=sgd, table_optimizer=sgd, **changes)


def test_plain_sgd_adds_the_mean_delta():
  _, weights = one_step(plain())
  np.testing.assert_allclose(weights.encoder['a'], [1.5, 2.0])
  np.testing.assert_allclose(weights.class_table, [[0, 1], [2.5, 4], [4, 5]])


def test_weights_without_gradient_are_averaged():
  _, weights = one_step(plain())
  np.testing.assert_allclose(weights.encoder_state['mean'], 6.0)


def test_row_steps_see_the_rounds_rows_after_the_optimizer():
  seen = []
  step = lambda rows: seen.append(rows.numpy()) or rows * 10.0
  again = lambda rows: rows + 1.0
  _, weights = one_step(plain(row_steps=(step, again)))
  np.testing.assert_allclose(seen, [[[2.5, 4.0]]])
  np.testing.assert_allclose(
    weights.class_table, [[0, 1], [26.0, 41.0], [4, 5]]
  )


def test_row_steps_change_nothing_where_no_client_was_left():
  _, weights = one_step(plain(row_steps=(lambda r: r * 10,)), total=0.0)
  np.testing.assert_array_equal(weights.class_table, WEIGHTS.class_table)


def test_steps_on_all_rows_are_table_steps():
  steps = server.OnAllRows((lambda rows: rows * 2.0,))
  _, weights = one_step(plain(table_steps=(steps,)))
  np.testing.assert_allclose(weights.class_table, [[0, 2], [5, 8], [8, 10]])


ROW_MOMENTUM = table_optimizers.RowMomentum(1.0, 0.9)
EMPTY = merge.RowSums(tf.zeros([0], tf.int32), tf.zeros([0, 2]), tf.zeros([0]))


@pytest.mark.parametrize('changes', [{}, {'table_optimizer': ROW_MOMENTUM}])
def test_momentum_moves_rows_that_nobody_sent(changes):
  momentum = server.Server(**changes)
  state, weights = one_step(momentum)
  later_state, later = momentum.next(
    state, weights, DELTA, EMPTY.rows, EMPTY, tf.constant(4.0)
  )
  read_all = momentum.table_optimizer.read_all
  moved = read_all(later_state.table, later.class_table) - weights.class_table
  np.testing.assert_allclose(moved, [[0, 0], [0.45, 0.9], [0, 0]], rtol=1e-5)


def test_an_optimizer_of_tff_steps_on_all_rows():
  sgd = optimizers.build_sgd(1.0)
  made = server.Server(table_optimizer=sgd).table_optimizer
  assert made == table_optimizers.Dense(sgd)


def test_table_steps_come_last_and_keep_their_state():
  state, weights = one_step(plain(table_steps=(_Halve(),)))
  np.testing.assert_allclose(weights.class_table[1], [1.25, 2])
  assert state.table_steps[0] == 1


def test_table_steps_find_every_row_up_to_date():
  """Each round halves all rows, also unrequested ones that momentum moved."""
  tables = []
  for optimizer in (optimizers.build_sgd(1.0, 0.9), ROW_MOMENTUM):
    halving = server.Server(table_optimizer=optimizer, table_steps=(_Halve(),))
    state, weights = one_step(halving)
    for sums, total in ((EMPTY, 4.0), (EMPTY, 0.0), (ROWS, 4.0), (EMPTY, 4.0)):
      state, weights = halving.next(
        state, weights, DELTA, sums.rows, sums, tf.constant(total)
      )
    tables.append(weights.class_table)
  np.testing.assert_allclose(tables[1], tables[0], rtol=1e-5)
  np.testing.assert_allclose(tables[0][0], WEIGHTS.class_table[0] / 2**4)


def test_a_server_without_table_steps_costs_the_requested_rows_alone():
  row_dim, many = 2, 100_000
  of_rows = server.Server(table_optimizer=ROW_MOMENTUM)
  spec = lambda t: tf.TensorSpec(t.shape, t.dtype)
  specs = tf.nest.map_structure(spec, WEIGHTS)._replace(
    class_table=tf.TensorSpec([many, row_dim])
  )
  state = tf.nest.map_structure(
    lambda t: spec(tf.convert_to_tensor(t)), of_rows.initialize(specs)
  )
  sums = merge.RowSums(
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None, row_dim]),
    tf.TensorSpec([None]),
  )
  concrete = tf.function(of_rows.next).get_concrete_function(
    state,
    specs,
    tf.nest.map_structure(spec, DELTA),
    sums.rows,
    sums,
    tf.TensorSpec([]),
  )
  assert not graphs.work_on_all_rows(concrete, many)
  scatters = map(graphs.is_scatter, concrete.graph.get_operations())
  assert sum(scatters) == 3  # Table, velocity, last step; in no tf.cond.


def test_without_weight_nothing_changes():
  _, weights = one_step(server.Server(), total=0.0)
  for new, old in zip(
    tf.nest.flatten(weights), tf.nest.flatten(WEIGHTS), strict=True
  ):
    np.testing.assert_array_equal(new, old)
