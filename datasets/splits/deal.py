"""Assigns the user's own examples to clients and to a test set, as `--split` says.

`rules.parse` and `split_path` describe the values of `--split`. `--test_file` or the
split's test.csv names the test examples. Alternatively, `--test_fraction` holds out the same
share of each class as the test set.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets.splits import hold_out, partitions, rules, split_files
from tff_xc import errors, wording
from tff_xc.data import partition as partition_lib

# Each random stream has the seed [seed, stream].
_RULE, _TEST = range(2)


class Choice(NamedTuple):
  """How to make clients and a test set from the user's own data."""

  split: str = ''  # See `rules.parse`.
  test_file: str = ''  # '': use the test set of the split or of the data.
  test_fraction: float = 0.0  # The share of training examples to hold out; 0: none.
  seed: int = 0  # The seed for sampling clients and held-out examples.
  test_examples: int = 0  # The size of a random sample of the test set; 0: all test examples.
  # A file with all class names, one per line; '': the classes of the data.
  classes: str = ''

  @property
  def is_file(self) -> bool:
    """Whether the split is a file or a folder."""
    return rules.parse(self.split) is None


USERS = Choice()


def check_test_file(test_file: str, path: str | os.PathLike) -> None:
  """Raises InputError if the test file is the file of the training examples."""
  if os.path.realpath(test_file) == os.path.realpath(path):
    raise errors.InputError(
      f'--test_file={test_file} is the file of the training examples; name the'
      ' file of the test examples, or give --test_fraction instead'
    )


class Parts(NamedTuple):
  """The training examples of each client, and the test examples."""

  clients: partition_lib.Partition
  test: np.ndarray | None = None  # The indices of the test examples; None: no test set.
  # Each client's own test examples; None: they are not known.
  held_out: partition_lib.Partition | None = None
  # All examples, with the users of the split. Each training example has one label, -1 if it
  # has no client.
  data: examples_lib.Examples | None = None


def parts(
  data: examples_lib.Examples,
  choice: Choice,
  where: str,
  to_name_users: str = '',
  *,
  rule: tuple[str, Mapping, Sequence[int]] | None = None,
  test_stream: int = _TEST,
) -> Parts:
  """Applies the choice to the data: holds out a test set and assigns the rest to clients.

  Users without training examples do not become clients. A training example with a set of
  labels keeps one label: the label in the split file or, without a split file, a random one.
  `rule` (name, settings, seed) replaces the rule that `choice.split` names. `test_stream` is
  the random stream that samples the test set. Raises `errors.InputError` if there are no
  users, if there are two test sets, or if a split is damaged or does not fit the data. In
  error messages, `where` names the data, and `to_name_users` says how the data could name
  users.
  """
  if choice.is_file:
    data = _of_split(data, choice, where)
  elif choice.test_file:
    data = with_test(data, choice.test_file, where)
  users, test = data.users, data.test
  trains = np.zeros(len(data), bool)
  trains[data.train] = True
  by_users = choice.is_file or not choice.split
  if by_users:
    if users is None:
      raise errors.InputError(
        f'{where} does not say which client owns each example; {to_name_users}give'
        ' --split, a FILE.csv or folder of `python -m launch.make_splits`, or'
        ' --split=class, or --split=iid:100 for 100 clients'
      )
    trains &= users >= 0
  if choice.test_fraction:
    if test is not None:
      raise errors.InputError(
        f'{where} has test examples, or --split or --test_file names them; leave'
        ' out --test_fraction'
      )
    by = data.labels if data.has_sets else np.where(trains, data.labels, -1)
    seed = [choice.seed, test_stream]
    test = hold_out.by_fraction(by, choice.test_fraction, seed)
    trains[test] = False
  test = sampled(test, choice, where)
  numbers = np.flatnonzero(trains)
  if not by_users:
    some = data.some(numbers)
    some = dataclasses.replace(some, labels=examples_lib.sample_labels(some.labels, choice.seed))
    name, settings, seed = rule or (*rules.parse(choice.split), [choice.seed, _RULE])
    try:
      clients = rules.deal(name, some, seed, **settings).train
    except errors.InputError as e:
      raise errors.InputError(f'--split={choice.split}: {rules.without_dashes(e)}') from e
    clients = dataclasses.replace(clients, numbers=numbers[clients.numbers])
    labels = np.full(len(data), -1, np.int32)
    labels[numbers] = some.labels
    return Parts(clients, test, None, dataclasses.replace(data, labels=labels))
  some = np.unique(users[numbers])
  if not len(some):
    raise errors.InputError(
      f'{where}: no training example has a user (NA is nobody); give other users,'
      ' or --split=class, or --split=iid:100'
    )

  def of_users(part: np.ndarray) -> partition_lib.Partition:
    owners = np.full(len(users), -1)
    owners[part] = users[part]
    return partitions.of_users(owners, data.user_names, some.tolist())

  held_out = None if test is None else of_users(test)
  return Parts(of_users(numbers), test, held_out, data)


def sampled(test: np.ndarray | None, choice: Choice, where: str) -> np.ndarray | None:
  """Samples `choice.test_examples` test examples; 0: returns all test examples."""
  if not choice.test_examples:
    return test
  if test is None:
    raise errors.InputError(
      f'--test_examples={choice.test_examples}: {where} has no test part; give'
      ' --test_file or --test_fraction, or leave out --test_examples'
    )
  return hold_out.sample(test, choice.test_examples)


def described(size: int, noun: str, class_names: Sequence, tests: int, clients: int) -> str:
  """Describes a data set: `60 images of 4 classes (cat, dog, ...), 6 of them test; 6 clients`.

  `size` is the number of all examples, and `tests` is the number of test examples.
  """
  first = [wording.shown(name) for name in class_names[:3]]
  first = [n if len(n) < 30 else f'{n[:27]}...' for n in first]
  if len(class_names) > len(first):
    first.append('...')
  test = f'{tests:,} of them test' if tests else 'no test part'
  return (
    f'{wording.count(size, noun)} of {wording.count(len(class_names), "class")}'
    f' ({", ".join(first)}), {test}; {wording.count(clients, "client")}'
  )


def with_test(data: examples_lib.Examples, test_file: str, where: str) -> examples_lib.Examples:
  """Marks the examples that a CSV file `image_id,class` names as test examples."""
  _check_no_test(data, where)
  split = split_files.read_file(test_file)
  test = split_files.join(data, split, split.examples.train, where)
  return dataclasses.replace(data, test=test)


def _check_no_test(data: examples_lib.Examples, where: str) -> None:
  if data.test is not None:
    raise errors.InputError(
      f'{where} has test examples, and --test_file names others; leave out --test_file'
    )


def _of_split(data: examples_lib.Examples, choice: Choice, where: str) -> examples_lib.Examples:
  """Returns the examples with the users and the test set of a split file."""
  if choice.test_file:
    _check_no_test(data, where)
  split = split_files.read(choice.split, choice.test_file, sets=data.has_sets)
  named = split.examples
  if named.retrieval is not None:
    raise errors.InputError(
      f'{choice.split} has a {split_files.RETRIEVAL}, which only images have'
      f' (--task=images), and {where} is other data; take that file away'
    )
  numbers, kept = _joined(data, split, named.train, where)
  users = np.full(len(data), -1, np.int32)
  users[numbers] = named.users[named.train]
  labels = data.labels
  if data.has_sets:
    labels = np.full(len(data), -1, np.int32)
    labels[numbers] = np.where(users[numbers] >= 0, kept, -1)
  of_split = dataclasses.replace(data, labels=labels, users=users, user_names=named.user_names)
  if data.test is not None or named.test is None:
    return of_split
  test, _ = _joined(data, split, named.test, where)
  if both := np.flatnonzero(users[test] >= 0).tolist():
    raise errors.InputError(
      f'{choice.split}: example {data.ids_of(test[both[:1]])[0]!r} is a training'
      ' and a test example; give each example to one part'
    )
  users[test] = named.users[named.test]
  return dataclasses.replace(of_split, test=test)


def _joined(data, split, rows: np.ndarray, where: str):
  """Returns the indices of the examples that `rows` of a split file name, and their labels.

  The label of an example is the class in its row. For examples with sets of labels, the
  class must be one number.
  """
  classes = np.array(split.class_ids)[split.examples.labels[rows]]
  if not data.has_sets:
    return split_files.join(data, split, rows, where), classes
  if not (one := np.char.isdecimal(classes)).all():
    row = int(np.argmin(one))
    raise errors.InputError(
      f'{split.where(rows[row])} has the class {str(classes[row])!r}, which is not'
      ' one label; take another rule than frequent_labels, and if the test is of'
      ' another file, give that as --test_file'
    )
  return split_files.join(data, split, rows, where), classes.astype(int)
