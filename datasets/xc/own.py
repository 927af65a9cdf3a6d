"""One's own files of sparse text, in the form of `xc.text` and of any size.

A split (`splits.split_files`) says whose the examples are, and which of its labels
each keeps. Test examples keep all labels.
"""

import dataclasses
import os
import pathlib

import numpy as np

from datasets import examples as examples_lib
from datasets.splits import client_parts, hold_out, own as splits
from datasets.xc import clients, sets
from tff_xc import errors, wording
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
  whole, test = read(path, choice.test_file)
  data, rule = examples_lib.of_labels(whole.labels), None
  if test:
    data = dataclasses.replace(data, test=np.zeros(0, np.int64))  # Elsewhere.
  if choice.is_class:
    shared = {'classes_per_client': classes_per_client, 'clients_per_class': clients_per_class}
    rule = 'classes_per_client', shared, [choice.seed, clients.GROUPS]
  found = splits.parts(
    data,
    choice._replace(split=choice.split or 'class', test_file=''),
    str(path),
    rule=rule,
    test_stream=_TEST,
  )
  held = np.zeros(len(data), bool)
  labels, users = found.data.labels, found.data.users
  if found.test is not None:
    held[found.test] = True
  if held.any():
    test, whole = whole.some(held), whole.some(~held)
  place = np.cumsum(~held & (labels >= 0)) - 1
  partition = dataclasses.replace(found.clients, numbers=place[found.clients.numbers])
  made = clients.with_clients(name, whole, test, labels[~held], partition)
  if found.held_out is None or not held.any():
    return made
  owners = users[~held & (labels >= 0)]
  return client_parts.with_own_test(made, choice.seed, (owners, users[held]))


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
      f'{path}, line 1: {wording.count(header.num_labels, "label")}; give a file with at least two'
    )
  if not (header.num_examples and header.num_features):
    raise errors.InputError(
      f'{path}, line 1: {wording.count(header.num_examples, "example")} of'
      f' {wording.count(header.num_features, "feature")}; give a file with some'
    )
  return header


def _part(path: str | os.PathLike) -> clients.Part:
  return clients.read((pathlib.Path(path),))
