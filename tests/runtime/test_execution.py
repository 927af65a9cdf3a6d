"""Threads that compute at the same time, and sequences that create clients' values on demand."""

import collections.abc
import os
import signal
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tests.runtime import computations
from tff_xc import errors, interrupts
from tff_xc.runtime import client_error, registry
from tff_xc.runtime.in_process import context


def test_tables_of_one_shape_that_are_given_up_are_not_exchanged(in_process, in_threads):
  table_type = tff.TensorType(np.float32, [500, 20])

  @tff.tensorflow.computation(table_type, np.int32)
  def put(table, row):
    return tf.tensor_scatter_nd_update(table, row[None, None], tf.gather(table, [row]) + 1.0)

  def work(index):
    table = tf.fill([500, 20], float(1000 * index))
    for row in range(100):
      given = registry.donate(table)
      del table
      table = put(given, row)
    return table.numpy()

  expected = (np.arange(500) < 100)[:, None] * np.ones(20)
  for index, table in enumerate(in_threads(in_process, work)):
    np.testing.assert_array_equal(table, 1000 * index + expected)


def test_graphs_with_variables_and_tables_are_not_shared(in_process, in_threads):
  @tff.tensorflow.computation(np.float32)
  def count(x):
    total = tf.Variable(0.0)
    table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(tf.constant([b'a']), tf.constant([5.0])), 0.0
    )
    many = tf.while_loop(lambda i: i < 200, lambda i: [i + 1.0 + 0.0 * total.assign_add(x)], [0.0])
    with tf.control_dependencies(many):
      return total.read_value() + table.lookup(tf.constant(b'a'))

  run = computations.total_of(count)

  def work(index):
    number = float(index + 1)
    clients = [number, number + 1, number + 2, number + 3]
    return [(float(count(number)), float(run(clients))) for _ in range(10)]

  for index, found in enumerate(in_threads(in_process, work)):
    own = 200.0 * (index + 1)
    assert found == [(own + 5, 4 * own + 1200 + 20)] * 10


def test_an_error_stops_the_clients_of_its_own_computation_only(in_process, in_threads):
  @tff.tensorflow.computation(np.float32)
  def slow(x):
    def step(i):
      return i + tf.math.reduce_max(tf.ones([1000]))

    with tf.control_dependencies([tf.debugging.Assert(x > 0, ['negative', x])]):
      return x * tf.while_loop(lambda i: i < 5e3, step, [0.0])[0]

  run = computations.total_of(slow)
  run([1.0])

  def work(index):
    if index:
      return [float(run([1.0] * 4)) for _ in range(3)]
    for _ in range(30):
      with pytest.raises(client_error.ClientError, match='negative'):
        run([-1.0] * 4)

  for found in in_threads(in_process, work)[1:]:
    assert found == [2e4] * 3


def test_an_op_has_one_thread_or_it_is_told(monkeypatch, caplog):
  asked = []
  monkeypatch.setattr(tf.config.threading, 'set_intra_op_parallelism_threads', asked.append)
  context.create_context(client_threads=1)
  assert asked == [1]
  assert not caplog.text

  def started(threads):
    raise RuntimeError('it has started')

  monkeypatch.setattr(tf.config.threading, 'set_intra_op_parallelism_threads', started)
  context.create_context(client_threads=1)
  assert 'will differ in the last digits' in caplog.text


_CLIENTS, _CLIENT_THREADS = 40, 2


class _Lazy(collections.abc.Sequence):
  """A sequence that creates new values, and counts the values that are still referenced."""

  def __init__(self, values, fail_at=None):
    self._values, self._fail_at = values, fail_at
    self._lock, self._held = threading.Lock(), 0
    self.asked, self.most_held, self.threads = [], 0, set()

  def __len__(self):
    return len(self._values)

  def __getitem__(self, index):
    if index == self._fail_at:
      raise errors.InputError(f'file {index} is damaged')
    value = self._values[index]
    # The value is a tensor, because the runtime copies arrays and passes tensors on.
    value = value._replace(x=tf.constant(value.x))
    weakref.finalize(value.x, self._count, -1)
    self._count(1)
    self.asked.append(index)
    self.threads.add(threading.current_thread().name)
    return value

  def _count(self, change):
    with self._lock:
      self._held += change
      self.most_held = max(self.most_held, self._held)


def _values(count: int = _CLIENTS) -> list:
  return tiny.cohort([[i % 12] * (1 + i % 3) for i in range(count)])


def _readers() -> list:
  names = [thread.name for thread in threading.enumerate()]
  return [name for name in names if name.startswith('tff_xc_reader')]


@pytest.fixture(scope='module')
def process():
  return tiny.shared_process()


@pytest.fixture(scope='module')
def context_of_two():
  """A runtime with two client threads, which compiles the process once."""
  return context.create_context(client_threads=_CLIENT_THREADS)


@pytest.fixture
def two_threads(context_of_two, tff_worker):
  """Installs the runtime with two client threads for one test."""
  tff.framework.set_default_context(context_of_two)
  yield context_of_two
  tff.framework.set_default_context(tff_worker)


@pytest.mark.slow
@pytest.mark.usefixtures('two_threads')
def test_few_values_are_held_at_a_time_and_each_is_read_once(process):
  lazy = _Lazy(_values())
  state = process.initialize()
  output = process.next(state, lazy)
  assert sorted(lazy.asked) == list(range(_CLIENTS))
  assert 1 < lazy.most_held <= 2 * _CLIENT_THREADS + 1
  assert all(name.startswith('tff_xc_') for name in lazy.threads)
  assert not _readers()
  expected = process.next(state, _values())
  tiny.assert_same_weights(output.state, expected.state, tolerance=0)


@pytest.mark.slow
def test_the_worker_takes_them_as_a_list(tff_worker, process):
  lazy = _Lazy(_values(3))
  state = process.initialize()
  output = process.next(state, lazy)
  assert lazy.asked == [0, 1, 2]
  expected = process.next(state, _values(3))
  tiny.assert_same_weights(output.state, expected.state, tolerance=0)


@pytest.mark.usefixtures('two_threads')
def test_an_error_of_reading_is_raised_as_it_is(process):
  for fail_at in (0, 1, 13, 39):
    with pytest.raises(errors.InputError, match=f'^file {fail_at} is damaged$'):
      process.next(process.initialize(), _Lazy(_values(), fail_at))
    assert not _readers()
  values = _values(3)
  values[2] = values[2]._replace(labels=np.array([1.5]))
  with pytest.raises(TypeError, match=r'^client 2 .*int32.*float64'):
    process.next(process.initialize(), _Lazy(values))


@pytest.mark.usefixtures('two_threads')
def test_an_interrupt_leaves_no_thread(process, monkeypatch):
  class Interrupting(_Lazy):
    def __getitem__(self, index):
      if index == 7:
        os.kill(os.getpid(), signal.SIGINT)
      return super().__getitem__(index)

  state = process.initialize()
  lazy = Interrupting(_values())
  before = signal.getsignal(signal.SIGINT)
  monkeypatch.setattr(interrupts, '_received', 0)
  interrupts.install()  # As in commands. A destructor may ignore the exception once.
  try:
    with pytest.raises(KeyboardInterrupt), interrupts.raising():
      process.next(state, lazy)
  finally:
    signal.signal(signal.SIGINT, before)
  assert not _readers()
  assert len(lazy.asked) < _CLIENTS
  process.next(state, _Lazy(_values()))
