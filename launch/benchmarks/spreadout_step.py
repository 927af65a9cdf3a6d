"""Compares FedAwS's spreadout step to the matrix product that dominates it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_NEIGHBOURS = (10, 100, 500)
_STEP_SIZE = 0.01
# For this number of rows, neighbours among all rows are also found in NumPy.
_CHECKED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a step.

  Attributes:
    classes: C', the number of classes of the round's participants.
    dim: the length of a row.
    num_classes: n; a further contender searches neighbours among all n classes.
  """

  classes: int = 4096
  dim: int = 512
  num_classes: int = 670_091


class Calls:
  """Runs a graph of the class rows in one call, as its rounds."""

  def __init__(self, function, *arguments, check=None, expected=None):
    """Keeps the arguments.

    Args:
      function: computes a round's result, a scalar.
      *arguments: arguments of the function.
      check: the scalar's name in the report; None: it is not reported.
      expected: () -> the numbers that the other contenders report, computed
        from their definitions.
    """
    import tensorflow as tf

    self._function, self._arguments = tf.function(function), arguments
    self._check, self._expected = check, expected
    self._report = {}

  def run(self) -> None:
    import numpy as np

    self._result = float(np.asarray(self._function(*self._arguments)))

  def report(self) -> dict:
    if self._expected and not self._report:  # Outside a round's measured time.
      self._report = {'check': self._expected()}
    if self._check:
      self._report = {'check': {self._check: self._result}}
    return self._report


def _product(rows, table):
  """Computes every similarity once, in blocks, and does not use them."""
  import tensorflow as tf

  def of_block(first):
    block = table[first : first + 8192]
    return tf.reduce_max(tf.matmul(rows, block, transpose_b=True))

  firsts = tf.range(0, tf.shape(table)[0], 8192)
  return tf.reduce_max(
    tf.map_fn(of_block, firsts, fn_output_signature=tf.float32)
  )


def _nearest(rows, table, k: int):
  """Finds the nearest rows in NumPy: similarities and places, both [q, k].

  Row i is row i of the table and no neighbour of itself.
  """
  import numpy as np

  values, places = [], []
  for first in range(0, len(rows), 16):
    similarities = rows[first : first + 16] @ table.T
    each = np.arange(len(similarities))
    similarities[each, first + each] = -np.inf
    best = np.argpartition(-similarities, k - 1, axis=1)[:, :k]
    values.append(np.take_along_axis(similarities, best, axis=1))
    places.append(best)
  return np.concatenate(values), np.concatenate(places)


def _length_of_step(rows, k: int) -> float:
  """Computes the length of eq. (8)'s step in NumPy, from its definition."""
  import numpy as np
  from scipy import sparse

  if not 0 < k < len(rows) - 1:
    gradient = 4 * (rows.sum(axis=0) - rows)
  else:
    _, places = _nearest(rows, rows, k)
    ends = np.arange(0, places.size + 1, k)
    ones = np.ones(places.size, np.float32)
    pairs = sparse.csr_matrix((ones, places.ravel(), ends))
    pairs.resize(len(rows), len(rows))
    gradient = 2 * (pairs @ rows + pairs.T @ rows)
  return _STEP_SIZE * float(np.linalg.norm(gradient))


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  from tff_xc.encoders import normalization
  from tff_xc.runtime import registry

  if not contender.startswith('product'):
    registry.install('in_process')  # Sets one thread for each op.
  import tensorflow as tf

  draw = lambda count: normalization.unit_norm(
    tf.random.stateless_normal([count, settings.dim], seed=[0, 0])
  )
  rows = draw(settings.classes)
  if contender.endswith('_in_all'):
    table = tf.concat([rows, draw(settings.num_classes)[settings.classes :]], 0)
    return _build_in_all(contender, rows, table)
  return _build_step(contender, rows)


def _build_step(contender: str, rows) -> Calls:
  import tensorflow as tf

  from tff_xc.algorithms import spreadout

  if contender == 'product':
    neighbours = {'all': 0, **{f'k={k}': k for k in _NEIGHBOURS}}
    return Calls(
      _product,
      rows,
      rows,
      expected=lambda: {
        name: _length_of_step(rows.numpy(), k) for name, k in neighbours.items()
      },
    )
  k = 0 if contender == 'all' else int(contender.removeprefix('k='))
  step = spreadout.Spreadout(_STEP_SIZE, k)
  return Calls(lambda rows: tf.norm(step(rows) - rows), rows, check=contender)


def _build_in_all(contender: str, rows, table) -> Calls:
  import tensorflow as tf

  from tff_xc.round import nearest

  if contender == 'product_in_all':
    some = rows[:_CHECKED_ROWS].numpy()
    return Calls(
      _product,
      rows,
      table,
      expected=lambda: {
        'k=10_in_all': float(_nearest(some, table.numpy(), 10)[0].sum())
      },
    )
  ids = tf.range(tf.shape(rows)[0])
  return Calls(
    lambda rows, table: tf.reduce_sum(
      nearest.nearest(rows, ids, table, 10)[0][:_CHECKED_ROWS]
    ),
    rows,
    table,
    check=contender,
  )


def _groups(names: Sequence[str]) -> list[list[str]]:
  """Groups the plain products with the contenders whose results they check."""
  of_all = [name for name in names if name.endswith('_in_all')]
  of_round = [name for name in names if name not in of_all]
  return [
    sorted(group, key=lambda name: not name.startswith('product'))
    for group in (of_round, of_all)
    if any(name.startswith('product') for name in group)
  ]


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(
    names,
    *((f'k={k}', 'product') for k in _NEIGHBOURS),
    ('all', 'product'),
    ('k=10_in_all', 'product_in_all'),
  )


BENCHMARK = spec.Benchmark(
  name='spreadout',
  summary="FedAwS's spreadout step of 4,096 classes, and neighbours in 670,091",
  settings=Settings,
  small={'classes': 20, 'dim': 4, 'num_classes': 50},
  contenders=lambda settings: (
    'product',
    *(f'k={k}' for k in _NEIGHBOURS),
    'all',
    'product_in_all',
    'k=10_in_all',
  ),
  pairs=_pairs,
  groups=_groups,
  tolerances=dict.fromkeys(
    ('all', *(f'k={k}' for k in _NEIGHBOURS), 'k=10_in_all'), 1e-3
  ),
  build=build,
)
