"""FedMLH's theory about the effects of hashing labels into buckets.

Lemma 1: a bucket has more positive examples than a label. Theorem 1: with more positive
examples, a centroid has a smaller error. Lemma 2: how many buckets distinguish all
labels. Theorem 2: the label distributions of clients become more similar.
"""

import math

import numpy as np
import scipy.sparse

from tff_xc.data import hashing


def expected_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the expected number of positive examples in each label's bucket.

  The bucket has the label's examples, and those of each other label with probability
  1 / B. An example with two labels in one bucket counts twice.
  """
  counts = np.asarray(label_counts, np.float64)
  return counts + (counts.sum() - counts) / num_buckets


def least_positives(label_counts: np.ndarray, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the paper's lower bound of `expected_positives` (Lemma 1).

  The bound is n_j + (N - n_j) / B - N / B^2, where label j has n_j positive examples and
  all labels together have N.
  """
  everything = np.sum(label_counts)
  return expected_positives(label_counts, num_buckets) - everything / num_buckets**2


def expected_examples(labels: scipy.sparse.csr_matrix, num_buckets: int) -> np.ndarray:
  """Returns float64 [n], the expected number of examples in each label's bucket.

  Unlike in `expected_positives`, an example counts at most once for a bucket. `labels`
  are bool [N, n]. The result is n_j plus the sum of 1 - (1 - 1 / B)^m over the examples
  without label j, where m is an example's number of labels.
  """
  hit = 1 - (1 - 1 / num_buckets) ** np.diff(labels.indptr)
  counts = np.bincount(labels.indices, minlength=labels.shape[1])
  return counts + hit.sum() - labels.astype(np.float64).T @ hit


def drawn_positives(
  label_counts: np.ndarray, chosen: np.ndarray, num_buckets: int, draws: int
) -> np.ndarray:
  """Returns float64 [draws], numbers of positive examples under many hash functions.

  Entry s is the mean over the `chosen` labels, bool [n], of the positive examples in
  their buckets of the table with seed s. An example with two labels in one bucket counts
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

  The examples are drawn with replacement from the rows of x [N, D], N at least 2, `draws`
  times. The error is the squared distance from the centroid of x, times N / (N - 1),
  because x itself is a sample.
  """
  size = x.shape[0]
  shares = random.multinomial(positives, np.full(size, 1 / size), draws)
  off = (shares / positives - 1 / size) @ x
  return float(np.square(off).sum() / draws * size / (size - 1))


def mean_load(num_labels: int, num_tables: int, num_buckets: int) -> float:
  """Returns the number of labels in a label's bucket, averaged over labels and tables."""
  ones = np.ones(num_labels)
  loads = [bucket_counts(ones, r, num_buckets) for r in range(num_tables)]
  return float(np.square(loads).sum() / (num_labels * num_tables))


def least_buckets(num_labels: int, num_tables: int, failure: float) -> int:
  """Returns the B that distinguishes all labels with probability 1 - `failure` (Lemma 2).

  There are n (n - 1) / 2 pairs, and a pair collides in all R tables with probability
  B^-R. Therefore no pair collides in all tables with probability at least 1 - failure if
  B is at least (n (n - 1) / (2 failure))^(1 / R).
  """
  pairs = num_labels * (num_labels - 1) / 2
  return math.ceil((pairs / failure) ** (1 / num_tables))


def total_collisions(num_labels: int, num_tables: int, num_buckets: int) -> int:
  """Returns the number of labels that share all their buckets with an earlier label."""
  joint = joint_buckets(num_labels, num_tables, num_buckets)
  return num_labels - len(np.unique(joint))


def joint_buckets(num_labels: int, num_tables: int, num_buckets: int) -> np.ndarray:
  """Returns int64 [n], the same number for labels that share their buckets in all tables."""
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

  `labels` are bool [N, n]. Unlike in `bucket_counts`, an example counts at most once for
  a bucket.
  """
  size, num_labels = labels.shape
  buckets = hashing.buckets(np.arange(num_labels), seed, num_buckets)
  examples = np.repeat(np.arange(size, dtype=np.int64), np.diff(labels.indptr))
  pairs = np.unique(examples * num_buckets + buckets[labels.indices])
  return np.bincount(pairs % num_buckets, minlength=num_buckets)


def divergences(counts: np.ndarray, smoothing: float = 1.0) -> np.ndarray:
  """Returns float64 [K, K], Kullback-Leibler divergences between clients, in nats.

  Entry (i, j) is the divergence of client i's label distribution from client j's, computed
  from `counts` [K, n]. Summing counts over buckets never increases a divergence (Theorem
  2). It therefore falls if buckets are merged, and grows with more tables. The divergence
  from a distribution that lacks a label is infinite. To avoid this, each client's counts
  get `smoothing` in total, distributed like the counts of all clients together.
  """
  counts = np.asarray(counts, np.float64)
  everything = counts.sum(axis=0)
  counts = counts + smoothing * everything / everything.sum()
  shares = counts / counts.sum(axis=1, keepdims=True)
  some = everything > 0
  logs = np.log(shares[:, some])
  own = (shares[:, some] * logs).sum(axis=1)
  return np.maximum(own[:, None] - shares[:, some] @ logs.T, 0.0)
