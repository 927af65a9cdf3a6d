"""What hashing labels into buckets does to their counts: FedMLH's theory.

Lemma 1: a bucket has more positive examples than a label alone. Theorem 1: with more
of them its centroid has a smaller error. Lemma 2: how many buckets tell all labels
apart. Theorem 2: clients' label distributions become more alike.
"""

import math

import numpy as np
import scipy.sparse

from tff_xc.data import hashing


def expected_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the expected positive examples of each label's bucket.

  Those of the label, and of every other label with probability 1 / B. An example with
  two labels of one bucket counts twice.
  """
  counts = np.asarray(label_counts, np.float64)
  return counts + (counts.sum() - counts) / num_buckets


def least_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the paper's bound of `expected_positives` (Lemma 1).

  n_j + (N - n_j) / B - N / B^2, where label j has n_j positive examples and all labels
  together N.
  """
  everything = np.sum(label_counts)
  return expected_positives(label_counts, num_buckets) - everything / num_buckets**2


def expected_examples(labels: scipy.sparse.csr_matrix, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], as `expected_positives`; an example counts once a bucket.

  Labels are bool [N, n]. n_j + sum of 1 - (1 - 1 / B)^m over the examples without label
  j, where m is how many labels an example has.
  """
  hit = 1 - (1 - 1 / num_buckets) ** np.diff(labels.indptr)
  counts = np.bincount(labels.indices, minlength=labels.shape[1])
  return counts + hit.sum() - labels.astype(np.float64).T @ hit


def drawn_positives(
  label_counts: np.ndarray, chosen: np.ndarray, num_buckets: int, draws: int
) -> np.ndarray:
  """Returns float64 [draws], positive examples of buckets under many hash functions.

  It is the mean over the chosen labels (bool [n]) of what their buckets have in the table
  with seed 0, 1, ...; an example with two labels of one bucket counts twice.
  """
  weights = np.asarray(chosen, np.float64) / np.sum(chosen)
  label_counts = np.asarray(label_counts, np.float64)
  both = np.stack([label_counts, weights])
  summed = (bucket_counts(both, seed, num_buckets) for seed in range(draws))
  return np.array([counts @ shares for counts, shares in summed])


def centroid_error(
  x: np.ndarray | scipy.sparse.csr_matrix, positives: int, draws: int, random: np.random.Generator
) -> float:
  """Returns the mean squared error of the centroid of so many positives (Theorem 1).

  They are drawn with replacement from the rows of x [N, D], N at least 2, `draws` times.
  The error is the squared distance from the centroid of x, times N / (N - 1), because x
  is a sample itself.
  """
  size = x.shape[0]
  shares = random.multinomial(positives, np.full(size, 1 / size), draws)
  off = (shares / positives - 1 / size) @ x
  return float(np.square(off).sum() / draws * size / (size - 1))


def mean_load(num_labels: int, num_tables: int, num_buckets: int) -> float:
  """Returns how many labels the bucket of a label has, the mean over labels and tables."""
  ones = np.ones(num_labels)
  loads = [bucket_counts(ones, r, num_buckets) for r in range(num_tables)]
  return float(np.square(loads).sum() / (num_labels * num_tables))


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
  joint = joint_buckets(num_labels, num_tables, num_buckets)
  return num_labels - len(np.unique(joint))


def joint_buckets(num_labels: int, num_tables: int, num_buckets: int) -> np.ndarray:
  """Returns int64 [n], equal numbers for labels that share their buckets in all tables."""
  ids = np.arange(num_labels)
  buckets = np.stack([hashing.buckets(ids, seed, num_buckets) for seed in range(num_tables)])
  return np.unique(buckets, axis=1, return_inverse=True)[1].reshape(-1)


def bucket_counts(label_counts: np.ndarray, seed: int, num_buckets: int) -> np.ndarray:
  """Returns [..., B], the sums over a table's buckets of counts [..., n]."""
  num_labels = np.shape(label_counts)[-1]
  buckets = hashing.buckets(np.arange(num_labels), seed, num_buckets)
  return group_counts(label_counts, buckets, num_buckets)


def group_counts(label_counts: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
  """Returns float64 [..., g], the sums over groups int [n] of counts [..., n]."""
  counts = np.asarray(label_counts)
  flat = counts.reshape(-1, counts.shape[-1])
  sums = [np.bincount(groups, row, num_groups) for row in flat]
  return np.reshape(sums, (*counts.shape[:-1], num_groups))


def bucket_examples(labels: scipy.sparse.csr_matrix, seed: int, num_buckets: int) -> np.ndarray:
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
  Summing counts over buckets never increases it (Theorem 2): so it falls with fewer
  buckets, where each is a union of others, and grows with more tables. `smoothing` is added in
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
