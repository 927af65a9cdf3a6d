"""The users of a LEAF set: parsed, split, and made clients.

LEAF splits by user: `random.Random(0)` draws 90 % of them to train, and the
images or texts of all others are the test.
"""

import os
import pathlib
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from datasets import parsed_cache
from datasets.leaf import files as leaf_files
from datasets.leaf import json_users
from datasets.splits import hold_out
from datasets.splits import partitions
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool as pool_lib

# Increase this when the arrays of a cache change.
VERSION = 1

# Indices of the fields of `leaf_files.Files`.
_TRAIN, _TEST, _ALL = range(3)


class Users(NamedTuple):
  """Who has which examples of a pool.

  Attributes:
    names: [U]; a user with examples of both parts is there twice.
    starts: int64 [U], the number of the user's first example.
    sizes: int64 [U]; the user's examples have consecutive numbers.
    is_test: bool [U]; None: the users are not split yet.
  """

  names: list[str]
  starts: np.ndarray
  sizes: np.ndarray
  is_test: np.ndarray | None


def read_json(
  place: str | os.PathLike,
  found: leaf_files.Files,
  form: str,
  parse: Callable[[list, list, str], Mapping[str, np.ndarray]],
) -> tuple[Users, Mapping[str, np.ndarray]]:
  """Reads JSON files through the cache, one user's data at a time.

  Args:
    place: the directory whose cache this is.
    found: the files.
    form: names the set and its arrays.
    parse: (x, y, `<file>, user <name>`) -> arrays with a row an example.

  Returns:
    The users, and the arrays with the rows of all users.

  Raises:
    errors.InputError: as `json_users.read` and `parse`; a user is in two files
      of one part; there is no user.
  """
  arrays = parsed_cache.arrays(
    parsed_cache.path(place, form),
    describe(found),
    lambda store: fill(store, found, parse),
  )
  return of_arrays(arrays), arrays


def describe(found: leaf_files.Files) -> dict:
  """Describes JSON files and their parts as a `source` of a cache."""
  listed = _listed(found)
  return parsed_cache.describe_files(
    VERSION, [path for _, path in listed], parts=[part for part, _ in listed]
  )


def of_arrays(arrays: Mapping[str, np.ndarray]) -> Users:
  """Returns the users of arrays that `fill` has made."""
  part = arrays['part']
  return Users(
    [str(name) for name in arrays['names']],
    arrays['starts'],
    arrays['sizes'],
    None if part[0] == _ALL else part == _TEST,
  )


def _listed(found: leaf_files.Files) -> list[tuple[int, pathlib.Path]]:
  return [(part, path) for part, paths in enumerate(found) for path in paths]


def fill(
  store: parsed_cache.Store, found: leaf_files.Files, parse: Callable
) -> None:
  """Reads JSON files into a store, see `read_json`."""
  listed = _listed(found)
  places: dict = {}  # (part, user) -> (file, start, size), in the users' order
  total = 0
  for part, path in listed:
    spans = {}

    def add(name, x, y, part=part, path=path, spans=spans):
      nonlocal total
      if (part, name) in places:
        raise errors.InputError(
          f'{path}, user {name!r} is also in {places[part, name][0]}; keep one '
          'of the two'
        )
      if y:
        for key, rows in parse(x, y, f'{path}, user {name!r}').items():
          store.append(key, rows)
      spans[name] = total, len(y)
      total += len(y)

    for name in json_users.read(path, add):
      places[part, name] = path, *spans[name]
  if not total:
    raise errors.InputError(
      f'{listed[0][1]}: there are no examples of any user; make the file again '
      "with LEAF's preprocess.sh"
    )
  store.append('names', np.array([name for _, name in places], np.str_))
  store.append('part', np.array([part for part, _ in places], np.uint8))
  _, starts, sizes = zip(*places.values(), strict=True)
  store.append('starts', np.array(starts, np.int64))
  store.append('sizes', np.array(sizes, np.int64))


def labels(y: list, num_classes: int, where: str, kinds=(int,)) -> np.ndarray:
  """Returns a user's labels, int32 [k].

  Args:
    y: as in the JSON.
    num_classes: n.
    where: `<file>, user <name>`, for errors.
    kinds: the types that a label may have; its value is whole in any case.

  Raises:
    errors.InputError: a label has another type, is not whole, or is not in
      [0, n).
  """
  for number, label in enumerate(y, 1):
    if type(label) not in kinds or not (
      0 <= label < num_classes and label == int(label)
    ):
      such = ', such as 3 (not 3.0)' if float not in kinds else ''
      raise errors.InputError(
        f'{where}, example {number}: the label is {shown(label)}, expected an '
        f'integer from 0 to {num_classes - 1}{such}; mend the file'
      )
  return np.array(y, np.int32)


def shown(value) -> str:
  """Returns a value of the JSON, at most 40 characters of it."""
  text = repr(value)
  return text if len(text) <= 40 else text[:37] + '...'


def split(users: Users, least: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Returns the indices of training and of test users, int64.

  Users that are not split yet are split as LEAF's split_data does: of those
  with `least` examples, in their order, `random.Random(0)` samples 90 % to
  train.
  """
  if users.is_test is not None:
    return np.flatnonzero(~users.is_test), np.flatnonzero(users.is_test)
  return partitions.leaf_parts(users.sizes, min_examples=least)


def federated(
  name: str,
  num_classes: int,
  pool: pool_lib.Pool,
  users: Users,
  parts: tuple[np.ndarray, np.ndarray],
  *,
  min_examples: int = 1,
  test_examples: int = 0,
  left_out: np.ndarray | None = None,
  exact: bool = True,
) -> client_data.FederatedDataset:
  """Makes the training users clients, and pools the test users' examples.

  Args:
    name: of the data set.
    num_classes: n.
    pool: the examples of all users.
    users: who has which.
    parts: the indices of training and of test users, from `split`.
    min_examples: training and test users with fewer examples are dropped; how
      many is said on stderr.
    test_examples: the test is a uniform sample of this size of the pooled
      examples, the same in every run; 0: all.
    left_out: numbers of examples that nobody has.
    exact: as in `FederatedDataset`.

  Raises:
    errors.InputError: no training user or no test user has `min_examples`.
  """
  kept = np.ones(len(pool), bool)
  if left_out is not None:
    kept[left_out] = False
  train, test = (_owned(users, part, kept, min_examples) for part in parts)
  _check_remaining(name, parts, (train, test), min_examples)
  held_out = hold_out.sample(np.concatenate(list(test.values())), test_examples)
  is_held_out = np.zeros(len(pool), bool)
  is_held_out[held_out] = True
  own = {user: test.get(user, held_out[:0]) for user in train}
  own = {user: mine[is_held_out[mine]] for user, mine in own.items()}
  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(pool, partition.of_clients(train)),
    test=pool.subset(held_out),
    exact=exact,
    held_out=partition.of_clients(own),
  )


def _check_remaining(name: str, parts, remaining, min_examples: int) -> None:
  """Says how many users of each part were dropped; refuses an empty part."""
  for who, part, remain in zip(
    ('training', 'test'), parts, remaining, strict=True
  ):
    if not len(part):
      raise errors.InputError(
        f'{name}: the split leaves no {who} user '
        f'({len(parts[0]):,} to train, {len(parts[1]):,} to test); give data of '
        'more users'
      )
    if not remain:
      raise errors.InputError(
        f'{name}: none of {len(part):,} {who} users has {min_examples} '
        'examples; lower --min_examples, or give data of more users'
      )
  dropped = [
    len(part) - len(remain)
    for part, remain in zip(parts, remaining, strict=True)
  ]
  if any(dropped):
    say(
      f'{name}: left out {dropped[0]:,} of {len(parts[0]):,} training users and '
      f'{dropped[1]:,} of {len(parts[1]):,} test users, who have fewer than '
      f'{min_examples} examples'
    )


def say(sentence: str) -> None:
  """Tells the user something about the data, on stderr."""
  print(sentence, file=sys.stderr)


def _owned(
  users: Users, part: np.ndarray, kept: np.ndarray, least: int
) -> dict[str, np.ndarray]:
  """Returns the kept examples of the users that have at least `least`."""
  found = {}
  for user in part:
    start = users.starts[user]
    mine = start + np.flatnonzero(kept[start : start + users.sizes[user]])
    if len(mine) >= max(least, 1):
      found[users.names[user]] = mine
  return found
