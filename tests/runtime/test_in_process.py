"""The in-process runtime alone: values, errors, order, memory, placement."""

import collections
import gc
import os
import pathlib
import signal
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime import computations
from tff_xc.runtime import client_error, registry
from tff_xc.runtime.in_process import context, execution, expressions, graph_call

_FLOATS = computations.FLOATS
_TABLE = tff.TensorType(np.float32, [6, 2])
_NUMBERS = np.arange(12, dtype=np.float32).reshape(6, 2)
pytestmark = pytest.mark.usefixtures('in_process')


@pytest.mark.slow
def test_results_do_not_wait_for_the_garbage_collector():
  summed = computations.total_of(
    tff.tensorflow.computation(lambda v: collections.OrderedDict(a=tf.fill([1000], v), b=v))
  )

  def alive():
    eager = type(tf.constant(0.0))
    found = [o for o in gc.get_objects() if isinstance(o, eager)]
    return sum(tensor.shape == [1000] for tensor in found)

  summed([1.0, 2.0])
  gc.collect()
  gc.disable()
  try:
    result = summed([1.0, 2.0, 3.0])
    assert float(result['a'][0]) == 6.0
    assert alive() == 1
  finally:
    gc.enable()


def test_one_value_for_all_clients_and_structures():
  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.float32, tff.CLIENTS, all_equal=True),
    _FLOATS,
  )
  def run(server, shared, own):
    sent = tff.federated_broadcast(server)
    zipped = tff.federated_zip(collections.OrderedDict(own=own, sent=sent, shared=shared))
    add = tff.tensorflow.computation(lambda v: v['own'] + v['sent'] * v['shared'])
    return sent, tff.federated_sum(tff.federated_map(add, zipped))

  sent, total = run(2.0, 3.0, [1.0, 1.0])
  assert sent == 2.0
  assert total == 14.0


def test_data_sets_are_sequences_also_of_nothing():
  pairs = collections.OrderedDict(y=np.int32, x=np.float32)

  @tff.tensorflow.computation(tff.SequenceType(pairs))
  def total(elements):
    return elements.reduce(tf.constant(0.0), lambda s, e: s + e['x'] * tf.cast(e['y'], tf.float32))

  @tff.federated_computation(tff.FederatedType(tff.SequenceType(pairs), tff.CLIENTS))
  def totals(data):
    return tff.federated_map(total, data)

  given = collections.OrderedDict(y=np.array([1, 2], np.int32), x=np.array([3, 4], np.float32))
  both = tf.data.Dataset.from_tensor_slices(given)
  found = totals([both, both.take(1), both.take(0)])
  assert [float(v) for v in found] == [11.0, 3.0, 0.0]


def test_few_clients_are_under_way_at_a_time():
  started, lock, folded = [], threading.Lock(), []
  clients = execution.Clients([''], 2)

  def work(index, value, place):
    assert value == -index
    with lock:
      started.append(index)
      assert len(started) - len(folded) <= 5
    return index

  clients.run(50, False, lambda i: -i, work, folded.extend)
  assert folded == list(range(50))


def test_cohorts_of_any_size_take_the_same_graphs(monkeypatch):
  @tff.federated_computation(_FLOATS)
  def mean(x):
    return tff.federated_mean(x)

  traced = []
  trace = graph_call.GraphCall._trace
  monkeypatch.setattr(
    graph_call.GraphCall, '_trace', lambda self, place: traced.append(place) or trace(self, place)
  )
  mean([1.0] * 20)  # There are enough clients to fold values one by one, and several at once.
  first = len(traced)
  for size in (1, 3, 7, 31, 2):
    assert mean([2.0] * size) == 2.0
  assert len(traced) == first


@pytest.mark.slow
def test_a_computation_that_is_gone_is_forgotten(in_process):
  def use_one():
    computation = tff.tensorflow.computation(lambda: tf.constant(1))
    computation()
    return set(in_process._compiled) - before

  gc.collect()
  before = set(in_process._compiled)
  new = use_one()
  gc.collect()
  assert len(new) == 1
  assert not new & set(in_process._compiled)


@pytest.mark.parametrize('number', [1, 3])
def test_an_interrupt_stops_clients_that_compute(number):
  """The interrupt does not wait for the end of a long local training."""

  @tff.tensorflow.computation(np.float32)
  def endless(x):
    def step(v):
      for _ in range(100):  # A training step has about as many ops.
        v *= 1.0
      return v

    return tf.while_loop(lambda v: v < 1e9, step, [x])[0]

  run = computations.total_of(endless)
  assert run([2e9] * number) == 2e9 * number  # From now on, the computation is compiled.
  timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
  timer.start()
  with pytest.raises(KeyboardInterrupt):
    run([1.0] * number)
  # The next computation is not affected.
  assert run([2e9] * number) == 2e9 * number


def test_what_cannot_be_run_is_named_before_any_work(monkeypatch):
  worked = []
  monkeypatch.setattr(execution, 'run', lambda *_: worked.append(1))

  @tff.federated_computation(tff.FederatedType(tff.SequenceType(np.float32), tff.CLIENTS))
  def run(data):
    local = tff.federated_computation(tff.sequence_sum, tff.SequenceType(np.float32))
    return tff.federated_map(local, data)

  with pytest.raises(expressions.UnsupportedError, match='sequence_sum'):
    run([[1.0]])
  assert not worked


def test_different_numbers_of_clients_are_refused():
  @tff.federated_computation(_FLOATS, _FLOATS)
  def both(x, y):
    return tff.federated_sum(x), tff.federated_sum(y)

  with pytest.raises(ValueError, match='2 and for 3'):
    both([1.0, 2.0], [1.0, 2.0, 3.0])


def _pointer(tensor) -> int:
  return np.asarray(memoryview(tensor)).__array_interface__['data'][0]


def _put_rows():
  @tff.tensorflow.computation(_TABLE, np.int32)
  def put(table, row):
    return tf.tensor_scatter_nd_update(table, row[None, None], tf.gather(table, [row]) + 1.0)

  @tff.federated_computation(
    tff.FederatedType(_TABLE, tff.SERVER), tff.FederatedType(np.int32, tff.SERVER)
  )
  def run(table, row):
    return tff.federated_map(put, (table, row))

  return run


def test_rows_of_a_table_given_up_are_written_in_place():
  table = tf.Variable(tf.zeros([6, 2])).read_value() + 0.0
  run, where = _put_rows(), _pointer(table)
  for row in range(3):
    given = registry.donate(table)
    del table
    table = run(given, row)
    assert _pointer(table) == where
    with pytest.raises(ValueError, match='given up'):
      registry.keep(given)
  np.testing.assert_array_equal(table[:, 0], [1, 1, 1, 0, 0, 0])


def test_a_table_that_somebody_holds_is_copied():
  table = tf.zeros([6, 2]) + 0.0
  run = _put_rows()
  changed = run(registry.donate(table), 1)  # `table` still refers to the donated table.
  again = run(table, 2)  # This table is not donated.
  view = table.numpy()  # NumPy refers to the table's memory.
  given = registry.donate(table)
  del table
  last = run(given, 3)
  np.testing.assert_array_equal(view, np.zeros([6, 2]))
  for row, found in ((1, changed), (2, again), (3, last)):
    np.testing.assert_array_equal(found[:, 0], np.arange(6) == row)


def test_a_state_given_up_to_a_round_that_fails_is_kept():
  @tff.federated_computation(tff.FederatedType(_TABLE, tff.SERVER), _FLOATS)
  def run(table, x):
    put = tff.tensorflow.computation(lambda t, s: tf.tensor_scatter_nd_update(t, [[0]], [[s, s]]))
    total = tff.federated_sum(tff.federated_map(computations.positive, x))
    return tff.federated_map(put, (table, total))

  state = registry.donate(tf.ones([6, 2]))
  with pytest.raises(client_error.ClientError, match=r'client 2 .*not p') as e:
    run(state, [1.0, 2.0, -3.0, 4.0, -5.0])
  assert e.value.client_index == 2
  state = registry.keep(state)
  np.testing.assert_array_equal(state, np.ones([6, 2]))
  assert run(state, [1.0, 2.0])[0, 0] == 3.0


def test_a_table_that_is_a_result_as_well_is_copied():
  @tff.federated_computation(tff.FederatedType(_TABLE, tff.SERVER))
  def run(table):
    put = tff.tensorflow.computation(lambda t: tf.tensor_scatter_nd_update(t, [[0]], [[5.0, 5.0]]))
    changed = tff.federated_map(put, table)
    other = tff.tensorflow.computation(
      lambda t: tf.tensor_scatter_nd_update(t, [[1]], [[7.0, 7.0]])
    )
    twice = tff.federated_map(other, changed)
    return table, changed, twice, tff.federated_map(other, table)

  table = tf.zeros([6, 2]) + 0.0
  given = registry.donate(table)
  del table
  same, changed, twice, apart = run(given)
  np.testing.assert_array_equal(same, np.zeros([6, 2]))
  np.testing.assert_array_equal(changed[:, 0], [5, 0, 0, 0, 0, 0])
  np.testing.assert_array_equal(twice[:, 0], [5, 7, 0, 0, 0, 0])
  np.testing.assert_array_equal(apart[:, 0], [0, 7, 0, 0, 0, 0])


def _together(slices):
  return slices.batch(3).get_single_element()


def _select(function, use=_together):
  @tff.federated_computation(
    tff.FederatedType(_TABLE, tff.SERVER),
    tff.FederatedType(tff.TensorType(np.int32, [3]), tff.CLIENTS),
  )
  def run(table, keys):
    slices = tff.federated_select(keys, tff.federated_value(6, tff.SERVER), table, function)
    return tff.federated_map(tff.tensorflow.computation(use), slices)

  return run


def _row():
  return tff.tensorflow.computation(lambda t, k: t[k], [_TABLE, np.int32])


def test_select_is_a_gather_in_the_order_of_the_keys():
  keys = [np.array(k, np.int32) for k in ([5, 0, 5], [1, 2, 3])]
  found = _select(_row())(_NUMBERS, keys)
  for each, wanted in zip(found, keys, strict=True):
    np.testing.assert_array_equal(each, _NUMBERS[wanted])
  # TensorFlow converts one of its own functions once per process.
  made = [m for n, m in sys.modules.items() if n.startswith('__autograph_gen')]
  assert made
  assert not [m.__file__ for m in made if pathlib.Path(m.__file__).exists()]


def test_select_by_a_function_that_is_no_lookup():
  @tff.tensorflow.computation(_TABLE, np.int32)
  def row_sums(table, key):
    # The number of steps depends on the key, so this loop cannot be vectorised.
    return tf.while_loop(lambda i, _: i < key, lambda i, s: (i + 1, s + table[i]), [0, table[0]])[1]

  (found,) = _select(row_sums)(_NUMBERS, [np.array([3, 0, 1], np.int32)])
  sums = [_NUMBERS[:k].sum(axis=0) + _NUMBERS[0] for k in (3, 0, 1)]
  np.testing.assert_array_equal(found, sums)


def test_a_key_out_of_range_is_an_error():
  keys = [np.array(k, np.int32) for k in ([0, 1, 2], [0, 6, 1])]
  with pytest.raises(client_error.ClientError, match=r'client 1 .*max_key'):
    _select(_row())(_NUMBERS, keys)


def test_slices_that_a_client_batches_otherwise_are_still_its_slices():
  keys = np.array([4, 0, 5], np.int32)

  def first_two(slices):
    return slices.take(2).batch(2).get_single_element()

  def too_small(slices):
    return slices.batch(2).get_single_element()

  (found,) = _select(_row(), first_two)(_NUMBERS, [keys])
  np.testing.assert_array_equal(found, _NUMBERS[[4, 0]])
  with pytest.raises(client_error.ClientError, match='more than one element'):
    _select(_row(), too_small)(_NUMBERS, [keys])


def test_sums_are_folded_in_the_order_of_the_clients_block_by_block():
  values = np.random.default_rng(0).normal(size=200).astype(np.float32)

  def folded(numbers):
    found = np.float32(0.0)
    for number in numbers:
      found = np.float32(found + number)
    return found

  # 200 clients form 25 blocks of 8.
  expected = folded([folded(block) for block in values.reshape(25, 8)])
  for threads in (1, 2, 5):
    tff.framework.set_default_context(context.create_context(client_threads=threads))
    assert float(computations.total(list(values))) == expected


def test_a_mean_does_not_depend_on_how_many_are_folded_at_a_time():
  """TensorFlow's optimizer would add the terms of a call in another order."""
  vector = tff.TensorType(np.float32, [9216])
  pair = tff.to_type((vector, vector))

  @tff.federated_computation(tff.FederatedType(pair, tff.CLIENTS), _FLOATS)
  def mean(x, weights):
    return tff.federated_mean(x, weights)

  random = np.random.default_rng(0)
  x = [tuple(each) for each in random.normal(size=[31, 2, 9216]).astype('f')]
  weights = list(random.uniform(1, 5, 31).astype(np.float32))
  found = []
  for threads in (1, 2, 5):
    tff.framework.set_default_context(context.create_context(client_threads=threads))
    found.append(np.stack(mean(x, weights)))
  np.testing.assert_array_equal(found[0], found[1])
  np.testing.assert_array_equal(found[0], found[2])
