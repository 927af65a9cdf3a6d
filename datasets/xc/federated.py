"""Loads sparse text as federated data: sets of the repository, and the user's own files.

With one label (FedAwS, Yu et al., ICML 2020, and FedSS), a training example keeps one of
its labels, which is drawn uniformly once. Examples without a label are left out. Clients
are classes (`by_class`), and a class that no example keeps has no client. Test examples
keep all their labels.

With sets of labels (FedMLH), training examples keep all their labels, features may be
hashed to fewer, and clients are made by frequent labels (`datasets.splits.partitions`).
"""

import dataclasses
import os
import pathlib
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import deal as splits, hold_out, rules
from datasets.xc import sets, text
from tff_xc import errors, wording
from tff_xc.data import client_data, hashing, partition as partition_lib, pool, sparse

# Each random stream has the seed [seed, stream]; `sample_labels` has the stream 0.
GROUPS, _TEST = 1, 2
# The random streams for sets of labels.
_CLIENTS, _VALIDATION = range(2)
# FedMLH's published code reads whole batches of 100 test examples.
_TEST_BATCH = 100


class Part(NamedTuple):
  """Examples: features float32 [N, D], and labels bool [N, n], in CSR form."""

  features: scipy.sparse.csr_matrix
  labels: scipy.sparse.csr_matrix

  def some(self, rows: np.ndarray | slice) -> 'Part':
    """Returns some of the examples."""
    return Part(self.features[rows], self.labels[rows])


class Options(NamedTuple):
  """How a set with all its labels becomes federated data."""

  hashed_features: int = 0  # The number of features after hashing; 0: no hashing.
  num_clients: int = 10
  partition_rule: str = 'code'  # Or 'paper'.
  # Whether to read files as FedMLH's code does. An example without labels then gets label
  # 0 and loses its first feature, but does not count towards the frequency of label 0. The
  # last test examples that do not fill a batch of 100 are left out.
  published_reading: bool = False
  validation: float = 0.0  # The share of training examples held out for validation.
  seed: int = 0  # The seed that draws clients and validation examples.


def read(paths: tuple[pathlib.Path, ...]) -> Part:
  """Reads a part from one file of examples, or from a file of features and one of labels."""
  tables = [text.read(path, form) for path, form in sets.forms(paths)]
  return Part(tables[0].features, tables[-1].labels)


def load(
  name: str, data_dir: str | os.PathLike, *, counts: sets.Counts | None = None, **options
) -> client_data.FederatedDataset:
  """Loads a set of `sets.SETS` with one label per example, memory-mapped from the cache.

  `sets.find` finds the files, and `of_one_label` explains the options. `y` of the test is
  sets of labels, which may be empty. Propensities count all labels and all training
  examples, including those without labels. Raises `errors.InputError` if files are missing,
  damaged or differ in a count, or an option is out of its range.
  """
  train, test = map(read, sets.find(name, data_dir, counts))
  constants = sets.SETS[name].a, sets.SETS[name].b
  return of_one_label(name, train, test, constants=constants, **options)


def of_one_label(
  name: str,
  train: Part,
  test: Part | None,
  *,
  label_seed: int = 0,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """Makes a data set with one label per example; `constants` are a and b of propensities.

  `label_seed` determines the label that a training example keeps, and the classes of
  a client; it is not the seed of a run. A client has `classes_per_client` random
  classes, and each class is shared by `clients_per_class` clients.
  """
  labels = examples_lib.sample_labels(train.labels, label_seed)
  clients = rules.deal(
    'classes_per_client',
    examples_lib.of_labels(labels[labels >= 0], train.labels.shape[1]),
    [label_seed, GROUPS],
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
  ).train
  return _with_clients(name, train, test, labels, clients, constants)


def _with_clients(
  name: str,
  train: Part,
  test: Part | None,
  labels: np.ndarray,
  clients: partition_lib.Partition,
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """Makes the same kind of data set as `of_one_label`, with the caller's labels and clients.

  `labels` int32 [N] is the label that each training example keeps, -1 if it has no client.
  `clients` refer to the examples that keep a label, which are renumbered from 0.
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


def load_own(
  path: str | os.PathLike,
  choice: splits.Choice,
  *,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
) -> client_data.FederatedDataset:
  """Loads a file of sparse text with `read_own`; each training example keeps one label.

  `choice.test_file` is also sparse text. Without a split or with `class`, a client has
  `classes_per_client` random classes, each shared by `clients_per_class` clients. A split
  says which client owns each example, and which label each example keeps.
  """
  name = pathlib.Path(path).name.partition('.')[0]
  whole, test = read_own(path, choice.test_file)
  data, rule = examples_lib.of_labels(whole.labels), None
  if test:
    data = dataclasses.replace(data, test=np.zeros(0, np.int64))  # The test is in its own file.
  if choice.is_class:
    shared = {'classes_per_client': classes_per_client, 'clients_per_class': clients_per_class}
    rule = 'classes_per_client', shared, [choice.seed, GROUPS]
  found = splits.parts(
    data,
    choice._replace(split=choice.split or 'class', test_file=''),
    str(path),
    rule=rule,
    test_stream=_TEST,
  )
  held = np.zeros(len(data), bool)
  labels, users = found.data.labels, found.data.users
  if found.test is not None and len(found.test):
    held[found.test] = True
    test = whole.some(held)
  trains = ~held & (labels >= 0)
  numbers = (np.cumsum(trains) - 1)[found.clients.numbers]
  clients = dataclasses.replace(found.clients, numbers=numbers)
  made = _with_clients(name, whole.some(~held), test, labels[~held], clients)
  if found.held_out is None or not held.any():
    return made
  return hold_out.with_own_test(made, choice.seed, (users[trains], users[held]))


def read_own(
  path: str | os.PathLike,
  test_file: str | os.PathLike = '',
  test_fraction: float = 0.0,
  seed: int = 0,
) -> tuple[Part, Part | None]:
  """Reads a training part, and a test part or None, from files `N D L`, `l1,l2 f:v f:v`.

  Without `test_file`, `seed` draws `test_fraction` of the training examples as the test.
  Raises `errors.InputError` if a file is missing or damaged, both files are the same or
  differ in D or L, or there are fewer than two labels.
  """
  header = check(path)
  examples_lib.check_classes(header.num_labels, f'{path}, line 1')
  if test_file:
    splits.check_test_file(test_file, path)
    found = check(test_file)
    if found[1:] != header[1:]:
      raise errors.InputError(
        f'{test_file} has {wording.count(found.num_features, "feature")} and'
        f' {wording.count(found.num_labels, "label")}, and {path}'
        f' {header.num_features:,} and {header.num_labels:,}; give two files of one set'
      )
    return tuple(read((pathlib.Path(file),)) for file in (path, test_file))
  train = read((pathlib.Path(path),))
  if not test_fraction:
    return train, None
  held = np.zeros(header.num_examples, bool)
  held[hold_out.by_fraction(train.labels, test_fraction, [seed, _TEST])] = True
  return train.some(~held), train.some(held)


def check(path: str | os.PathLike) -> sets.Header:
  """Returns a file's header; raises `errors.InputError` if a count in it is too small."""
  header = sets.read_header(path)
  if header.num_labels < 2 or not (header.num_examples and header.num_features):
    raise errors.InputError(
      f'{path}, line 1: {wording.count(header.num_examples, "example")},'
      f' {wording.count(header.num_features, "feature")} and'
      f' {wording.count(header.num_labels, "label")}; give a file with some, and two labels'
    )
  return header


# -- sets of labels --


def load_sets(
  name: str, data_dir: str | os.PathLike, options: Options, counts: sets.Counts | None = None
) -> client_data.FederatedDataset:
  """Loads a set of the repository that `sets.find` finds, with sets of labels.

  Raises `errors.InputError` if there are too few labels or examples for the clients.
  """
  train, test = map(read, sets.find(name, data_dir, counts))
  return of_sets(name, train, test, options, (sets.SETS[name].a, sets.SETS[name].b))


def of_sets(
  name: str,
  train: Part,
  test: Part | None,
  options: Options,
  constants: tuple[float, ...] = (),
) -> client_data.FederatedDataset:
  """Makes a data set with sets of labels; `constants` are a and b of the propensities."""
  held_out = None
  if options.validation:
    size = train.labels.shape[0]
    random = np.random.default_rng([options.seed, _VALIDATION])
    held = np.zeros(size, bool)
    count = max(1, round(options.validation * size))
    held[random.choice(size, count, replace=False)] = True
    train, held_out = train.some(~held), train.some(held)
  # The published code does not count the label 0 that it gives to examples without labels.
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
  """Hashes features to [N, size], adding values in the same bucket; size 0: unchanged."""
  if not size:
    return features
  # Only features that occur are hashed, because a header may announce very many.
  used, place = np.unique(features.indices, return_inverse=True)
  bucket = hashing.buckets(used, hashing.FEATURE_SEED, size)
  hashed = scipy.sparse.csr_matrix(
    (features.data.copy(), bucket[place], features.indptr.copy()), (features.shape[0], size)
  )
  hashed.sum_duplicates()
  return hashed


def _without_labels_as_zero(part: Part) -> Part:
  """Gives examples without labels the label 0. Removes the first feature of each of them."""
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
  return Part(features, labels.tocsr())
