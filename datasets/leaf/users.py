"""Parses LEAF's JSON and caches the result.

A file is one JSON object:

{"users": ["f1", ...], "num_samples": [12, ...],
 "user_data": {"f1": {"x": [...], "y": [...]}, ...}}

Its keys may come in any order. The reader skips other keys, such as "hierarchies".
Caldas et al.: LEAF: a benchmark for federated settings, 2018.
"""

import collections
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from datasets import examples as examples_lib
from datasets.leaf import files as leaf_files
from datasets.readers import json_stream, parsed_cache
from tff_xc import errors

# Increase this when the cached arrays change.
VERSION = 4
_GET_IT = "make the file again with LEAF's preprocess.sh"


class Users(NamedTuple):
  """The examples of each of U users in a pool. A user's examples are consecutive."""

  # A user with training and test examples is listed twice.
  names: list[str]
  starts: np.ndarray  # int64 [U], the index of each user's first example.
  sizes: np.ndarray  # int64 [U], the number of each user's examples.
  is_test: np.ndarray | None  # bool [U]; None: the users are not split yet.
  left_out: Sequence[int] = ()  # The indices of examples that are left out.


def put(
  path: str | os.PathLike,
  names: Sequence[str],
  sizes: Sequence[int],
  is_test: Sequence[bool] | None = None,
) -> dict[str, np.ndarray]:
  """Returns the fields of `Users` as arrays; users' examples follow each other."""
  if not sum(sizes):
    raise errors.InputError(f'{path}: there are no examples of any user; get the file again')
  sizes = np.array(sizes, np.int64)
  found = {
    'names': np.array(names, np.str_),
    'sizes': sizes,
    'starts': np.cumsum(sizes) - sizes,
  }
  return found if is_test is None else {**found, 'is_test': np.array(is_test, bool)}


def of_arrays(arrays: Mapping[str, np.ndarray]) -> Users:
  """Makes `Users` from the arrays of `put`."""
  return Users(arrays['names'].tolist(), arrays['starts'], arrays['sizes'], arrays.get('is_test'))


def read_all(
  paths: Iterable[pathlib.Path], parse: Callable[[list, list, str], Any]
) -> dict[str, Any]:
  """Reads files that have no user in common; returns a result of `parse` for each user.

  The users have the order of "users". The arguments of `parse` are the lists x and y of a
  user, which have the same length, and `<file>, user <name>` for error messages. Raises
  `errors.InputError` if a file is not LEAF's JSON, or "users" and "user_data" have different
  users.
  """
  found, seen = {}, {}
  for path in paths:
    names, there = _names(path), {}
    for name, data in json_stream.values(path, 'user_data', _GET_IT, pairs=True):
      where = f'{path}, user {name!r}'
      x, y = (data.get(key) if isinstance(data, dict) else None for key in ('x', 'y'))
      if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        raise errors.InputError(
          f'{where}: expected an object with the lists "x" and "y" of one length; {_GET_IT}'
        )
      if name in seen:
        raise errors.InputError(f'{where} is there twice, also in {seen[name]}; keep one of them')
      seen[name] = path
      there[name] = parse(x, y, where)
    if different := {*names} ^ {*there}:
      raise errors.InputError(
        f'{path}: "users" and "user_data" do not agree about user {min(different)!r}; {_GET_IT}'
      )
    found |= {name: there[name] for name in names}
  return found


def _names(path: pathlib.Path) -> list[str]:
  """Returns the list "users" without reading the rest of the file."""
  names = next(json_stream.values(path, 'users', _GET_IT), None)
  if not isinstance(names, list) or {*map(type, names)} - {str} or len({*names}) < len(names):
    raise errors.InputError(
      f'{path}: expected an object with "users", a list of different texts, and "user_data";'
      f' {_GET_IT}'
    )
  return names


def count_users(paths: Iterable[pathlib.Path]) -> int | None:
  """Counts the users without reading their data; returns None if a file is damaged."""
  try:
    return len({name for path in paths for name in _names(path)})
  except errors.InputError:  # `read_all` reports the error.
    return None


def read_json(
  place: str | os.PathLike,
  found: leaf_files.Files,
  form: str,
  parse: Callable[[list, list, str], Mapping[str, np.ndarray]],
) -> Mapping[str, np.ndarray]:
  """Reads JSON files, one user's data at a time, and caches the result for `place`.

  `parse` takes x, y and `<file>, user <name>`, and returns arrays with one row per example.
  The result has these arrays, joined over all users, and the arrays of `put`.
  """

  def make() -> dict[str, np.ndarray]:
    users, columns = [], collections.defaultdict(list)
    for is_test, paths in enumerate((found.train or found.all, found.test)):
      parsed = read_all(paths, lambda x, y, where: (len(y), parse(x, y, where) if y else {}))
      for name, (size, arrays) in parsed.items():
        users.append((name, size, bool(is_test)))
        for key, rows in arrays.items():
          columns[key].append(rows)
    names, sizes, tests = zip(*users, strict=True) if users else [()] * 3
    fields = put(found.folder, names, sizes, None if found.all else tests)
    return {**fields, **{key: np.concatenate(rows) for key, rows in columns.items()}}

  paths = [path for part in found for path in part]
  parts = [len(part) for part in found]
  return parsed_cache.of_files(place, form, VERSION, paths, make, parts=parts)


def labels(y: list, num_classes: int, where: str, kinds='iu') -> np.ndarray:
  """Converts a user's labels, whole numbers of a dtype kind in `kinds`, to int32 [k]."""
  try:
    found = np.array(y)
    right = found.dtype.kind in kinds and found.shape == (len(y),)
  except ValueError:  # Some labels are lists.
    right = False
  # NumPy converts true in a list of numbers to 1.
  right = right and bool not in map(type, y) and (found == np.floor(found)).all()
  if not right or found.min() < 0 or found.max() >= num_classes:
    refuse(where, 'labels', y, f'whole numbers from 0 to {num_classes - 1}')
  return found.astype(np.int32)


def refuse(where: str, what: str, found, expected: str) -> NoReturn:
  """Raises an InputError that shows the first 40 characters of a value of the JSON."""
  raise errors.InputError(f'{where}: {what} {found!r:.40}, expected {expected}; mend the file')


def say(sentence: str) -> None:
  """Prints a sentence about the data on stderr."""
  print(sentence, file=sys.stderr)


def read(files: leaf_files.Files) -> examples_lib.Examples:
  """Lists the examples of all files; the examples of test users are the test set.

  An example's id is its index. Examples are sorted by user in the order of "users",
  training files first. If all labels are whole numbers below 2^20, they are the class numbers.
  Other labels, such as Shakespeare's characters, are sorted and numbered.
  """
  users = [
    read_all(paths, lambda _, y, where: [_text(label, where) for label in y])
    for paths in (files.train or files.all, files.test)
  ]
  labels_of = [labels for part in users for labels in part.values()]
  codes = examples_lib.Codes()
  codes.add(itertools.chain(*labels_of))
  labels, names = examples_lib.sorted_codes(codes)
  if names and all(name.isdecimal() and len(name) < 19 for name in names):
    numbers = np.array(list(map(int, names)))
    if numbers.max() < 1 << 20:
      labels = numbers.astype(np.int32)[labels]
      names = list(map(str, range(numbers.max() + 1)))
  sizes = np.fromiter(map(len, labels_of), np.int64)
  owners = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
  test = np.flatnonzero(owners >= len(users[0])) if files.test else None
  return examples_lib.Examples(
    labels, names, range(len(labels)), owners, [*users[0]], test, test_user_names=[*users[1]]
  )


def _text(label, where: str) -> str:
  if isinstance(label, float) and label.is_integer():
    label = int(label)  # CelebA's labels are 0.0 and 1.0.
  if type(label) not in (str, int):
    refuse(where, 'the label is', label, 'text or a whole number')
  return str(label)
