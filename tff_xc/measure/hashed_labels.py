"""What hashing labels into buckets does to their counts: FedMLH's theory.

Lemma 1: a bucket has more positive examples than a label alone. Lemma 2: how
many buckets tell all labels apart. Theorem 2: clients' label distributions
become more alike.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse

from tff_xc.data import client_data
from tff_xc.data import hashing
from tff_xc.measure import ranking


def expected_positives(
  label_counts: np.ndarray, num_buckets: int
) -> np.ndarray:
  """Returns float64 [n], the expected positive examples of each label's bucket.

  Those of the label, and of every other label with probability 1 / B. An example with
  two labels of one bucket counts twice. The paper's Lemma 1 bounds the same from below,
  by (sum of the counts) / B^2 less.
  """
  counts = np.asarray(label_counts, np.float64)
  return counts + (counts.sum() - counts) / num_buckets


def least_buckets(num_labels: int, num_tables: int, failure: float) -> int:
  """Returns the B from which no two labels collide in all tables (Lemma 2).

  There are n (n - 1) / 2 pairs, and one collides in all R tables with
  probability B^-R: all are told apart with probability 1 - failure, if B is at
  least (n (n - 1) / (2 failure))^(1 / R).
  """
  pairs = num_labels * (num_labels - 1) / 2
  return math.ceil((pairs / failure) ** (1 / num_tables))


def total_collisions(num_labels: int, num_tables: int, num_buckets: int) -> int:
  """Returns how many labels share all their buckets with an earlier label."""
  ids = np.arange(num_labels)
  buckets = np.stack(
    [hashing.buckets(ids, seed, num_buckets) for seed in range(num_tables)]
  )
  return num_labels - np.unique(buckets, axis=1).shape[1]


def bucket_counts(
  label_counts: np.ndarray, seed: int, num_buckets: int
) -> np.ndarray:
  """Returns [..., B], the sums over a table's buckets of counts [..., n]."""
  counts = np.asarray(label_counts)
  buckets = hashing.buckets(np.arange(counts.shape[-1]), seed, num_buckets)
  flat = counts.reshape(-1, counts.shape[-1])
  sums = [np.bincount(buckets, row, num_buckets) for row in flat]
  return np.reshape(sums, (*counts.shape[:-1], num_buckets))


def bucket_examples(
  labels: scipy.sparse.csr_matrix, seed: int, num_buckets: int
) -> np.ndarray:
  """Returns int64 [B], the examples with a label of each of a table's buckets.

  Labels are bool [N, n]. Unlike in `bucket_counts`, an example counts once a bucket.
  """
  size, num_labels = labels.shape
  buckets = hashing.buckets(np.arange(num_labels), seed, num_buckets)
  examples = np.repeat(np.arange(size, dtype=np.int64), np.diff(labels.indptr))
  pairs = np.unique(examples * num_buckets + buckets[labels.indices])
  return np.bincount(pairs % num_buckets, minlength=num_buckets)


def divergences(counts: np.ndarray, smoothing: float = 1.0) -> np.ndarray:
  """Returns float64 [K, K], the Kullback-Leibler divergences of clients, in nats.

  Entry (i, j) is that of client i's distribution from client j's, of counts [K, n].
  Summing counts over buckets never increases it (Theorem 2). `smoothing` is added in
  total to each client's counts, spread like all clients' counts together, since the
  divergence from a distribution without one of the labels is infinite.
  """
  counts = np.asarray(counts, np.float64)
  everything = counts.sum(axis=0)
  counts = counts + smoothing * everything / everything.sum()
  shares = counts / counts.sum(axis=1, keepdims=True)
  some = everything > 0
  logs = np.log(shares[:, some])
  own = (shares[:, some] * logs).sum(axis=1)
  return np.maximum(own[:, None] - shares[:, some] @ logs.T, 0.0)


class Theory(NamedTuple):
  """What the lemmas and the theorem say of a data set, and what is so."""

  num_tables: int  # R.
  num_buckets: int  # B.
  label_counts: np.ndarray  # int64 [n], training examples with each label.
  is_frequent: np.ndarray  # bool [n].
  num_examples: int  # N.
  expected: np.ndarray  # float64 [n], see `expected_positives`.
  # int64 [R, n], examples of each label's bucket in each table.
  observed: np.ndarray
  # int64 [K, n], examples of each client with each label.
  client_counts: np.ndarray
  of_labels: np.ndarray  # float64 [K, K], see `divergences`.
  of_buckets: np.ndarray  # float64 [R, K, K].

  @property
  def pairs(self) -> tuple[np.ndarray, np.ndarray]:
    """Divergences of two clients over labels and over buckets, each [R K (K - 1)]."""
    others = ~np.eye(len(self.of_labels), dtype=bool)
    of_buckets = self.of_buckets[:, others]
    of_labels = np.broadcast_to(self.of_labels[others], of_buckets.shape)
    return of_labels.ravel(), of_buckets.ravel()


def theory(
  dataset: client_data.FederatedDataset, num_tables: int, num_buckets: int
) -> Theory:
  """Compares the theory with a set of label sets; takes memory for K n numbers."""
  labels, known = dataset.train.pool.y, dataset.propensity
  n, seeds = dataset.num_classes, range(num_tables)
  owners, owned = dataset.train.owned_labels()
  clients = len(dataset.train.client_ids)
  counts = np.bincount(owners * n + owned, minlength=clients * n)
  counts = counts.reshape(clients, n)
  bucket_of = lambda seed: hashing.buckets(np.arange(n), seed, num_buckets)
  observed = [
    bucket_examples(labels, seed, num_buckets)[bucket_of(seed)]
    for seed in seeds
  ]
  hashed = [bucket_counts(counts, seed, num_buckets) for seed in seeds]
  return Theory(
    num_tables,
    num_buckets,
    known.label_counts,
    ranking.frequent(known),
    known.num_examples,
    expected_positives(known.label_counts, num_buckets),
    np.stack(observed),
    counts,
    divergences(counts),
    np.stack([divergences(each) for each in hashed]),
  )
