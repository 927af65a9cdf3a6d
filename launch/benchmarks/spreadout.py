"""Compares FedAwS's spreadout step to the matrix product that dominates it."""

import dataclasses

from launch.benchmarks import spec

_NEIGHBOURS = (10, 100, 500)
_STEP_SIZE = 0.01
_BLOCK = 8192
# For this number of rows, neighbours among all rows are also found in NumPy.
_CHECKED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a step."""

  classes: int = 4096  # C', the number of classes of the round's participants.
  dim: int = 512  # The length of a row.
  # N; a further contender searches neighbours among all n classes.
  num_classes: int = 670_091


def _product(rows, table):
  """Computes every similarity once, in blocks, and does not use them."""
  import tensorflow as tf

  def of_block(first):
    block = table[first : first + _BLOCK]
    return tf.reduce_max(tf.matmul(rows, block, transpose_b=True))

  firsts = tf.range(0, tf.shape(table)[0], _BLOCK)
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


def build(contender: str, settings: Settings):
  """Builds a contender, in its own process.

  It runs a graph of the class rows in one call. The products report what the
  others find, computed in NumPy.
  """
  from tff_xc.encoders import layers
  from tff_xc.runtime import registry

  if not contender.startswith('product'):
    registry.install('in_process')  # Sets one thread for each op.
  import tensorflow as tf

  from tff_xc.algorithms import spreadout
  from tff_xc.round import nearest

  draw = lambda count: layers.unit_norm(
    tf.random.stateless_normal([count, settings.dim], seed=[0, 0])
  )
  rows = table = draw(settings.classes)
  if contender.endswith('_in_all'):
    table = tf.concat([rows, draw(settings.num_classes)[settings.classes :]], 0)

  def nearest_in_all(rows, table):
    ids = tf.range(tf.shape(rows)[0])
    best, _ = nearest.nearest(rows, ids, table, 10)
    return tf.reduce_sum(best[:_CHECKED_ROWS])

  def of_step(rows, table):
    del table
    return tf.norm(step(rows) - rows)

  def expected():
    if contender == 'product':
      lengths = {name: _length_of_step(rows.numpy(), k) for name, k in STEPS}
      return lengths
    some = rows[:_CHECKED_ROWS].numpy()
    return {'k=10_in_all': float(_nearest(some, table.numpy(), 10)[0].sum())}

  if contender.startswith('product'):
    function = tf.function(_product)
  elif contender == 'k=10_in_all':
    function = tf.function(nearest_in_all)
  else:
    step = spreadout.Spreadout(_STEP_SIZE, dict(STEPS)[contender])
    function = tf.function(of_step)

  def run():
    found = float(function(rows, table).numpy())
    is_product = contender.startswith('product')
    return {'check': expected if is_product else {contender: found}}

  return run


STEPS = (*((f'k={k}', k) for k in _NEIGHBOURS), ('all', 0))
_NAMES = tuple(name for name, _ in STEPS)

BENCHMARK = spec.Benchmark(
  name='spreadout',
  summary="FedAwS's spreadout step of 4,096 classes, and neighbors in 670,091",
  settings=Settings,
  small={'classes': 20, 'dim': 4, 'num_classes': 50},
  contenders=lambda settings: (
    'product',
    *_NAMES,
    'product_in_all',
    'k=10_in_all',
  ),
  ratios=(
    *((name, 'product') for name in _NAMES),
    ('k=10_in_all', 'product_in_all'),
  ),
  groups=(('product', *_NAMES), ('product_in_all', 'k=10_in_all')),
  tolerances=dict.fromkeys((*_NAMES, 'k=10_in_all'), 1e-3),
  build=build,
)
