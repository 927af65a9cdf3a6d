"""FedMLH's lemmas and its theorem on the divergence of clients."""

import numpy as np
import pytest
import scipy.sparse

from tff_xc.data import client_data
from tff_xc.data import hashing
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.data import sparse
from tff_xc.measure import hashed_labels

CONFIGURATIONS = [
  (3_993, 4, 250, 112),
  (30_938, 4, 1_000, 313),
  (131_073, 4, 4_000, 644),
  (312_330, 8, 5_000, 32),
]


@pytest.mark.parametrize(
  ('labels', 'tables', 'buckets', 'least'), CONFIGURATIONS
)
def test_lemma_2_holds_in_the_papers_configurations(
  labels, tables, buckets, least
):
  found = hashed_labels.least_buckets(labels, tables, 0.05)
  assert abs(found - least) <= 1  # The paper's numbers are rounded.
  assert buckets >= found
  assert hashed_labels.total_collisions(labels, tables, buckets) == 0
  assert hashed_labels.total_collisions(1000, 2, 10) >= 900


def test_lemma_1_over_many_tables():
  """The mean of a label's bucket over 400 hash functions."""
  counts = np.random.default_rng(0).integers(1, 200, 300)
  expected = hashed_labels.expected_positives(counts, 20)
  tables = 400
  found = np.zeros(300)
  for seed in range(tables):
    of_bucket = hashed_labels.bucket_counts(counts, seed, 20)
    found += of_bucket[hashing.buckets(np.arange(300), seed, 20)]
  np.testing.assert_allclose(found / tables, expected, rtol=0.05)
  assert (expected > counts).all()


def divergence(p, q):
  return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a)


def test_divergences_are_those_of_the_definition():
  counts = np.array([[3, 0, 1, 0], [1, 1, 1, 0], [0, 9, 0, 0]])
  found = hashed_labels.divergences(counts, smoothing=0.5)
  everything = counts.sum(0) / counts.sum()
  shares = [(c + 0.5 * everything) / (c.sum() + 0.5) for c in counts]
  for i in range(3):
    for j in range(3):
      wanted = divergence(shares[i], shares[j])
      assert found[i, j] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize('size', [2, 10, 50])
def test_theorem_2_on_clients_with_few_labels(size):
  random = np.random.default_rng(1)
  counts = random.integers(0, 30, [8, 400]) * (random.random([8, 400]) < 0.05)
  before = hashed_labels.divergences(counts)
  for seed in range(4):
    hashed = hashed_labels.bucket_counts(counts, seed, size)
    np.testing.assert_array_equal(hashed.sum(1), counts.sum(1))
    after = hashed_labels.divergences(hashed)
    assert (after <= before + 1e-12).all()
  off = ~np.eye(8, dtype=bool)
  assert after[off].mean() < 0.9 * before[off].mean()


@pytest.fixture
def dataset():
  """80 examples of 30 labels with 3 clients; the last ten are with nobody."""
  random = np.random.default_rng(2)
  y = random.random([80, 30]) < 0.1
  y[:, 3] = False
  y[0, 5] = True
  labels = scipy.sparse.csr_matrix(y)
  clients = partition.of_owners(np.arange(70) % 3)
  return client_data.FederatedDataset(
    name='small',
    num_classes=30,
    train=client_data.PartitionedClientData(
      pool.in_memory(np.zeros([80, 1], np.float32), labels), clients
    ),
    propensity=sparse.Propensity(y.sum(axis=0), 80),
  )


def test_a_sets_theory_is_that_of_plain_loops(dataset):
  found = hashed_labels.theory(dataset, num_tables=2, num_buckets=4)
  y = dataset.train.pool.y.toarray()
  for table in range(2):
    bucket = hashing.buckets(np.arange(30), table, 4)
    for label in range(30):
      others = y[:, bucket == bucket[label]]
      assert found.observed[table, label] == others.any(axis=1).sum()
    summed = [[c[bucket == b].sum() for b in range(4)] for c in client_rows(y)]
    np.testing.assert_allclose(
      found.of_buckets[table], hashed_labels.divergences(np.array(summed))
    )
  np.testing.assert_array_equal(found.client_counts, client_rows(y))
  assert (found.observed.max(axis=0) >= y.sum(axis=0)).all()
  of_labels, of_buckets = found.pairs
  assert of_labels.shape == of_buckets.shape == (2 * 3 * 2,)
  assert of_labels[1] == of_labels[7] == found.of_labels[0, 2]
  assert of_buckets[7] == found.of_buckets[1, 0, 2]
  assert (of_buckets < of_labels).all()


def client_rows(y):
  return np.stack(
    [y[:70][np.arange(70) % 3 == k].sum(axis=0) for k in range(3)]
  )
