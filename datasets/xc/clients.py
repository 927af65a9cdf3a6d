"""Sets of the Extreme Classification Repository as federated data.

A training example keeps one of its labels, drawn uniformly once; examples
without a label are left out. Clients are classes (`by_class`). A class
that no example drew has no client. Test examples keep all their labels. FedAwS
(Yu et al., ICML 2020) and FedSS use these sets in this way.

`xc_text` describes the files' form, and `xc_sets.find` their places. They are
parsed once and then mapped from the user's cache (`xc_cache`).
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples
from datasets.splits import rules
from datasets.xc import cache as xc_cache
from datasets.xc import headers as xc_headers
from datasets.xc import sets as xc_sets
from tff_xc.data import client_data
from tff_xc.data import partition as partition_lib
from tff_xc.data import pool
from tff_xc.data import sparse

# Streams of numpy generators: [label_seed, stream].
_LABELS, _GROUPS = range(2)


class Part(NamedTuple):
  """Examples: features float32 [N, D], and labels bool [N, n], in CSR form."""

  features: scipy.sparse.csr_matrix
  labels: scipy.sparse.csr_matrix


def load(
  name: str,
  data_dir: str | os.PathLike,
  *,
  label_seed: int = 0,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
  counts: xc_sets.Counts | None = None,
) -> client_data.FederatedDataset:
  """Loads a set; its features are mapped from the cache.

  Args:
    name: one of `xc_sets.SETS`.
    data_dir: the directory of the files, see `xc_sets.find`.
    label_seed: determines the label that a training example keeps, and the
      classes of a client. It is not the seed of a run.
    classes_per_client: random classes of each client.
    clients_per_class: clients that share each class.
    counts: the counts that the files must have; None: those of the set.

  Returns:
    The data set. `train` has the training examples that have a label. `y` of
    the test set is sets of labels, empty for a test example without labels.
    Propensities count all labels and all training examples, including those
    without labels.

  Raises:
    errors.InputError: files are missing, damaged, or have other counts; an
      argument is out of its range.
  """
  files = xc_headers.find(name, data_dir, counts)
  known = xc_sets.SETS[name]
  return federated(
    name,
    read(files.train),
    read(files.test),
    label_seed=label_seed,
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
    constants=(known.a, known.b),
  )


def federated(
  name: str,
  train: Part,
  test: Part | None,
  *,
  label_seed: int,
  classes_per_client: int,
  clients_per_class: int,
  constants: tuple[float, float] = (0.55, 1.5),
) -> client_data.FederatedDataset:
  """Returns federated data of a training and a test part.

  Args:
    name: of the set.
    train: the training part; an example keeps one label.
    test: the test part, whose examples keep all labels; or None.
    label_seed: as in `load`.
    classes_per_client: as in `load`.
    clients_per_class: as in `load`.
    constants: a and b of the propensities.

  Raises:
    errors.InputError: an argument is out of its range.
  """
  labels = sample_labels(train.labels, label_seed)
  clients = rules.deal(
    'classes_per_client',
    examples.of_labels(labels[labels >= 0], train.labels.shape[1]),
    [label_seed, _GROUPS],
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
  ).train
  return with_clients(name, train, test, labels, clients, constants)


def with_clients(
  name: str,
  train: Part,
  test: Part | None,
  labels: np.ndarray,
  clients: partition_lib.Partition,
  constants: tuple[float, float] = (0.55, 1.5),
) -> client_data.FederatedDataset:
  """Returns federated data whose labels and clients are known.

  Args:
    name: as in `federated`.
    train: as in `federated`.
    test: as in `federated`.
    labels: int32 [N], the label that each training example keeps; -1: it is no
      client's.
    clients: of the examples that keep a label, which are numbered anew.
    constants: as in `federated`.
  """
  examples, num_classes = train.labels.shape
  labelled = pool.in_memory(train.features, labels)
  if labels.min(initial=0) < 0:
    labelled = labelled.subset(np.flatnonzero(labels >= 0))
  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(labelled, clients),
    test=None if test is None else pool.in_memory(*test),
    propensity=sparse.Propensity(
      np.bincount(train.labels.indices, minlength=num_classes),
      examples,
      *constants,
    ),
  )


def sample_labels(label_sets: scipy.sparse.csr_matrix, seed: int) -> np.ndarray:
  """Draws one label of each example, uniformly.

  Returns:
    int32 [N]; -1 for an example without labels.
  """
  sizes = np.diff(label_sets.indptr)
  random = np.random.default_rng([seed, _LABELS])
  chosen = random.integers(0, np.maximum(sizes.astype(np.int64), 1))
  labels = np.full(len(sizes), -1, np.int32)
  some = np.flatnonzero(sizes)
  labels[some] = label_sets.indices[label_sets.indptr[some] + chosen[some]]
  return labels


def read(paths: tuple[pathlib.Path, ...]) -> Part:
  """Returns a part: of one file of examples, or of features and of labels."""
  tables = [xc_cache.read(path, form) for path, form in xc_headers.forms(paths)]
  return Part(tables[0].features, tables[-1].labels)
