"""The in-process runtime by itself: values, errors, order, memory, placement."""

import collections
import gc
import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime import registry
from tff_xc.runtime.in_process import execution
from tff_xc.runtime.in_process import expressions
from tff_xc.runtime.in_process import graph_call

_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


pytestmark = pytest.mark.usefixtures('in_process')


def test_results_do_not_wait_for_the_garbage_collector():
  @tff.federated_computation(_FLOATS)
  def summed(x):
    grow = tff.tensorflow.computation(
      lambda v: collections.OrderedDict(a=tf.fill([1000], v), b=v)
    )
    return tff.federated_sum(tff.federated_map(grow, x))

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
    zipped = tff.federated_zip(
      collections.OrderedDict(own=own, sent=sent, shared=shared)
    )
    add = tff.tensorflow.computation(
      lambda v: v['own'] + v['sent'] * v['shared']
    )
    return sent, tff.federated_sum(tff.federated_map(add, zipped))

  sent, total = run(2.0, 3.0, [1.0, 1.0])
  assert sent == 2.0
  assert total == 14.0


def test_two_phases_keep_what_the_second_needs():
  @tff.federated_computation(_FLOATS)
  def spread(x):
    mean = tff.federated_broadcast(tff.federated_mean(x))
    far = tff.tensorflow.computation(lambda a, b: tf.abs(a - b))
    distance = tff.federated_map(far, (x, mean))
    return tff.federated_max(distance), distance, x

  largest, each, given = spread([1.0, 2.0, 6.0])
  assert largest == 3.0
  assert [float(v) for v in each] == [2.0, 1.0, 3.0]
  assert [float(v) for v in given] == [1.0, 2.0, 6.0]


def test_sequences_as_data_sets_lists_and_of_nothing():
  pairs = collections.OrderedDict(y=np.int32, x=np.float32)

  @tff.tensorflow.computation(tff.SequenceType(pairs))
  def total(elements):
    return elements.reduce(
      tf.constant(0.0), lambda s, e: s + e['x'] * tf.cast(e['y'], tf.float32)
    )

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(pairs), tff.CLIENTS)
  )
  def totals(data):
    return tff.federated_map(total, data)

  given = collections.OrderedDict(
    y=np.array([1, 2], np.int32), x=np.array([3, 4], np.float32)
  )
  as_dataset = tf.data.Dataset.from_tensor_slices(given)
  as_list = [collections.OrderedDict(y=1, x=3.0)]
  found = totals([as_dataset, as_list, []])
  assert [float(v) for v in found] == [11.0, 3.0, 0.0]


def test_sequence_intrinsics():
  numbers = tff.SequenceType(np.float32)
  add = tff.tensorflow.computation(lambda a, b: a + b, [np.float32, np.float32])
  square = tff.tensorflow.computation(lambda v: v * v, np.float32)

  @tff.federated_computation(tff.FederatedType(numbers, tff.CLIENTS))
  def run(data):
    @tff.federated_computation(numbers)
    def local(each):
      squares = tff.sequence_map(square, each)
      return (
        tff.sequence_sum(squares),
        tff.sequence_reduce(squares, np.float32(10.0), add),
      )

    return tff.federated_map(local, data)

  (first, second) = run([[1.0, 2.0], []])
  assert [float(v) for v in first] == [5.0, 15.0]
  assert [float(v) for v in second] == [0.0, 10.0]


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
    graph_call.GraphCall,
    '_trace',
    lambda self, place: traced.append(place) or trace(self, place),
  )
  mean([1.0] * 20)  # Enough to fold values one by one, and several at once.
  first = len(traced)
  for size in (1, 3, 7, 31, 2):
    assert mean([2.0] * size) == 2.0
  assert len(traced) == first


def test_rounds_leave_nothing_behind():
  @tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.float32, [1000]), tff.SERVER), _FLOATS
  )
  def run(state, x):
    add = tff.tensorflow.computation(lambda s, v: s + v)
    return tff.federated_map(add, (state, tff.federated_sum(x)))

  def objects_after(rounds, state):
    for _ in range(rounds):
      state = run(registry.donate(state), [1.0, 2.0])
    gc.collect()
    return len(gc.get_objects())

  before = objects_after(5, tf.zeros([1000]))
  assert objects_after(40, tf.zeros([1000])) - before < 40


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

  @tff.federated_computation(_FLOATS)
  def run(x):
    return tff.federated_sum(tff.federated_map(endless, x))

  timer = threading.Timer(2.0, os.kill, [os.getpid(), signal.SIGINT])
  timer.start()
  with pytest.raises(KeyboardInterrupt):
    run([1.0] * number)
  # The next computation is not affected.
  assert run([2e9] * number) == 2e9 * number


def test_what_cannot_be_run_is_named_before_any_work(monkeypatch):
  monkeypatch.delitem(expressions._SEQUENCES, 'sequence_sum')
  worked = []
  monkeypatch.setattr(execution, 'run', lambda *_: worked.append(1))

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.float32), tff.CLIENTS)
  )
  def run(data):
    local = tff.federated_computation(
      tff.sequence_sum, tff.SequenceType(np.float32)
    )
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
