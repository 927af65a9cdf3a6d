"""Federated select alone: 64 clients x 1,000 rows of a 10^6 x 64 table."""

import dataclasses

from launch.benchmarks import spec


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a select."""

  clients: int = 64  # Clients of a round.
  keys: int = 1000  # Number of rows that each client requests.
  rows: int = 1_000_000  # Number of rows of the table.
  dim: int = 64  # The length of a row.


def _floor(table, keys):
  """Does the work that no runtime can avoid, one client after another."""
  import tensorflow as tf

  total = 0.0
  for mine in keys:
    total += tf.reduce_sum(tf.gather(table, mine), axis=0)
  return total


def _build_computation(settings: Settings):
  """Returns (table@SERVER, keys@CLIENTS) -> the sum of all requested rows."""
  import numpy as np
  import tensorflow as tf
  import tensorflow_federated as tff

  table_type = tff.TensorType(np.float32, [settings.rows, settings.dim])
  row_type = tff.TensorType(np.float32, [settings.dim])
  keys_type = tff.TensorType(np.int32, [settings.keys])

  @tff.tensorflow.computation(table_type, np.int32)
  def select_row(table, key):
    return tf.gather(table, key)

  @tff.tensorflow.computation(tff.SequenceType(row_type))
  def add_up(rows):
    return tf.reduce_sum(rows.batch(settings.keys).get_single_element(), axis=0)

  @tff.federated_computation(
    tff.FederatedType(table_type, tff.SERVER),
    tff.FederatedType(keys_type, tff.CLIENTS),
  )
  def select(table, keys):
    max_key = tff.federated_value(settings.rows, tff.SERVER)
    rows = tff.federated_select(keys, max_key, table, select_row)
    return tff.federated_sum(tff.federated_map(add_up, rows))

  return select


def build(contender: str, settings: Settings):
  """Builds a contender, in its own process."""
  import numpy as np
  import tensorflow as tf

  from tff_xc.runtime import registry

  function = _floor
  if contender != 'floor':
    registry.install(contender)  # First, since it may set TensorFlow's threads.
    function = _build_computation(settings)
  table = tf.random.stateless_normal([settings.rows, settings.dim], seed=[0, 0])
  size = [settings.clients, settings.keys]
  random = np.random.default_rng(0)
  keys = list(random.integers(0, settings.rows, size, dtype=np.int32))

  def run():
    total = np.asarray(function(table, keys))
    return {'check': {'sum_norm': float(np.linalg.norm(total))}}

  return run


BENCHMARK = spec.Benchmark(
  name='select',
  summary='federated_select of 1,000 rows for 64 clients, 1,000,000 x 64 table',
  settings=Settings,
  small={'clients': 2, 'keys': 5, 'rows': 100, 'dim': 4},
  contenders=lambda settings: ('floor', 'in_process', 'worker'),
  ratios=(
    ('in_process', 'floor'),
    ('worker', 'floor'),
    ('worker', 'in_process'),
  ),
  tolerances={'sum_norm': 1e-3},
  build=build,
)
