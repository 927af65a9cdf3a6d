"""FedMLH's lemmas, and its theorem about the divergence of clients."""

import numpy as np
import pytest
import scipy.sparse

from tff_xc.data import hashing
from tff_xc.measure import hashed_labels


@pytest.mark.parametrize(
  ('labels', 'tables', 'buckets', 'least'),
  [
    (3_993, 4, 250, 112),
    (30_938, 4, 1_000, 313),
    (131_073, 4, 4_000, 644),
    (312_330, 8, 5_000, 32),
  ],
)
def test_lemma_2_holds_in_the_papers_configurations(labels, tables, buckets, least):
  found = hashed_labels.least_buckets(labels, tables, 0.05)
  assert abs(found - least) <= 1  # The paper rounds its numbers.
  assert buckets >= found
  assert hashed_labels.total_collisions(labels, tables, buckets) == 0
  assert hashed_labels.total_collisions(1000, 2, 10) >= 900


def test_lemma_1_over_many_tables():
  """Computes the mean number of positives in a label's bucket over 400 hash functions."""
  counts = np.random.default_rng(0).integers(1, 200, 300)
  expected = hashed_labels.expected_positives(counts, 20)
  tables = 400
  found = np.zeros(300)
  for seed in range(tables):
    of_bucket = hashed_labels.bucket_counts(counts, seed, 20)
    found += of_bucket[hashing.buckets(np.arange(300), seed, 20)]
  np.testing.assert_allclose(found / tables, expected, rtol=0.05)
  assert (expected > counts).all()
  # The formula in the paper is a bound: n_j + (N - n_j) / B - N / B^2.
  bound = hashed_labels.least_positives(counts, 20)
  wanted = [n + (counts.sum() - n) / 20 - counts.sum() / 400 for n in counts]
  np.testing.assert_allclose(bound, wanted)
  assert ((counts < bound) & (bound < expected)).all()
  chosen = counts < 100
  drawn = hashed_labels.drawn_positives(counts, chosen, 20, tables)
  assert drawn.mean() == pytest.approx(found[chosen].mean() / tables)
  assert drawn.mean() > bound[chosen].mean()


def test_examples_that_count_once_are_fewer_than_lemma_1_says():
  """Examples have several labels. The mean is over 2,000 hash functions."""
  y = scipy.sparse.csr_matrix(np.random.default_rng(4).random([50, 20]) < 0.4)
  counts, ids, tables = np.asarray(y.sum(axis=0))[0], np.arange(20), 2000
  found = np.zeros(20)
  for seed in range(tables):
    of_bucket = hashed_labels.bucket_examples(y, seed, 6)
    found += of_bucket[hashing.buckets(ids, seed, 6)] / tables
  expected = hashed_labels.expected_examples(y, 6)
  np.testing.assert_allclose(found, expected, rtol=0.02)
  assert (expected < hashed_labels.least_positives(counts, 6)).all()
  alone = scipy.sparse.csr_matrix(np.eye(20, dtype=bool))  # Each example has one label.
  np.testing.assert_allclose(
    hashed_labels.expected_examples(alone, 6), hashed_labels.expected_positives(np.ones(20), 6)
  )


@pytest.mark.parametrize('kind', [np.asarray, scipy.sparse.csr_matrix])
def test_theorem_1_the_error_of_a_centroid_is_its_spread_over_its_positives(kind):
  random = np.random.default_rng(6)
  x = random.normal(size=[40, 7]) * (random.random([40, 7]) < 0.5)
  spread = x.var(axis=0, ddof=1).sum()
  for positives in (1, 3, 50):
    found = hashed_labels.centroid_error(kind(x), positives, 4000, random)
    assert found == pytest.approx(spread / positives, rel=0.08)


def test_an_average_bucket_of_amazon_titles_has_32_times_a_labels_positives():
  expected = hashed_labels.expected_positives(np.ones(131_073), 4_000).mean()
  assert 32 < hashed_labels.mean_load(131_073, 4, 4_000) == pytest.approx(expected, rel=0.01)


def divergence(p, q):
  return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a)


def test_divergences_are_those_of_the_definition():
  counts = np.array([[3, 0, 1, 0], [1, 1, 1, 0], [0, 9, 0, 0]])
  found = hashed_labels.divergences(counts, smoothing=0.5)
  everything = counts.sum(0) / counts.sum()
  shares = [(c + 0.5 * everything) / (c.sum() + 0.5) for c in counts]
  for i in range(3):
    for j in range(3):
      assert found[i, j] == pytest.approx(divergence(shares[i], shares[j]), abs=1e-12)
