"""Compares exact P@k, nDCG@k and PSP@k over many classes to a plain product."""

import dataclasses

from launch.benchmarks import spec

_BLOCK = 8192


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of an evaluation."""

  # Test examples, with the label sets of the sparse-words set.
  examples: int = 1024
  num_classes: int = 670_091  # N.
  dim: int = 512  # The length of a row.


def _product(embeddings, table):
  """Returns the best score of a float32 product, computed in blocks."""
  return max(
    (embeddings @ table[first : first + _BLOCK].T).max()
    for first in range(0, len(table), _BLOCK)
  )


def _exact(settings: Settings):
  from datasets.procedural import words as sparse_words
  from tff_xc.measure import ranking
  from tff_xc.measure import search

  dataset = sparse_words.load(
    num_classes=settings.num_classes,
    examples_per_class=1.0,
    test_examples=settings.examples,
  )

  def best(embeddings, table):
    top = search.top_k(embeddings, table, 5)
    ranking.label_set_scores(top, dataset.test.y, dataset.propensity)
    return (embeddings * table[top[:, 0]]).sum(axis=1).max()

  return best


def build(contender: str, settings: Settings):
  """Builds a contender, in its own process."""
  import numpy as np

  function = _product if contender == 'product' else _exact(settings)
  random = np.random.default_rng(0)
  embeddings, table = (
    random.standard_normal([count, settings.dim], np.float32)
    for count in (settings.examples, settings.num_classes)
  )
  return lambda: {'check': {'best': float(function(embeddings, table))}}


BENCHMARK = spec.Benchmark(
  name='rank',
  summary='exact P@k of 1,024 examples over 670,091 classes, rows of 512',
  settings=Settings,
  small={'examples': 4, 'num_classes': 50, 'dim': 4},
  contenders=lambda settings: ('product', 'exact'),
  ratios=(('exact', 'product'),),
  tolerances={'best': 1e-4},
  build=build,
)
