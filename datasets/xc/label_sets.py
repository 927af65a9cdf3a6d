"""Multi-label sets whose training examples keep all their labels (FedMLH).

Features may be hashed to fewer. Clients are made by frequent labels
(`datasets.splits.partitions`).
"""

import os
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import rules
from datasets.xc import clients, sets
from tff_xc.data import client_data, hashing, pool, sparse

# Streams of numpy generators: [seed, stream].
_CLIENTS, _VALIDATION = range(2)
# FedMLH's published code reads whole batches of 100 test examples.
_TEST_BATCH = 100


class Options(NamedTuple):
  """How a set becomes federated data."""

  hashed_features: int = 0  # After hashing; 0: all of the set.
  num_clients: int = 10
  partition_rule: str = 'code'  # Or 'paper'.
  # As FedMLH's code reads files: an example without labels has label 0, which does
  # not count where labels are frequent, and lacks its first feature; the last test
  # examples that do not fill a batch of 100 are left out.
  published_reading: bool = False
  validation: float = 0.0  # The share of the training examples held out for it.
  seed: int = 0  # Of the clients, and of the examples for validation.


def load(
  name: str, data_dir: str | os.PathLike, options: Options, counts: sets.Counts | None = None
) -> client_data.FederatedDataset:
  """Loads a set of the repository, found by `sets.find`; refuses too few labels
  or examples for so many clients."""
  parts = map(clients.read, sets.find(name, data_dir, counts))
  known = sets.SETS[name]
  return federated(name, *parts, options, (known.a, known.b))


def federated(
  name: str,
  train: clients.Part,
  test: clients.Part | None,
  options: Options,
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """As `load`, of parts that are read; `constants` are a and b of the propensities."""
  held_out = None
  if options.validation:
    size = train.labels.shape[0]
    random = np.random.default_rng([options.seed, _VALIDATION])
    held = np.zeros(size, bool)
    count = max(1, round(options.validation * size))
    held[random.choice(size, count, replace=False)] = True
    train, held_out = train.some(~held), train.some(held)
  # The published code does not count the label 0 that it reads where none is.
  label_counts = np.bincount(train.labels.indices, minlength=train.labels.shape[1])
  if options.published_reading:
    train = _without_labels_as_zero(train)
    held_out = held_out and _without_labels_as_zero(held_out)
    if test:
      whole = test.labels.shape[0] // _TEST_BATCH * _TEST_BATCH
      test = _without_labels_as_zero(test).some(slice(whole))
  partition = rules.deal(
    'frequent_labels',
    examples_lib.of_labels(train.labels),
    [options.seed, _CLIENTS],
    clients=options.num_clients,
    variant=options.partition_rule,
    counts=label_counts,
  ).train

  def as_pool(part):
    return pool.in_memory(hashed_features(part.features, options.hashed_features), part.labels)

  return client_data.FederatedDataset(
    name=name,
    num_classes=train.labels.shape[1],
    train=client_data.PartitionedClientData(as_pool(train), partition),
    test=test and as_pool(test),
    validation=held_out and as_pool(held_out),
    propensity=sparse.Propensity(label_counts, train.labels.shape[0], *constants),
    preprocessing={
      'num_features': train.features.shape[1],
      'hashed': bool(options.hashed_features),
    },
  )


def hashed_features(features: scipy.sparse.csr_matrix, size: int) -> scipy.sparse.csr_matrix:
  """Returns [N, size], values of features in one bucket added; size 0: as they are."""
  if not size:
    return features
  # Not of all D features, of which a header may name very many.
  used, place = np.unique(features.indices, return_inverse=True)
  bucket = hashing.buckets(used, hashing.FEATURE_SEED, size)
  hashed = scipy.sparse.csr_matrix(
    (features.data.copy(), bucket[place], features.indptr.copy()), (features.shape[0], size)
  )
  hashed.sum_duplicates()
  return hashed


def _without_labels_as_zero(part: clients.Part) -> clients.Part:
  """Returns the part with label 0, and without the first feature, where none is."""
  features, labels = part
  empty = np.flatnonzero(np.diff(labels.indptr) == 0)
  if not len(empty):
    return part
  labels = labels.tolil()
  labels[empty, 0] = True
  features = features.copy()
  starts = features.indptr[empty]
  features.data[starts[starts < features.indptr[empty + 1]]] = 0
  features.eliminate_zeros()
  return clients.Part(features, labels.tocsr())
