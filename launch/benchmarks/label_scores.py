"""FedMLH's prediction: the 5 best of 312,330 labels hashed into 8 tables.

Compares what evaluation does (logits of all buckets, log sigmoids, label scores,
the 5 best) to plain NumPy, and to the floor: the product that gives the logits,
and the additions of the scores, of rows in order and without their ids.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_K = 5
_SCORES = ('logsigmoid', 'logit')
# The most scores in memory at once, as in `tff_xc.measure.best_labels`.
_AT_ONCE = 2**25
# Labels of which the floor adds scores at once: these stay in a core's cache.
_PIECE = 64


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a prediction.

  Attributes:
    num_classes: n.
    tables: R.
    buckets: B.
    dim: length of each table's embeddings.
    examples: examples of a round.
  """

  num_classes: int = 312_330
  tables: int = 8
  buckets: int = 5_000
  dim: int = 1_000
  examples: int = 256


def make_arrays(settings: Settings):
  """Returns (embeddings [examples, R, dim], table [R B, dim + 1]), float32."""
  import numpy as np

  random = np.random.default_rng(0)
  shape = [settings.examples, settings.tables, settings.dim]
  embeddings = np.maximum(random.standard_normal(shape, np.float32), 0)
  shape = [settings.tables * settings.buckets, settings.dim + 1]
  uniform = 2 * random.random(shape, np.float32) - 1
  return embeddings, uniform * np.float32(settings.dim**-0.5)


class Predictions:
  """Finds the same examples' best labels again and again, as its rounds."""

  def __init__(self, function, settings: Settings, score: str):
    """Keeps the arguments.

    Args:
      function: (embeddings, table) -> int [examples, k], the best labels.
      settings: the sizes.
      score: 'logsigmoid' or 'logit', for the check.
    """
    self.arrays = make_arrays(settings)
    self._function, self._settings, self._score = function, settings, score
    self._report = {}

  def run(self) -> None:
    self.best = self._function(*self.arrays)

  def report(self) -> dict:
    """Returns the mean score of the labels found, in double precision."""
    import numpy as np

    if not self._report:
      embeddings, table = map(np.asarray, self.arrays)
      rows = buckets(self._settings, self.best)
      scores = np.zeros(self.best.shape)
      for r, of_table in enumerate(rows):
        of_table = table[of_table + r * self._settings.buckets]
        logits = np.einsum(
          'ekd,ed->ek', np.float64(of_table[..., :-1]), embeddings[:, r]
        )
        scores += transformed(logits + of_table[..., -1], self._score)
      mean = float(scores.mean()) / self._settings.tables
      self._report = {'check': {f'best_{self._score}': mean}}
    return self._report


def transformed(logits, score: str):
  """Returns what of the logits is averaged."""
  import numpy as np

  return logits if score == 'logit' else -np.logaddexp(0, -logits)


def buckets(settings: Settings, labels):
  """Returns int32 [R, ...], the buckets of labels int [...] in each table."""
  import numpy as np

  from tff_xc.data import hashing

  flat = np.ravel(labels)
  hashed = [
    hashing.buckets(flat, r, settings.buckets) for r in range(settings.tables)
  ]
  return np.reshape(hashed, [settings.tables, *np.shape(labels)])


def _ours(settings: Settings, score: str) -> Predictions:
  """Returns the search of an evaluation, as a run has set up its threads."""
  import tensorflow as tf

  from tff_xc import heads
  from tff_xc.measure import evaluation
  from tff_xc.runtime import registry

  registry.install('in_process')
  n = settings.num_classes
  head = heads.HashedHead(n, settings.tables, settings.buckets, score)
  search = evaluation.LabelSearch(head, n)
  made = Predictions(
    lambda embeddings, table: search(embeddings, table, _K), settings, score
  )
  embeddings, table = made.arrays
  made.arrays = embeddings, tf.constant(table)
  return made


def _numpy(settings: Settings, score: str) -> Predictions:
  """Returns the gathers and sums of a few lines of NumPy."""
  import numpy as np

  hashed = buckets(settings, np.arange(settings.num_classes))

  def of_block(embeddings, table):
    scores = 0.0
    for r, of_labels in enumerate(hashed):
      rows = table.reshape(settings.tables, settings.buckets, -1)[r]
      logits = embeddings[:, r] @ rows[:, :-1].T + rows[:, -1]
      scores += transformed(logits, score)[:, of_labels]
    return np.argpartition(-scores, _K - 1)[:, :_K]

  return Predictions(_in_blocks(of_block, settings), settings, score)


def _floor(settings: Settings) -> Predictions:
  """Returns the work that cannot be avoided; it finds no labels."""
  import numpy as np
  import tensorflow as tf

  from tff_xc.runtime import registry

  registry.install('in_process')  # One thread for the product, as in ours.
  shape = [settings.tables, settings.buckets, settings.dim]
  product = tf.function(
    lambda embeddings, table: tf.matmul(
      tf.reshape(table, shape), tf.transpose(embeddings, [1, 2, 0])
    ),
    reduce_retracing=True,
  )

  def of_block(embeddings, table):
    pieces = [z[:_PIECE] for z in product(embeddings, table).numpy()]
    scores = np.empty_like(pieces[0])
    for _ in range(0, settings.num_classes, _PIECE):
      np.copyto(scores, pieces[0])
      for piece in pieces[1:]:
        scores += piece
    return np.zeros([len(embeddings), 0], int)

  made = Predictions(_in_blocks(of_block, settings), settings, 'logit')
  embeddings, table = made.arrays
  made.arrays = embeddings, tf.constant(table[:, :-1])
  made.report = dict  # Nothing to compare.
  return made


def _in_blocks(function, settings: Settings):
  """Returns the function of all examples that takes a block at a time."""
  import numpy as np

  at_once = max(1, _AT_ONCE // settings.num_classes)
  return lambda embeddings, table: np.concatenate(
    [
      function(embeddings[first : first + at_once], table)
      for first in range(0, len(embeddings), at_once)
    ]
  )


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  name, score = spec.name_and_size(contender)
  if name == 'floor':
    return _floor(settings)
  return {'ours': _ours, 'numpy': _numpy}[name](settings, score)


def _contenders(settings: Settings) -> list[str]:
  del settings
  both = [f'{name}@{score}' for score in _SCORES for name in ('ours', 'numpy')]
  return ['floor', *both]


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  wanted = [('ours@logsigmoid', 'ours@logit')]
  for score in _SCORES:
    wanted.append((f'ours@{score}', f'numpy@{score}'))
    wanted.append((f'ours@{score}', 'floor'))
  return spec.pairs_of(names, *wanted)


def _groups(names: Sequence[str]) -> list[list[str]]:
  return [
    [name for name in names if spec.name_and_size(name)[1] == score]
    for score in _SCORES
  ]


BENCHMARK = spec.Benchmark(
  name='label_scores',
  summary='the 5 best of 312,330 labels in 8 hash tables, for 256 examples',
  settings=Settings,
  small={
    'num_classes': 200,
    'tables': 3,
    'buckets': 20,
    'dim': 4,
    'examples': 6,
  },
  contenders=_contenders,
  pairs=_pairs,
  groups=_groups,
  tolerances={f'best_{score}': 1e-5 for score in _SCORES},
  build=build,
)
