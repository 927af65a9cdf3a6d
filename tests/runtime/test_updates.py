"""A donated state's rows are updated in place, and nobody else sees it."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime import client_error
from tff_xc.runtime import registry

_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
_TABLE = tff.TensorType(np.float32, [6, 2])
pytestmark = pytest.mark.usefixtures('in_process')


def _pointer(tensor) -> int:
  return np.asarray(memoryview(tensor)).__array_interface__['data'][0]


def _put_rows():
  @tff.tensorflow.computation(_TABLE, np.int32)
  def put(table, row):
    return tf.tensor_scatter_nd_update(
      table, row[None, None], tf.gather(table, [row]) + 1.0
    )

  @tff.federated_computation(
    tff.FederatedType(_TABLE, tff.SERVER),
    tff.FederatedType(np.int32, tff.SERVER),
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
  changed = run(registry.donate(table), 1)  # `table` still refers to it.
  again = run(table, 2)  # This table is not donated.
  view = table.numpy()  # NumPy holds the table's memory.
  given = registry.donate(table)
  del table
  last = run(given, 3)
  np.testing.assert_array_equal(view, np.zeros([6, 2]))
  for row, found in ((1, changed), (2, again), (3, last)):
    np.testing.assert_array_equal(found[:, 0], np.arange(6) == row)


def test_a_state_given_up_to_a_round_that_fails_is_kept():
  @tff.tensorflow.computation(np.float32)
  def picky(x):
    with tf.control_dependencies([tf.debugging.Assert(x > 0, ['negative', x])]):
      return tf.identity(x)

  @tff.federated_computation(tff.FederatedType(_TABLE, tff.SERVER), _FLOATS)
  def run(table, x):
    put = tff.tensorflow.computation(
      lambda t, s: tf.tensor_scatter_nd_update(t, [[0]], [[s, s]])
    )
    total = tff.federated_sum(tff.federated_map(picky, x))
    return tff.federated_map(put, (table, total))

  state = registry.donate(tf.ones([6, 2]))
  with pytest.raises(
    client_error.ClientError, match=r'client 2 .*negative'
  ) as e:
    run(state, [1.0, 2.0, -3.0, 4.0, -5.0])
  assert e.value.client_index == 2
  state = registry.keep(state)
  np.testing.assert_array_equal(state, np.ones([6, 2]))
  assert run(state, [1.0, 2.0])[0, 0] == 3.0


def test_a_table_that_is_a_result_as_well_is_copied():
  @tff.federated_computation(tff.FederatedType(_TABLE, tff.SERVER))
  def run(table):
    put = tff.tensorflow.computation(
      lambda t: tf.tensor_scatter_nd_update(t, [[0]], [[5.0, 5.0]])
    )
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
