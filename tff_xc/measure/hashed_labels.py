"""Computes what FedMLH's theory says about hashing labels into buckets.

Lemma 1 says that a bucket has more positive examples than a label. Theorem 1 says that a
centroid of more positive examples has a smaller error. Lemma 2 gives the number of buckets
that distinguishes all labels. Theorem 2 says that hashing makes the label distributions of
clients more similar. B is the number of buckets of a hash table, R is the number of hash
tables, and n is the number of labels.
"""

import math

import numpy as np
import scipy.sparse

from tff_xc.data import hashing


def expected_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the expected number of positive examples in each label's bucket.

  The bucket has all examples of its label. The bucket has the examples of another label with
  probability 1 / B. An example with two labels in one bucket counts twice.
  """
  counts = np.asarray(label_counts, np.float64)
  return counts + (counts.sum() - counts) / num_buckets


def least_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the paper's lower bound of `expected_positives` (Lemma 1).

  Label j has n_j positive examples, and all labels together have N. The bound is
  n_j + (N - n_j) / B - N / B^2.
  """
  everything = np.sum(label_counts)
  return expected_positives(label_counts, num_buckets) - everything / num_buckets**2


def expected_examples(labels: scipy.sparse.csr_matrix, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the expected number of examples in each label's bucket.

  An example counts at most once for a bucket, unlike in `expected_positives`. `labels` are
  bool [N, n] for N examples. Let n_j be the number of examples with label j, and m the number
  of labels of an example. The result is n_j plus the sum of 1 - (1 - 1 / B)^m over the examples
  without label j.
  """
  hit = 1 - (1 - 1 / num_buckets) ** np.diff(labels.indptr)
  counts = np.bincount(labels.indices, minlength=labels.shape[1])
  return counts + hit.sum() - labels.astype(np.float64).T @ hit


def drawn_positives(
  label_counts: np.ndarray, chosen: np.ndarray, num_buckets: int, draws: int
) -> np.ndarray:
  """Returns float64 [draws], mean numbers of positive examples under `draws` hash functions.

  Entry s is for the hash table with seed s. The entry is the mean number of positive examples
  in the buckets of the `chosen` labels, bool [n]. An example with two labels in one bucket counts
  twice.
  """
  weights = np.asarray(chosen, np.float64) / np.sum(chosen)
  label_counts = np.asarray(label_counts, np.float64)
  both = np.stack([label_counts, weights])
  summed = (bucket_counts(both, seed, num_buckets) for seed in range(draws))
  return np.array([counts @ shares for counts, shares in summed])


def centroid_error(
  x: np.ndarray | scipy.sparse.csr_matrix, positives: int, draws: int, random: np.random.Generator
) -> float:
  """Returns the mean squared error of the centroid of `positives` examples (Theorem 1).

  Each of `draws` draws takes `positives` rows of x [N, D] with replacement. N is at least 2.
  The error of a draw is the squared distance of its centroid from the centroid of x. The mean
  error is multiplied by N / (N - 1), because x itself is a sample.
  """
  size = x.shape[0]
  shares = random.multinomial(positives, np.full(size, 1 / size), draws)
  off = (shares / positives - 1 / size) @ x
  return float(np.square(off).sum() / draws * size / (size - 1))


def mean_load(num_labels: int, num_tables: int, num_buckets: int) -> float:
  """Returns the number of labels in a label's bucket, averaged over labels and hash tables."""
  ones = np.ones(num_labels)
  loads = [bucket_counts(ones, r, num_buckets) for r in range(num_tables)]
  return float(np.square(loads).sum() / (num_labels * num_tables))


def least_buckets(num_labels: int, num_tables: int, failure: float) -> int:
  """Returns the B that distinguishes all labels with probability 1 - `failure` (Lemma 2).

  There are n (n - 1) / 2 pairs of labels. A pair collides in all R tables with probability
  B^-R. The probability that any pair collides in all tables is therefore at most `failure` if B
  is at least (n (n - 1) / (2 failure))^(1 / R).
  """
  pairs = num_labels * (num_labels - 1) / 2
  return math.ceil((pairs / failure) ** (1 / num_tables))


def total_collisions(num_labels: int, num_tables: int, num_buckets: int) -> int:
  """Returns how many labels have the same bucket as an earlier label in every hash table."""
  joint = joint_buckets(num_labels, num_tables, num_buckets)
  return num_labels - len(np.unique(joint))


def joint_buckets(num_labels: int, num_tables: int, num_buckets: int) -> np.ndarray:
  """Returns int64 [n]. Two entries are equal if the labels share their buckets in all tables."""
  ids = np.arange(num_labels)
  buckets = np.stack([hashing.buckets(ids, seed, num_buckets) for seed in range(num_tables)])
  return np.unique(buckets, axis=1, return_inverse=True)[1].reshape(-1)


def bucket_counts(label_counts: np.ndarray, seed: int, num_buckets: int) -> np.ndarray:
  """Returns float64 [..., B], sums of counts [..., n] over the labels of each bucket."""
  num_labels = np.shape(label_counts)[-1]
  buckets = hashing.buckets(np.arange(num_labels), seed, num_buckets)
  return group_counts(label_counts, buckets, num_buckets)


def group_counts(label_counts: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
  """Returns float64 [..., g], sums of counts [..., n] over the labels of each group.

  `groups`, int [n], is the group of each label.
  """
  counts = np.asarray(label_counts)
  flat = counts.reshape(-1, counts.shape[-1])
  sums = [np.bincount(groups, row, num_groups) for row in flat]
  return np.reshape(sums, (*counts.shape[:-1], num_groups))


def bucket_examples(labels: scipy.sparse.csr_matrix, seed: int, num_buckets: int) -> np.ndarray:
  """Returns int64 [B], the number of examples with a label in each bucket of a table.

  `labels` are bool [N, n]. An example counts at most once for a bucket, unlike in
  `bucket_counts`.
  """
  size, num_labels = labels.shape
  buckets = hashing.buckets(np.arange(num_labels), seed, num_buckets)
  examples = np.repeat(np.arange(size, dtype=np.int64), np.diff(labels.indptr))
  pairs = np.unique(examples * num_buckets + buckets[labels.indices])
  return np.bincount(pairs % num_buckets, minlength=num_buckets)


def divergences(counts: np.ndarray, smoothing: float = 1.0) -> np.ndarray:
  """Returns float64 [K, K], Kullback-Leibler divergences between clients, in nats.

  Entry (i, j) is the divergence of client i's label distribution from client j's label
  distribution, computed from `counts` [K, n]. Merging labels into buckets never increases a
  divergence (Theorem 2). A divergence may be infinite if client j lacks a label. To avoid
  infinite values, the function adds `smoothing` to the counts of each client, distributed over
  the labels like the counts of all clients together.
  """
  counts = np.asarray(counts, np.float64)
  everything = counts.sum(axis=0)
  counts = counts + smoothing * everything / everything.sum()
  shares = counts / counts.sum(axis=1, keepdims=True)
  some = everything > 0
  logs = np.log(shares[:, some])
  own = (shares[:, some] * logs).sum(axis=1)
  return np.maximum(own[:, None] - shares[:, some] @ logs.T, 0.0)
