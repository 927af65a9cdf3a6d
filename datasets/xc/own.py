"""One's own files of sparse text, in the form of `xc.text` and of any size.

A split, as `launch.make_splits` writes it, says whose the examples are, and which of
its labels each keeps: `user_id,image_id,class`, and of a test part without user_id.
An image_id is an example's number from 0. Test examples keep all labels.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import tables
from datasets.splits import by_user
from datasets.splits import hold_out
from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import own as splits
from datasets.splits import split_csv
from datasets.splits import split_folder
from datasets.splits import split_path
from datasets.xc import clients
from datasets.xc import sets
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data

# A stream of numpy generators: [seed, stream].
_TEST = 2
_USER, _ID, _CLASS = split_csv.COLUMNS


def load(
  path: str | os.PathLike,
  choice: splits.Choice,
  *,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
) -> client_data.FederatedDataset:
  """Loads a file of sparse text; a training example keeps one label.

  Args:
    path: as in `read`.
    choice: the clients and the test; its `test_file` is of sparse text. Without a
      split, and with `class`, clients are classes.
    classes_per_client: random classes of each client, if clients are classes.
    clients_per_class: clients that share each class, likewise.

  Raises:
    errors.InputError: as `read`; or the split is damaged, or of other data.
  """
  name = pathlib.Path(path).name.partition('.')[0]
  if choice.is_file:
    return _of_split(path, choice, name)
  train, test = read(path, choice.test_file, choice.test_fraction, choice.seed)
  if choice.iid:
    labels = clients.sample_labels(train.labels, choice.seed)
    iid = splits.at_random(np.arange((labels >= 0).sum()), choice)
    return clients.with_clients(name, train, test, labels, iid)
  return clients.federated(
    name,
    train,
    test,
    label_seed=choice.seed,
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
  )


def read(
  path: str | os.PathLike,
  test_file: str | os.PathLike = '',
  test_fraction: float = 0.0,
  seed: int = 0,
) -> tuple[clients.Part, clients.Part | None]:
  """Reads a training part, and a test part or None.

  Args:
    path: the training examples, a file `N D L`, `l1,l2 f:v f:v`, perhaps .gz.
    test_file: the test examples; empty: as `test_fraction` says.
    test_fraction: the share of the training examples that are taken for the
      test; 0: none.
    seed: of that draw.

  Raises:
    errors.InputError: a file is missing or damaged; both are one, or differ in D or L;
      there are fewer than two labels.
  """
  header = check(path)
  inputs.check_classes(header.num_labels, f'{path}, line 1')
  if test_file:
    splits.check_test_file(test_file, path)
    found = check(test_file)
    if found[1:] != header[1:]:
      raise errors.InputError(
        f'{test_file} has {found.num_features:,} features and'
        f' {found.num_labels:,} labels, and {path} {header.num_features:,} and'
        f' {header.num_labels:,}; give two files of one set'
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
      f'{path}, line 1: {header.num_examples} examples of {header.num_features}'
      ' features; give a file with some'
    )
  return header


def _part(path: str | os.PathLike) -> clients.Part:
  return clients.read((pathlib.Path(path),))


def _of_split(path, choice: splits.Choice, name: str):
  """Returns the data set whose clients, labels and perhaps test a split names."""
  whole, test = read(path, choice.test_file)
  file, folder = pathlib.Path(choice.split), None
  if file.is_dir():
    file, folder = file / split_path.TRAIN, file
  rows = _rows(file, whole.labels, path)
  users, labels = np.full([2, whole.labels.shape[0]], -1, np.int32)
  users[rows.numbers] = rows.users
  labels[rows.numbers] = np.where(rows.users >= 0, rows.labels, -1)
  held = np.zeros(len(labels), bool)
  if folder and not test and (folder / split_folder.TEST).is_file():
    if choice.test_fraction:
      raise errors.InputError(
        f'{folder} has a test part; leave out --test_fraction'
      )
    file = folder / split_folder.TEST
    numbers = _rows(file, whole.labels, path, is_test=True).numbers
    if both := numbers[users[numbers] >= 0].tolist():
      raise errors.InputError(
        f'{folder}: example {both[0]} is a training and a test example; give each'
        ' example to one part'
      )
    held[numbers] = True
  elif choice.test_fraction:
    seed = [choice.seed, _TEST]
    held[hold_out.by_fraction(labels, choice.test_fraction, seed)] = True
  if held.any():
    test, whole = whole.some(held), whole.some(~held)
    users, labels = users[~held], labels[~held]
  owners = users[labels >= 0]
  partition = by_user.of_users(
    owners, rows.user_names, np.unique(owners).tolist()
  )
  return clients.with_clients(name, whole, test, labels, partition)


class _Rows(NamedTuple):
  """The rows of a split's file.

  Attributes:
    numbers: int64 [k], the examples, each once.
    labels: int32 [k], the label that each keeps.
    users: int32 [k], places in `user_names`, -1 for nobody.
    user_names: empty of a test part.
  """

  numbers: np.ndarray
  labels: np.ndarray
  users: np.ndarray
  user_names: Sequence[str]


def _rows(
  path: pathlib.Path, sets_of_labels, data, *, is_test: bool = False
) -> _Rows:
  """Reads a file of a split of `data`, whose examples have these sets of labels."""
  if not path.is_file():
    raise errors.InputError(
      f'{path} is no file; give a CSV {",".join(split_csv.COLUMNS)}, or a folder of'
      ' `python -m launch.make_splits`'
    )
  size, num_classes = sets_of_labels.shape
  parts, users = [], listing_lib.Codes()
  for batch in tables.batches(path, split_csv.COLUMNS[is_test:]):
    numbers = _whole(batch.columns[_ID], size)
    if (bad := np.flatnonzero(numbers == size)).size:
      raise errors.InputError(
        f'{batch.where(bad[0])}: {_ID} is {batch.columns[_ID][bad[0]][:20]!r};'
        f' expected 0 to {size - 1}, the number of an example: give the split of'
        ' these data'
      )
    labels = _whole(batch.columns[_CLASS], num_classes)
    right = labels < num_classes
    found = sets_of_labels[numbers[right], labels[right]]
    right[right] = np.asarray(found).ravel()
    if (bad := np.flatnonzero(~right)).size:
      row, label = bad[0], batch.columns[_CLASS][bad[0]]
      has = sets_of_labels[numbers[row]].indices.tolist()
      cure = 'give the split of these data'
      if is_test:
        cure = 'if it is of another file, give that as --test_file'
      elif ' ' in label:
        cure = 'take another rule than frequent_labels, of one label an example'
      raise errors.InputError(
        f'{batch.where(row)}: example {numbers[row]} has class {label!r} here and'
        f' {" ".join(map(str, has)) or "no label"} in {data}; {cure}'
      )
    parts.append((numbers, labels))
    names = batch.columns.get(_USER, [inputs.NOBODY] * len(labels))
    if '' in names:
      raise errors.InputError(
        f'{batch.where(names.index(""))} has no user_id; name the user'
      )
    users.add(names)
  if not parts:
    raise errors.InputError(f'{path} has no examples; give a line for each')
  numbers, labels = map(np.concatenate, zip(*parts, strict=True))
  again, counts = np.unique(numbers, return_counts=True)
  if (counts > 1).any():
    raise errors.InputError(
      f'{path} has example {again[counts > 1][0]} twice; give each to one user'
    )
  return _Rows(numbers, labels.astype(np.int32), *inputs.named_users(users))


def _whole(texts: Sequence[str], size: int) -> np.ndarray:
  """Returns int64 [rows], numbers below `size`, and `size` for other texts."""
  # int() may refuse longer numbers.
  is_number = lambda text: text.isdecimal() and len(text) < 19
  found = [int(text) if is_number(text) else size for text in texts]
  return np.minimum(np.array(found, np.int64), size)
