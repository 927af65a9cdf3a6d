"""Compares exact MAP@10 and MAP@R of a retrieval test to a plain product."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_BLOCK = 2**22


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a retrieval test; those of Stanford Online Products by default.

  Attributes:
    examples: images, each a query against all others.
    num_classes: their classes, about as many images each.
    dim: the length of an embedding.
  """

  examples: int = 60_502
  num_classes: int = 11_316
  dim: int = 64


class Retrieval:
  """Embeddings that lie around the centres of their classes."""

  def __init__(self, settings: Settings):
    import numpy as np

    random = np.random.default_rng(0)
    self._labels = np.arange(settings.examples) % settings.num_classes
    centres = random.standard_normal(
      [settings.num_classes, settings.dim], np.float32
    )
    x = random.standard_normal([settings.examples, settings.dim], np.float32)
    x += centres[self._labels]
    self._x = x / np.linalg.norm(x, axis=1, keepdims=True)
    self._at_once = max(1, _BLOCK // settings.examples)


class Product(Retrieval):
  """The float32 product of all embeddings, block by block, is thrown away."""

  def run(self) -> None:
    import numpy as np

    x = self._x
    scores = np.empty([self._at_once, len(x)], np.float32)
    for first in range(0, len(x), self._at_once):
      queries = x[first : first + self._at_once]
      np.matmul(queries, x.T, out=scores[: len(queries)])

  def report(self) -> dict:
    import numpy as np

    similarities = self._x[: self._at_once] @ self._x.T
    np.fill_diagonal(similarities, -1.0)
    return {'check': {'nearest': float(similarities.max(axis=1).mean())}}


class Exact(Retrieval):
  """MAP@10 and MAP@R, as an evaluation measures them."""

  def run(self) -> None:
    from tff_xc.measure import ranking

    ranking.retrieval_scores(self._x, self._labels, _BLOCK)

  def report(self) -> dict:
    from tff_xc.measure import search

    _, found = next(search.nearest_blocks(self._x, 10, _BLOCK))
    queries = min(len(found), self._at_once)
    nearest = self._x[found[:queries, 0]]
    similarities = (self._x[:queries] * nearest).sum(axis=1)
    return {'check': {'nearest': float(similarities.mean())}}


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  return {'product': Product, 'exact': Exact}[contender](settings)


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(names, ('exact', 'product'))


def _notes(settings: Settings) -> list[str]:
  del settings
  return [
    'exact: MAP@10 and MAP@R of all embeddings, each a query against all others',
    'product: the floor, the float32 product of all embeddings with all, which is'
    ' thrown away',
  ]


BENCHMARK = spec.Benchmark(
  name='retrieve',
  summary="exact MAP@10 and MAP@R of SOP's 60,502 images, to the plain product",
  settings=Settings,
  small={'examples': 300, 'num_classes': 50, 'dim': 8},
  contenders=lambda settings: ('product', 'exact'),
  notes=_notes,
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'nearest': 1e-3},
  build=build,
)
