"""Merges of clients' rows: sums by row id, or rows side by side."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.round import folding, merge, optimizers, request

# `test_same_as_worker` compares the two runtimes.
RUNTIMES = ['in_process', pytest.param('tff_worker', marks=pytest.mark.slow)]
SUMS = folding.RowSums(
  ids=tf.constant([4, 1, 4, 0, 1, 4]),
  rows=tf.reshape(tf.range(12.0), [6, 2]),
  weights=tf.constant([1.0, 2, 3, 4, 5, 6]),
)


def test_a_clients_message_has_no_padding():
  held = request.SelectedRows(
    tf.constant([5, 3, 5]), tf.constant([True, True, False]), tf.zeros([3])
  )
  delta = tf.constant([[1.0, 2], [3, 4], [9, 9]])
  update = folding.row_update(held, delta, tf.constant(2.0))
  np.testing.assert_array_equal(update.ids, [5, 3])
  np.testing.assert_array_equal(update.rows, [[1, 2], [3, 4]])
  assert tf.size(folding.row_update(held, delta, tf.constant(0.0)).ids) == 0


def test_means_of_rows():
  added = folding.add_by_id(SUMS)
  np.testing.assert_array_equal(added.ids, [0, 1, 4])
  np.testing.assert_allclose(added.rows, [[6, 7], [10, 12], [14, 17]])
  np.testing.assert_allclose(added.weights, [4, 7, 10])
  for merged, row in (
    (merge.SumRows(), [0.14, 0.17]),  # The mean over the cohort.
    # The mean over the clients that have the row.
    (merge.SumRows(row_renormalise=True), [1.4, 1.7]),
    (merge.ReplaceRows(), [1.4, 1.7]),
  ):
    np.testing.assert_allclose(merged.mean(added, tf.constant(100.0))[2], row)


def _updates(clients=60, distinct=100):
  random = np.random.default_rng(0)

  def update():
    size = random.integers(0, 9)
    return folding.RowUpdate(
      random.choice(distinct, size, replace=False).astype(np.int32),
      random.normal(size=[size, 3]).astype(np.float32),
      np.float32(random.integers(1, 5)),
    )

  return [update() for _ in range(clients)]


@pytest.mark.parametrize('runtime', RUNTIMES)
def test_a_sum_over_full_stacks_is_the_sum(runtime, request, monkeypatch):
  request.getfixturevalue(runtime)
  monkeypatch.setattr(folding, '_STACK_ROWS', (8, 16, 32))
  updates = _updates()
  expected, weights = np.zeros([100, 3]), np.zeros(100)
  for update in updates:
    expected[update.ids] += update.rows * update.weight
    weights[update.ids] += update.weight
  sums = folding.build.__wrapped__(3)(updates)
  ids = np.flatnonzero(weights)
  np.testing.assert_array_equal(sums.ids, ids)
  np.testing.assert_allclose(sums.rows, expected[ids], atol=1e-5)
  np.testing.assert_allclose(sums.weights, weights[ids])


def test_an_accumulator_holds_few_more_rows_than_there_are_ids(monkeypatch):
  """The bound does not depend on the number of clients. Here, 100 clients send 400 rows."""
  bounds = (8, 16, 32)
  monkeypatch.setattr(folding, '_STACK_ROWS', bounds)
  empty = folding.RowSums(tf.zeros([0], tf.int32), tf.zeros([0, 3]), tf.zeros([0]))
  stacks, held = [empty] * 4, []
  for update in _updates(100, 40):
    new = folding.RowSums(update.ids, update.rows, tf.fill([len(update.ids)], update.weight))
    stacks = folding.pushed(stacks, new, folding.grown, bounds)
    held.append([int(tf.size(stack.ids)) for stack in stacks])
  assert np.max(held, axis=0)[3] == 40  # Every id occurs once.
  assert (np.max(held, axis=0)[:3] <= bounds).all()


@pytest.mark.parametrize('add', [folding.add_by_id, folding.grown])
@pytest.mark.parametrize('ids', [[7, 2, 9], [7, 2, 7, 9, 2, 7], [3, 5], [], [5]])
def test_additions_have_the_bits_of_those_one_by_one(add, ids):
  """Sums in float32 depend on the order of the arguments. The arguments do not change."""
  random = np.random.default_rng(0)

  def some(ids):
    rows = random.normal(size=[len(ids), 5]).astype(np.float32)
    weights = random.uniform(size=len(ids)).astype(np.float32)
    return folding.RowSums(np.array(ids, np.int32), rows, weights)

  parts = some([5, 2, 3]), some(ids)
  given = [folding.RowSums(*map(tf.constant, part)) for part in parts]
  one_row = folding.RowSums(*[tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in given[0]])
  add = tf.function(add, input_signature=[one_row] * 2)
  for _ in range(2):
    added = add(*given)
  order, held = np.argsort(added.ids), sorted({5, 2, 3, *ids})
  np.testing.assert_array_equal(added.ids.numpy()[order], held)
  for name in ('rows', 'weights'):
    expected = np.zeros([10, *parts[0]._asdict()[name].shape[1:]], np.float32)
    for part in parts:
      for i, value in zip(part.ids, getattr(part, name), strict=True):
        expected[i] += value
    got = getattr(added, name).numpy()[order]
    assert got.tobytes() == expected[held].tobytes()
    for part, tensor in zip(parts, given, strict=True):
      np.testing.assert_array_equal(getattr(tensor, name), getattr(part, name))


def test_two_additions_to_the_same_sums_in_one_graph_stay_apart():
  """TensorFlow could merge equal ops of the two sums, so that both change one tensor in place."""
  ids = tf.TensorSpec([None], tf.int32)
  rows, weights = tf.TensorSpec([None, 2]), tf.TensorSpec([None])

  @tf.function(input_signature=[folding.RowSums(ids, rows, weights)] * 2)
  def both(sums, more):
    doubled = more._replace(rows=2 * more.rows)
    return folding.grown(sums, more), folding.grown(sums, doubled)

  sums = folding.RowSums(tf.constant([3, 5]), tf.ones([2, 2]), tf.ones([2]))
  for added, row in zip(both(sums, sums), (2, 3), strict=True):
    np.testing.assert_array_equal(added.rows, np.full([2, 2], row))
    np.testing.assert_array_equal(added.weights, [2, 2])


@pytest.mark.parametrize('all_rows', [False, True])
@pytest.mark.parametrize('runtime', RUNTIMES)
def test_stacked_rows_are_those_of_all_clients(all_rows, runtime, request, monkeypatch):
  request.getfixturevalue(runtime)
  monkeypatch.setattr(folding, '_STACK_ROWS', (8, 16, 32))
  updates = _updates(40, 12)  # If there are more than 32 updates, blocks are merged.
  if all_rows:
    random = np.random.default_rng(1)
    updates = [
      folding.RowUpdate((), random.normal(size=[12, 3]).astype(np.float32), update.weight)
      for update in updates
    ]
    updates[3] = updates[3]._replace(weight=np.float32(0))  # This update is dropped.
  fold = folding.build.__wrapped__(3, True, 12 if all_rows else None)
  stacked = fold(updates)
  kept = [u for u in updates if u.weight > 0]
  ids = [np.arange(12) if all_rows else u.ids for u in kept]
  expected = np.concatenate([u.rows for u in kept])
  found = np.argsort(stacked.rows[:, 0])
  order = np.argsort(expected[:, 0])
  for name, values in (
    ('rows', expected),
    ('ids', np.concatenate(ids)),
    ('weights', np.repeat([u.weight for u in kept], [len(i) for i in ids])),
  ):
    got = np.asarray(getattr(stacked, name))
    np.testing.assert_array_equal(got[found], values[order], name)


TABLE = tf.reshape(tf.range(6.0), [3, 2])
PLAIN = optimizers.RowMomentum()
SENT = folding.RowSums(tf.constant([1]), tf.constant([[20.0, 40.0]]), tf.constant([4.0]))


@pytest.mark.parametrize(
  ('merged', 'sent', 'row'),
  [
    (merge.SumRows(), [9, 8], [2 + 2, 3 + 4]),
    (merge.SumRows(row_renormalise=True), [9, 8], [2 + 5, 3 + 10]),
    (merge.ReplaceRows(), [10, 10], [5, 10]),
    (merge.KeepRows(), None, [2, 3]),
    (merge.StackRows(), [10, 10], [2, 3]),
  ],
)
@pytest.mark.parametrize('total', [10.0, 0.0])
def test_what_clients_send_and_what_a_merge_does_with_it(merged, sent, row, total):
  found = merged.sent(tf.constant([[1.0, 2]]), tf.constant([[10.0, 10]]))
  np.testing.assert_array_equal(found, np.reshape(sent or [], [-1, 2]))
  state, table, more = merged.next(PLAIN, (), TABLE, SENT, tf.constant(total))
  changed = row if total else [2, 3]
  np.testing.assert_allclose(table, [[0, 1], changed, [4, 5]])
  assert state == more == ()


@pytest.mark.parametrize('merged', [merge.SumRows(), merge.ReplaceRows(), merge.StackRows()])
def test_what_follows_a_merge_changes_its_rows(merged):
  seen = []

  def after(ids, rows):
    seen.append(ids.numpy())
    return rows * 0, 'more'

  total = tf.constant(10.0)
  _, table, more = merged.next(PLAIN, (), TABLE, SENT, total, after)
  np.testing.assert_array_equal(seen, [[1]])
  np.testing.assert_array_equal(table, [[0, 1], [0, 0], [4, 5]])
  assert more == 'more'
