"""FedAwS's spreadout step beside the matrix product that it rests on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_NEIGHBOURS = (10, 100, 500)


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a step.

  Attributes:
    classes: of the round's participants, C'.
    dim: floats of a row.
    num_classes: n; neighbours among all of them are searched, too.
  """

  classes: int = 4096
  dim: int = 512
  num_classes: int = 670_091


class Calls:
  """Rounds of a graph of the rows of classes, in one call."""

  def __init__(self, function, *arguments):
    import tensorflow as tf

    self._function, self._arguments = tf.function(function), arguments

  def run(self) -> None:
    import numpy as np

    self._sum = float(np.asarray(self._function(*self._arguments)))

  def report(self) -> dict:
    return {'check': {'sum': self._sum}}


def _product(rows, table):
  """Every similarity once, in blocks, and nothing done with them."""
  import tensorflow as tf

  def of_block(first):
    block = table[first : first + 8192]
    return tf.reduce_max(tf.matmul(rows, block, transpose_b=True))

  firsts = tf.range(0, tf.shape(table)[0], 8192)
  return tf.reduce_max(
    tf.map_fn(of_block, firsts, fn_output_signature=tf.float32)
  )


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  from tff_xc.runtime import registry

  if not contender.startswith('product'):
    registry.install('in_process')  # Its threads: one an op.
  import tensorflow as tf

  from tff_xc import classifier
  from tff_xc.round import spreadout

  draw = lambda count: classifier.unit_norm(
    tf.random.stateless_normal([count, settings.dim], seed=[0, 0])
  )
  rows = draw(settings.classes)
  if contender == 'product':
    return Calls(_product, rows, rows)
  if contender.endswith('_in_all'):
    table = tf.concat([rows, draw(settings.num_classes)[settings.classes :]], 0)
    ids = tf.range(settings.classes)
    nearest = lambda rows, table: tf.reduce_max(
      spreadout.nearest(rows, ids, table, 10)[0]
    )
    of_all = _product if contender == 'product_in_all' else nearest
    return Calls(of_all, rows, table)
  k = 0 if contender == 'all' else int(contender.removeprefix('k='))
  step = spreadout.Spreadout(0.01, k)
  return Calls(lambda rows: tf.reduce_sum(step(rows)), rows)


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
  groups=lambda names: [],
  tolerances={},
  build=build,
)
