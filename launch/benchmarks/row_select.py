"""Federated select alone: 64 clients x 1,000 rows of a 10^6 x 64 table."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a select.

  Attributes:
    clients: clients of a round.
    keys: number of rows that each client requests.
    rows: number of rows of the table.
    dim: the length of a row.
  """

  clients: int = 64
  keys: int = 1000
  rows: int = 1_000_000
  dim: int = 64


class Selects:
  """Runs a function of the table and all clients' keys as its rounds."""

  def __init__(self, function, table, keys):
    self._function, self._table, self._keys = function, table, keys

  def run(self) -> None:
    import numpy as np

    self._sum = np.asarray(self._function(self._table, self._keys))

  def report(self) -> dict:
    import numpy as np

    return {'check': {'sum_norm': float(np.linalg.norm(self._sum))}}


def _make_arrays(settings: Settings):
  import numpy as np
  import tensorflow as tf

  shape = [settings.rows, settings.dim]
  table = tf.random.stateless_normal(shape, seed=[0, 0])
  random = np.random.default_rng(0)
  size = [settings.clients, settings.keys]
  keys = random.integers(0, settings.rows, size, dtype=np.int32)
  return table, list(keys)


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


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  from tff_xc.runtime import registry

  if contender == 'floor':
    return Selects(_floor, *_make_arrays(settings))
  registry.install(contender)  # First, since it may set TensorFlow's threads.
  return Selects(_build_computation(settings), *_make_arrays(settings))


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(
    names,
    ('in_process', 'floor'),
    ('worker', 'floor'),
    ('worker', 'in_process'),
  )


BENCHMARK = spec.Benchmark(
  name='select',
  summary='federated_select of 1,000 rows for 64 clients, 1,000,000 x 64 table',
  settings=Settings,
  small={'clients': 2, 'keys': 5, 'rows': 100, 'dim': 4},
  contenders=lambda settings: ('floor', 'in_process', 'worker'),
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'sum_norm': 1e-3},
  build=build,
)
