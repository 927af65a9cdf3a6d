"""Each of several threads that compute at once gets its own result."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tff_xc.algorithms import fedaws
from tff_xc.runtime import client_error
from tff_xc.runtime import registry
from tff_xc.runtime.in_process import context

_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
_THREADS = 4


def _in_threads(context, work) -> list:
  """Calls `work` with 0, 1, ..., each in a thread of its own."""
  found, start = [None] * _THREADS, threading.Barrier(_THREADS)

  def run(index):
    with tff.framework.get_context_stack().install(context):
      start.wait()
      try:
        found[index] = work(index)
      except Exception as e:
        found[index] = e

  threads = [
    threading.Thread(target=run, args=[i], daemon=True) for i in range(_THREADS)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
  assert not any(thread.is_alive() for thread in threads), 'they hang'
  return found


def test_tables_of_one_shape_that_are_given_up_are_not_exchanged(in_process):
  table_type = tff.TensorType(np.float32, [500, 20])

  @tff.tensorflow.computation(table_type, np.int32)
  def put(table, row):
    return tf.tensor_scatter_nd_update(
      table, row[None, None], tf.gather(table, [row]) + 1.0
    )

  def work(index):
    table = tf.fill([500, 20], float(1000 * index))
    for row in range(100):
      given = registry.donate(table)
      del table
      table = put(given, row)
    return table.numpy()

  expected = (np.arange(500) < 100)[:, None] * np.ones(20)
  for index, table in enumerate(_in_threads(in_process, work)):
    np.testing.assert_array_equal(table, 1000 * index + expected)


def test_graphs_with_variables_are_not_shared(in_process):
  @tff.tensorflow.computation(np.float32)
  def count(x):
    total = tf.Variable(0.0)
    many = tf.while_loop(
      lambda i: i < 200, lambda i: [i + 1.0 + 0.0 * total.assign_add(x)], [0.0]
    )
    with tf.control_dependencies(many):
      return total.read_value()

  @tff.federated_computation(_FLOATS)
  def run(x):
    return tff.federated_sum(tff.federated_map(count, x))

  def work(index):
    number = float(index + 1)
    return [(float(count(number)), float(run([number] * 4))) for _ in range(10)]

  for index, found in enumerate(_in_threads(in_process, work)):
    assert found == [(200.0 * (index + 1), 800.0 * (index + 1))] * 10


def test_an_error_stops_the_clients_of_its_own_computation_only(in_process):
  @tff.tensorflow.computation(np.float32)
  def slow(x):
    step = lambda i: i + tf.math.reduce_max(tf.ones([1000]))
    with tf.control_dependencies([tf.debugging.Assert(x > 0, ['negative', x])]):
      return x * tf.while_loop(lambda i: i < 5e3, step, [0.0])[0]

  @tff.federated_computation(_FLOATS)
  def run(x):
    return tff.federated_sum(tff.federated_map(slow, x))

  run([1.0])

  def work(index):
    if index:
      return [float(run([1.0] * 4)) for _ in range(3)]
    for _ in range(30):
      with pytest.raises(client_error.ClientError, match='negative'):
        run([-1.0] * 4)

  for found in _in_threads(in_process, work)[1:]:
    assert found == [2e4] * 3


def test_rounds_of_one_process_in_threads_are_those_of_one_thread(in_process):
  process = fedaws.build_fedaws(model=tiny.model(), max_positives=3)
  cohort_of = lambda r: tiny.cohort([[0, 1], [2, 3, 3], [4, 5]], seed=r)

  def work(index):
    state = process.initialize()
    for r in range(2):
      state = process.next(
        registry.donate(state), cohort_of(10 * index + r)
      ).state
    return process.get_model_weights(state)

  for index, found in enumerate(_in_threads(in_process, work)):
    tiny.assert_same_weights(found, work(index), tolerance=0)


def test_an_op_has_one_thread_or_it_is_told(monkeypatch, caplog):
  asked = []
  monkeypatch.setattr(
    tf.config.threading, 'set_intra_op_parallelism_threads', asked.append
  )
  context.create_context(client_threads=1)
  assert asked == [1]
  assert not caplog.text

  def started(threads):
    raise RuntimeError('it has started')

  monkeypatch.setattr(
    tf.config.threading, 'set_intra_op_parallelism_threads', started
  )
  context.create_context(client_threads=1)
  assert 'will differ in the last digits' in caplog.text
