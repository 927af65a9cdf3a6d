"""TurboSVM-FL's server step: machines of all pairs of classes, and spread-out.

Compares it to the same step around scikit-learn, and to the floor: the inner
products of all clients' class rows. Growth, each in one run:

  python -m launch.benchmark svm --dim=64 --classes=62,964,2028 --passes=3
  python -m launch.benchmark svm --dim=64 --clients=8,64,512 --passes=3
  python -m launch.benchmark svm --dim=64 --classes=10000 --drawn=1000 --passes=3
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

# As published; C is that of the first round.
_BOUND, _TOLERANCE, _STEPS = 1.0, 1e-3, 50
_LEARNING_RATE, _EPSILON = 0.01, 1e-5
# A client's rows differ from the common ones by this part of their range.
_NOISE = 0.3
_EXAMPLES = 227
_BLOCK = 2048
# scikit-learn's step takes up to 40 ns for each number of the points of all pairs,
# and up to 27 bytes for each number of their normals. Beyond these it takes more
# than 2 minutes, or 4 GB; 2,028 classes x 65 numbers x 8 clients are just below.
_SKLEARN_POINTS, _SKLEARN_NORMALS = 3e9, 1.5e8


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a step; every number of classes with every number of clients.

  Attributes:
    classes: values of n.
    clients: clients of a round.
    dim: embedding length; a row has a bias, too.
    drawn: the most classes with machines; of more, so many are drawn.
  """

  classes: tuple[int, ...] = (62,)
  clients: tuple[int, ...] = (8,)
  dim: int = 2048
  drawn: int = 10_000


def _drawn(settings: Settings, classes: int) -> int:
  return min(max(settings.drawn, 2), classes)


def make_arrays(settings: Settings, classes: int, clients: int):
  """Returns what the clients sent, the same in every process.

  Returns:
    (rows float32 [clients, n, dim + 1], float32 [clients], their examples). Row
    and bias start as PyTorch draws them, from U(-1, 1) / sqrt(dim).
  """
  import numpy as np

  random = np.random.default_rng(0)
  shape = [classes, settings.dim + 1]
  uniform = lambda: 2 * random.random(shape, np.float32) - 1
  common = uniform()
  rows = np.empty([clients, *shape], np.float32)
  for of_client in rows:
    of_client[:] = (common + _NOISE * uniform()) * settings.dim**-0.5
  weights = random.integers(1, _EXAMPLES, clients).astype(np.float32)
  return rows, weights


class OurSteps:
  """Takes the first step, again and again, as its rounds."""

  def __init__(self, rows, weights, drawn: int):
    """Traces the step.

    Args:
      rows: float32 [M, n, row_dim] of M clients.
      weights: float32 [M], their examples.
      drawn: the number of classes with machines. The first rows become those of
        the classes that are drawn.
    """
    import numpy as np
    import tensorflow as tf

    from tff_xc.round import folding

    clients, classes, row_dim = rows.shape
    step = _make_step(classes, drawn)
    self._seed = tf.zeros([2], tf.int32)
    if drawn < classes:
      ids = step.drawn(self._seed).numpy()
      rest = np.setdiff1d(np.arange(classes), ids)
      self._places = np.concatenate([ids, rest])
      rows = rows[:, np.argsort(self._places)]
    else:
      self._places = np.arange(classes)
    self._merged = folding.StackedRows(
      tf.constant(np.tile(np.arange(classes, dtype=np.int32), clients)),
      tf.constant(rows.reshape(-1, row_dim)),
      tf.constant(np.repeat(weights, classes)),
    )
    self._table = tf.zeros([classes, row_dim])
    self._state = step.initialize(tf.TensorSpec([classes, row_dim]))
    self._function = _traced(step, self._state, row_dim)

  def run(self) -> None:
    _, new, self._measured = self._function(
      self._state, self._table, self._seed, self._merged
    )
    self._new = new.numpy()

  @property
  def new(self):
    """The new rows [n, row_dim], in the order of the rows that were given."""
    return self._new[self._places]

  def report(self) -> dict:
    names = 'support_vectors', 'pair_similarity'
    return {'check': {name: float(self._measured[name]) for name in names}}


def _make_step(classes: int, drawn: int):
  from tff_xc.algorithms import svm
  from tff_xc.round import optimizers

  return svm.SupportVectors(
    classes,
    svm.Bound(_BOUND, 'constant'),
    subset=drawn,
    tolerance=_TOLERANCE,
    steps=_STEPS,
    optimizer=optimizers.TorchAdam(_LEARNING_RATE, epsilon=_EPSILON),
  )


def _traced(step, state, row_dim: int):
  """Returns the step for any number of clients, as in a round."""
  import tensorflow as tf

  from tff_xc.round import folding
  from tff_xc.round import server

  table = tf.TensorSpec([None, row_dim])
  rows = folding.StackedRows(
    tf.TensorSpec([None], tf.int32), table, tf.TensorSpec([None])
  )
  specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, state)

  @tf.function(
    input_signature=[specs, table, tf.TensorSpec([2], tf.int32), rows],
    autograph=False,
  )
  def take(state, table, seed, merged):
    context = server.StepContext(seed, tf.constant(0), merged, lambda: table)
    return step.next(state, table, context)

  return take


class Products:
  """Computes the inner products of rows [R, row_dim], each once, in blocks."""

  def __init__(self, rows):
    self._rows = rows

  def run(self) -> None:
    for first in range(0, len(self._rows), _BLOCK):
      block = self._rows[first : first + _BLOCK]
      for second in range(first, len(self._rows), _BLOCK):
        block @ self._rows[second : second + _BLOCK].T

  def report(self) -> dict:
    return {}


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender 'NAME@CLASSESxCLIENTS', in its own process."""
  name, size = spec.name_and_size(contender)
  classes, clients = _numbers(size)
  rows, weights = make_arrays(settings, classes, clients)
  drawn = _drawn(settings, classes)
  if name == 'product':
    return Products(rows[:, :drawn].reshape(-1, rows.shape[-1]))
  if name == 'sklearn':
    from launch.benchmarks import svm_sklearn

    options = svm_sklearn.Options(
      _BOUND, _TOLERANCE, _STEPS, _LEARNING_RATE, _EPSILON
    )
    return svm_sklearn.Steps(rows, weights, drawn, options)
  from tff_xc.runtime import registry

  if name == 'ours_1':
    # Before TensorFlow starts its threads.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
  registry.install('in_process')  # Sets one thread for each op.
  return OurSteps(rows, weights, drawn)


def _numbers(size: str) -> tuple[int, int]:
  classes, clients = size.split('x')
  return int(classes), int(clients)


def _sizes(settings: Settings) -> list[str]:
  return [f'{n}x{m}' for n in settings.classes for m in settings.clients]


def _too_large(settings: Settings) -> list[str]:
  """Returns the sizes that take scikit-learn too long, or too much memory."""

  def is_too_large(classes, clients):
    drawn = _drawn(settings, classes)
    normals = drawn * (drawn - 1) / 2 * (settings.dim + 1)
    return normals * clients > _SKLEARN_POINTS or normals > _SKLEARN_NORMALS

  return [size for size in _sizes(settings) if is_too_large(*_numbers(size))]


def _contenders(settings: Settings) -> list[str]:
  left_out = _optional(settings)
  names = 'product', 'ours', 'ours_1', 'sklearn'
  wanted = [f'{name}@{size}' for size in _sizes(settings) for name in names]
  return [name for name in wanted if name not in left_out]


def _optional(settings: Settings) -> list[str]:
  return [f'sklearn@{size}' for size in _too_large(settings)]


def _notes(settings: Settings) -> list[str]:
  return [
    f'{name} runs only if named: it takes more than 2 minutes or 4 GB'
    for name in _optional(settings)
  ]


def _sizes_of(names: Sequence[str]) -> list[str]:
  return list(dict.fromkeys(spec.name_and_size(name)[1] for name in names))


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  sizes = _sizes_of(names)
  wanted = ('ours', 'product'), ('sklearn', 'ours'), ('ours_1', 'ours')
  return spec.pairs_of(
    names,
    *((f'{a}@{size}', f'{b}@{size}') for size in sizes for a, b in wanted),
    *((f'ours@{size}', f'ours@{sizes[0]}') for size in sizes[1:]),
  )


def _groups(names: Sequence[str]) -> list[list[str]]:
  return [
    [f'{name}@{size}' for name in ('ours', 'ours_1', 'sklearn')
     if f'{name}@{size}' in names]
    for size in _sizes_of(names)
  ]  # fmt: skip


BENCHMARK = spec.Benchmark(
  name='svm',
  summary="TurboSVM-FL's server step, 62 classes of 2,048 from 8 clients",
  settings=Settings,
  small={'classes': (5,), 'clients': (4,), 'dim': 6},
  contenders=_contenders,
  optional=_optional,
  notes=_notes,
  pairs=_pairs,
  groups=_groups,
  tolerances={'support_vectors': 0.005, 'pair_similarity': 1e-3},
  build=build,
)
