"""Sets of the Extreme Classification Repository as federated data.

A training example keeps one of its labels, drawn uniformly once; examples
without a label are left out. Clients are classes (`by_class`). A class
that no example drew has no client. Test examples keep all their labels. FedAwS
(Yu et al., ICML 2020) and FedSS use these sets in this way.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples
from datasets.splits import rules
from datasets.xc import sets, text
from tff_xc.data import client_data, partition as partition_lib, pool, sparse

# A stream of numpy generators: [label_seed, stream]; 0 is that of `sample_labels`.
GROUPS = 1


class Part(NamedTuple):
  """Examples: features float32 [N, D], and labels bool [N, n], in CSR form."""

  features: scipy.sparse.csr_matrix
  labels: scipy.sparse.csr_matrix

  def some(self, rows: np.ndarray | slice) -> 'Part':
    """Returns some of the examples."""
    return Part(self.features[rows], self.labels[rows])


def read(paths: tuple[pathlib.Path, ...]) -> Part:
  """Returns a part: of one file of examples, or of features and of labels."""
  tables = [text.read(path, form) for path, form in sets.forms(paths)]
  return Part(tables[0].features, tables[-1].labels)


def load(
  name: str, data_dir: str | os.PathLike, *, counts: sets.Counts | None = None, **options
) -> client_data.FederatedDataset:
  """Loads a set of `sets.SETS`, found by `sets.find`, mapped from the cache.

  The options are those of `federated`. `y` of the test is sets of labels, perhaps
  empty. Propensities count all labels and all training examples, including those
  without labels. Raises `errors.InputError` if files are missing, damaged or of
  other counts, or an option is out of its range.
  """
  parts = map(read, sets.find(name, data_dir, counts))
  constants = sets.SETS[name].a, sets.SETS[name].b
  return federated(name, *parts, constants=constants, **options)


def federated(
  name: str,
  train: Part,
  test: Part | None,
  *,
  label_seed: int = 0,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """As `load`, of parts that are read; `constants` are a and b of the propensities.

  `label_seed` determines the label that a training example keeps, and the classes of
  a client; it is not the seed of a run. A client has `classes_per_client` random
  classes, of which each is with `clients_per_class` clients.
  """
  labels = examples.sample_labels(train.labels, label_seed)
  clients = rules.deal(
    'classes_per_client',
    examples.of_labels(labels[labels >= 0], train.labels.shape[1]),
    [label_seed, GROUPS],
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
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """As `federated`, of known labels and clients.

  `labels`, int32 [N], are what each training example keeps, -1 if it is no client's;
  `clients` have the examples that keep a label, which are numbered anew.
  """
  examples, num_classes = train.labels.shape
  labelled = pool.in_memory(train.features, labels)
  if labels.min(initial=0) < 0:
    labelled = labelled.subset(np.flatnonzero(labels >= 0))
  counts = np.bincount(train.labels.indices, minlength=num_classes)
  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(labelled, clients),
    test=None if test is None else pool.in_memory(*test),
    propensity=sparse.Propensity(counts, examples, *constants),
  )
