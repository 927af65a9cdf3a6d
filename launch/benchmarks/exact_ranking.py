"""Compares exact P@k, nDCG@k and PSP@k over many classes to a plain product."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_BLOCK = 8192


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of an evaluation.

  Attributes:
    examples: test examples, with the label sets of the sparse-words set.
    num_classes: n.
    dim: the length of a row.
  """

  examples: int = 1024
  num_classes: int = 670_091
  dim: int = 512


class Evaluations:
  """Runs a function of embeddings and table as its rounds."""

  def __init__(self, function, settings: Settings):
    import numpy as np

    random = np.random.default_rng(0)
    draw = lambda count: random.standard_normal(
      [count, settings.dim], np.float32
    )
    self._embeddings, self._table = (
      draw(settings.examples),
      draw(settings.num_classes),
    )
    self._function = function

  def run(self) -> None:
    self._best = float(self._function(self._embeddings, self._table))

  def report(self) -> dict:
    return {'check': {'best': self._best}}


def _product(embeddings, table):
  """Returns the best score of a float32 product, computed in blocks."""
  best = -float('inf')
  for first in range(0, len(table), _BLOCK):
    best = max(best, (embeddings @ table[first : first + _BLOCK].T).max())
  return best


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  if contender == 'product':
    return Evaluations(_product, settings)
  from datasets.procedural import words as sparse_words
  from tff_xc.measure import ranking
  from tff_xc.measure import search

  dataset = sparse_words.load(
    num_classes=settings.num_classes,
    examples_per_class=1.0,
    test_examples=settings.examples,
  )
  labels, propensity = dataset.test.y, dataset.propensity

  def exact(embeddings, table):
    top = search.top_k(embeddings, table, 5)
    ranking.label_set_scores(top, labels, propensity)
    best = (embeddings * table[top[:, 0]]).sum(axis=1)
    return best.max()

  return Evaluations(exact, settings)


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(names, ('exact', 'product'))


BENCHMARK = spec.Benchmark(
  name='rank',
  summary='exact P@k of 1,024 examples over 670,091 classes, rows of 512',
  settings=Settings,
  small={'examples': 4, 'num_classes': 50, 'dim': 4},
  contenders=lambda settings: ('product', 'exact'),
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'best': 1e-4},
  build=build,
)
