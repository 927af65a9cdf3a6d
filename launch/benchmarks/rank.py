"""Compares exact P@k, nDCG@k and PSP@k over many classes with a plain matrix product."""

import numpy as np

from datasets.procedural import words as sparse_words
from tff_xc.measure import ranking, search

_BLOCK = 8192


def build(contender, sizes):
  """Builds a contender in its own process.

  Both contenders return the best score, so that the benchmark can compare their results.
  """
  random = np.random.default_rng(0)
  embeddings = random.standard_normal([sizes.examples, sizes.dim], np.float32)
  table = random.standard_normal([sizes.num_classes, sizes.dim], np.float32)

  def product():
    blocks = [table[i : i + _BLOCK] for i in range(0, len(table), _BLOCK)]
    return max((embeddings @ block.T).max() for block in blocks)

  def exact():
    top = search.top_k(embeddings, table, 5)
    ranking.label_set_scores(top, dataset.test.labels, dataset.propensity)
    return (embeddings * table[top[:, 0]]).sum(axis=1).max()

  if contender == 'exact':
    dataset = sparse_words.load(
      num_classes=sizes.num_classes, examples_per_class=1.0, test_examples=sizes.examples
    )

  def run():
    best = float(product() if contender == 'product' else exact())
    return {'check': lambda: {'best': best}}

  return run
