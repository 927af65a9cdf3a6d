"""Compares exact P@k, nDCG@k and PSP@k over many classes to a plain product."""

from launch.benchmarks import harness

_BLOCK = 8192


def build(contender, sizes):
  """Builds a contender, in its own process; both find the best score."""
  import numpy as np

  from datasets.procedural import words as sparse_words
  from tff_xc.measure import ranking, search

  random = np.random.default_rng(0)
  embeddings = random.standard_normal([sizes.examples, sizes.dim], np.float32)
  table = random.standard_normal([sizes.num_classes, sizes.dim], np.float32)

  def product():
    blocks = [table[i : i + _BLOCK] for i in range(0, len(table), _BLOCK)]
    return max((embeddings @ block.T).max() for block in blocks)

  def exact():
    top = search.top_k(embeddings, table, 5)
    ranking.label_set_scores(top, dataset.test.y, dataset.propensity)
    return (embeddings * table[top[:, 0]]).sum(axis=1).max()

  if contender == 'exact':
    dataset = sparse_words.load(
      num_classes=sizes.num_classes, examples_per_class=1.0, test_examples=sizes.examples
    )

  def run():
    best = float(product() if contender == 'product' else exact())
    return {'check': lambda: {'best': best}}

  return run


BENCHMARK = harness.Benchmark(
  name='rank',
  summary='exact P@k of 1,024 examples over 670,091 classes, rows of 512',
  sizes={
    'examples': 1024,  # Test examples, with the label sets of the sparse-words set.
    'num_classes': 670_091,  # N.
    'dim': 512,  # The length of a row.
  },
  small={'examples': 4, 'num_classes': 50, 'dim': 4},
  names=('product', 'exact'),
  build=build,
  ratios=(('exact', 'product'),),
  same=('product', 'exact'),
  tolerances={'best': 1e-4},
)
