"""Measures federated_select: 64 clients request 1,000 rows each of a 10^6 x 64 table."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime import registry


def build(contender, sizes):
  """Builds a contender in its own process."""
  if contender != 'floor':
    # The runtime comes first, because it may set the threads of TensorFlow.
    registry.install(contender)
  row_type = tff.TensorType(np.float32, [sizes.dim])
  table_type = tff.TensorType(np.float32, [sizes.rows, sizes.dim])
  keys_type = tff.TensorType(np.int32, [sizes.keys])

  @tff.tensorflow.computation(table_type, np.int32)
  def select_row(table, key):
    return tf.gather(table, key)

  @tff.tensorflow.computation(tff.SequenceType(row_type))
  def add_up(rows):
    return tf.reduce_sum(rows.batch(sizes.keys).get_single_element(), axis=0)

  @tff.federated_computation(
    tff.FederatedType(table_type, tff.SERVER), tff.FederatedType(keys_type, tff.CLIENTS)
  )
  def select(table, keys):
    """Returns the sum of all requested rows."""
    max_key = tff.federated_value(sizes.rows, tff.SERVER)
    rows = tff.federated_select(keys, max_key, table, select_row)
    return tff.federated_sum(tff.federated_map(add_up, rows))

  def floor(table, keys):
    """Does the work that no runtime can avoid, one client after another."""
    return sum(tf.reduce_sum(tf.gather(table, mine), axis=0) for mine in keys)

  table = tf.random.stateless_normal([sizes.rows, sizes.dim], seed=[0, 0])
  shape = [sizes.clients, sizes.keys]
  random = np.random.default_rng(0)
  keys = list(random.integers(0, sizes.rows, shape, dtype=np.int32))
  function = floor if contender == 'floor' else select

  def run():
    total = np.asarray(function(table, keys))
    return {'check': lambda: {'sum_norm': float(np.linalg.norm(total))}}

  return run
