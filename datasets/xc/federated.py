"""Loads sparse text as federated data: data sets of the repository, or the user's own files.

There are two ways to use the labels. In the first way (FedAwS, Yu et al., ICML 2020, and
FedSS), each training example keeps one of its labels, sampled uniformly once. Examples
without a label are left out. By default each class is a client. A class has no client if no
example keeps its label. Test examples keep all their labels.

In the second way (FedMLH), training examples keep their sets of labels, and frequent labels
determine the clients (`datasets.splits.partitions.frequent_labels`). An option hashes the
features to fewer features.
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

# Each random stream has the seed [seed, stream]; `sample_labels` uses the stream 0.
GROUPS, _TEST = 1, 2
# The random streams of data sets with sets of labels.
_CLIENTS, _VALIDATION = range(2)
# FedMLH's published code reads whole batches of 100 test examples.
_TEST_BATCH = 100
Part = text.Part


class Options(NamedTuple):
  """How a data set with sets of labels becomes federated data."""

  hashed_features: int = 0  # The number of features after hashing; 0: no hashing.
  num_clients: int = 10
  partition_rule: str = 'code'  # 'code' or 'paper'; see `partitions.frequent_labels`.
  # Whether to read files like FedMLH's code. An example without labels then gets the label
  # 0 and loses its first feature. The frequency of label 0 does not count this example. If
  # the last test examples do not fill a batch of 100, they are left out.
  published_reading: bool = False
  validation: float = 0.0  # The share of training examples held out for validation.
  seed: int = 0  # The seed for sampling clients and validation examples.


def read(paths: tuple[pathlib.Path, ...]) -> Part:
  """Reads examples from one file, or from a file of features and a file of labels."""
  parts = [text.read(path, form) for path, form in sets.forms(paths)]
  return Part(parts[0].features, parts[-1].labels)


def load(
  name: str, data_dir: str | os.PathLike, *, counts: sets.Counts | None = None, **options
) -> client_data.FederatedDataset:
  """Loads a data set of `sets.SETS`, with one label per training example.

  The arrays are memory-mapped from the cache. `sets.find` finds the files, and
  `of_one_label` explains the options. Test examples have sets of labels, which may be empty.
  Propensities count all labels and all training examples, including examples without
  labels. Raises `errors.InputError` if a file is missing or damaged, if it has other numbers of
  examples, features or labels than expected, or if an option is out of its range.
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
  """Makes a data set with one label per training example.

  `label_seed` determines the labels that training examples keep, and the classes of
  clients. It is not the seed of a run. A client has `classes_per_client` random classes, and
  `clients_per_class` clients share each class. `constants` are the constants a and b of the
  propensities.
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

  `labels` int32 [N] has the label that each training example keeps, or -1 if the example
  has no client. The indices in `clients` count only the examples that keep a label.
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

  `choice.test_file` is also sparse text. If `choice.split` is '' or 'class', a client has
  `classes_per_client` random classes, and `clients_per_class` clients share each class. A
  split file says which client owns each example, and which label the example keeps.
  """
  name = pathlib.Path(path).name.partition('.')[0]
  whole, test = read_own(path, choice.test_file)
  data, rule = examples_lib.of_labels(whole.labels), None
  if test:
    data = dataclasses.replace(data, test=np.zeros(0, np.int64))  # The test is in its own file.
  if choice.split in ('', 'class'):
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
  elif test and choice.test_examples:
    test = test.some(splits.sampled(np.arange(test.labels.shape[0]), choice, str(path)))
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
  """Reads training and test examples from files in the format `examples` of `xc.text`.

  If `test_file` is '', `test_fraction` of the training examples become the test examples,
  sampled with `seed`. The test examples are None if `test_fraction` is 0, too. Raises
  `errors.InputError` if a file is missing or damaged, if both files are the same, if they
  differ in the number of features or labels, or if there are fewer than two labels.
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
  """Returns a file's header; raises `errors.InputError` if a number in it is too small."""
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
  """Loads a data set of `sets.SETS`, in which training examples keep their sets of labels.

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
  """Makes a data set in which training examples keep their sets of labels.

  `constants` are the constants a and b of the propensities.
  """
  held_out = None
  if options.validation:
    size = train.labels.shape[0]
    random = np.random.default_rng([options.seed, _VALIDATION])
    held = np.zeros(size, bool)
    count = max(1, round(options.validation * size))
    held[random.choice(size, count, replace=False)] = True
    train, held_out = train.some(~held), train.some(held)
  # Count labels before `_without_labels_as_zero`, like the published code.
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
  """Hashes features to [N, size] and adds the values in each bucket; size 0: no change."""
  if not size:
    return features
  # Hash only features that occur, because a header may announce billions of features.
  used, place = np.unique(features.indices, return_inverse=True)
  bucket = hashing.buckets(used, hashing.FEATURE_SEED, size)
  hashed = scipy.sparse.csr_matrix(
    (features.data.copy(), bucket[place], features.indptr.copy()), (features.shape[0], size)
  )
  hashed.sum_duplicates()
  return hashed


def _without_labels_as_zero(part: Part) -> Part:
  """Gives examples without labels the label 0, and removes the first feature of each."""
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
