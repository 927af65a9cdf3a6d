"""One's own files of sparse text, in the form of `xc.text` and of any size.

A split (`splits.split_files`) says whose the examples are, and which of its labels
each keeps. Test examples keep all labels.
"""

import os
import pathlib

import numpy as np

from datasets import examples as examples_lib
from datasets.splits import client_parts
from datasets.splits import hold_out
from datasets.splits import inputs
from datasets.splits import own as splits
from datasets.splits import partitions
from datasets.splits import split_files
from datasets.xc import clients
from datasets.xc import sets
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data

# A stream of numpy generators: [seed, stream].
_TEST = 2


def load(
  path: str | os.PathLike,
  choice: splits.Choice,
  *,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
) -> client_data.FederatedDataset:
  """Loads a file of sparse text, as `read`; a training example keeps one label.

  The `test_file` of the choice is of sparse text. Without a split, and with
  `class`, clients are `classes_per_client` random classes, each shared by
  `clients_per_class`.
  """
  name = pathlib.Path(path).name.partition('.')[0]
  if choice.is_file:
    return _of_split(path, choice, name)
  train, test = read(path, choice.test_file, choice.test_fraction, choice.seed)
  if not choice.is_class:
    labels = clients.sample_labels(train.labels, choice.seed)
    kept = examples_lib.of_labels(labels[labels >= 0], train.labels.shape[1])
    dealt = splits.deal(kept, choice)
    return clients.with_clients(name, train, test, labels, dealt)
  return clients.federated(
    name,
    train,
    test,
    label_seed=choice.seed,
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
  )


def _of_split(path, choice: splits.Choice, name: str):
  """Returns the data set whose clients, labels and perhaps test a split names."""
  whole, test = read(path, choice.test_file)
  data = examples_lib.of_labels(whole.labels)
  split = split_files.read(choice.split, sets=True)
  named = split.examples
  numbers, kept = _labels(
    data,
    split,
    named.train,
    path,
    'take another rule than frequent_labels, of one label an example',
  )
  users, labels = np.full([2, len(data)], -1, np.int32)
  users[numbers] = named.users[named.train]
  labels[numbers] = np.where(users[numbers] >= 0, kept, -1)
  held = np.zeros(len(data), bool)
  if named.test is not None and not test:
    if choice.test_fraction:
      raise errors.InputError(
        f'{choice.split} has a test part; leave out --test_fraction'
      )
    cure = 'if the test is of another file, give that as --test_file'
    numbers, kept = _labels(data, split, named.test, path, cure)
    if both := numbers[users[numbers] >= 0].tolist():
      raise errors.InputError(
        f'{choice.split}: example {both[0]} is a training and a test example; give'
        ' each example to one part'
      )
    held[numbers] = True
    users[numbers], labels[numbers] = named.users[named.test], kept
  elif choice.test_fraction:
    seed = [choice.seed, _TEST]
    held[hold_out.by_fraction(labels, choice.test_fraction, seed)] = True
  if held.any():
    test, whole = whole.some(held), whole.some(~held)
  of_test, users, labels = users[held], users[~held], labels[~held]
  owners = users[labels >= 0]
  partition = partitions.of_users(
    owners, named.user_names, np.unique(owners).tolist()
  )
  found = clients.with_clients(name, whole, test, labels, partition)
  if not held.any():
    return found
  return client_parts.with_own_test(found, choice.seed, (owners, of_test))


def _labels(data, split, rows: np.ndarray, path, cure: str):
  """Returns the examples of a split's rows, and the one label that each keeps."""
  classes = np.array(split.class_ids)[split.examples.labels[rows]]
  if not (one := np.char.isdecimal(classes)).all():
    row = int(np.argmin(one))
    raise errors.InputError(
      f'{split.where(rows[row])} has the class {str(classes[row])!r}, which is not'
      f' one label; {cure}'
    )
  try:
    numbers = split_files.join(data, split, rows, str(path))
  except errors.InputError as e:
    raise errors.InputError(f'{e}; {cure}') from e
  return numbers, classes.astype(int)


def read(
  path: str | os.PathLike,
  test_file: str | os.PathLike = '',
  test_fraction: float = 0.0,
  seed: int = 0,
) -> tuple[clients.Part, clients.Part | None]:
  """Reads a training part, and a test part or None, of files `N D L`, `l1,l2 f:v
  f:v`.

  Without `test_file`, `test_fraction` of the training examples are taken, by
  `seed`. Raises `errors.InputError` if a file is missing or damaged, both are one
  or differ in D or L, or there are fewer than two labels.
  """
  header = check(path)
  inputs.check_classes(header.num_labels, f'{path}, line 1')
  if test_file:
    splits.check_test_file(test_file, path)
    found = check(test_file)
    if found[1:] != header[1:]:
      raise errors.InputError(
        f'{test_file} has {wording.count(found.num_features, "feature")} and'
        f' {wording.count(found.num_labels, "label")}, and {path}'
        f' {header.num_features:,} and {header.num_labels:,}; give two files of one set'
      )
    return _part(path), _part(test_file)
  train = _part(path)
  if not test_fraction:
    return train, None
  held = np.zeros(header.num_examples, bool)
  held[hold_out.by_fraction(train.labels, test_fraction, [seed, _TEST])] = True
  return train.some(~held), train.some(held)


def check(path: str | os.PathLike) -> sets.Header:
  """Returns a file's header; raises `errors.InputError` if it will not do."""
  header = sets.read_header(path)
  if header.num_labels < 2:
    raise errors.InputError(
      f'{path}, line 1: {wording.count(header.num_labels, "label")}; give a file'
      ' with at least two'
    )
  if not (header.num_examples and header.num_features):
    raise errors.InputError(
      f'{path}, line 1: {wording.count(header.num_examples, "example")} of'
      f' {wording.count(header.num_features, "feature")}; give a file with some'
    )
  return header


def _part(path: str | os.PathLike) -> clients.Part:
  return clients.read((pathlib.Path(path),))
