"""The users of a LEAF set, parsed through the cache."""

import os
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets import parsed_cache
from datasets.leaf import files as leaf_files
from datasets.leaf import json_users
from tff_xc import errors

# Increase this when the arrays of a cache change.
VERSION = 2


class Users(NamedTuple):
  """Which examples of a pool, of consecutive numbers, U users have."""

  names: list[str]  # A user with examples of both parts is there twice.
  starts: np.ndarray  # int64, the number of the user's first example.
  sizes: np.ndarray  # int64
  is_test: np.ndarray | None  # bool; None: the users are not split yet.
  left_out: Sequence[int] = ()  # Numbers of examples that nobody has.


def put(
  store: parsed_cache.Store,
  path: str | os.PathLike,
  names: Sequence[str],
  sizes: Sequence[int],
  starts: Sequence[int] | None = None,
  is_test: Sequence[bool] | None = None,
) -> None:
  """Puts users into a store, for `of_arrays`; fields are those of `Users`.

  Without `starts`, users have their examples in their order. Refuses that there
  is no example, and a name that ends in NUL, which NumPy drops.
  """
  if not sum(sizes):
    raise errors.InputError(
      f'{path}: there are no examples of any user; get the file again'
    )
  stored = np.array(names, np.str_)
  if stored.tolist() != list(names):
    raise errors.InputError(
      f'{path}: a name of a user ends in NUL; rename the user'
    )
  sizes = np.array(sizes, np.int64)
  store.append('names', stored)
  store.append('sizes', sizes)
  store.append(
    'starts',
    np.cumsum(sizes) - sizes if starts is None else np.array(starts, np.int64),
  )
  if is_test is not None:
    store.append('is_test', np.array(is_test, bool))


def of_arrays(arrays: Mapping[str, np.ndarray]) -> Users:
  """Returns the users of arrays among which `put` has put them."""
  return Users(
    arrays['names'].tolist(),
    arrays['starts'],
    arrays['sizes'],
    arrays.get('is_test'),
  )


def read_json(
  place: str | os.PathLike,
  found: leaf_files.Files,
  form: str,
  parse: Callable[[list, list, str], Mapping[str, np.ndarray]],
) -> Mapping[str, np.ndarray]:
  """Reads JSON files through the cache of `place`, one user's data at a time.

  `parse` makes of x, y and `<file>, user <name>` arrays with a row an example.
  Returns those of all users, and those of `put`.
  """
  return parsed_cache.arrays(
    parsed_cache.path(place, form),
    describe(found),
    lambda store: fill(store, found, parse),
  )


def describe(found: leaf_files.Files) -> dict:
  """Describes JSON files and their parts as a `source` of a cache."""
  paths = [path for part in found for path in part]
  return parsed_cache.describe_files(
    VERSION, paths, parts=[len(part) for part in found]
  )


def fill(
  store: parsed_cache.Store, found: leaf_files.Files, parse: Callable
) -> None:
  """Reads JSON files into a store, see `read_json`."""
  users, total = [], 0
  for is_test, paths in ((False, found.train or found.all), (True, found.test)):
    spans = {}

    def add(where, name, x, y, spans=spans):
      nonlocal total
      if y:
        for key, rows in parse(x, y, where).items():
          store.append(key, rows)
      spans[name] = len(y), total
      total += len(y)

    names = json_users.read_all(paths, add)
    users += [(name, *spans[name], is_test) for name in names]
  names, sizes, starts, is_test = (
    zip(*users, strict=True) if users else [()] * 4
  )
  where = found.folder
  put(store, where, names, sizes, starts, None if found.all else is_test)


def labels(y: list, num_classes: int, where: str, kinds=(int,)) -> np.ndarray:
  """Returns a user's labels, int32 [k]; `kinds` are the types they may have in
  the JSON."""
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


def say(sentence: str) -> None:
  """Tells the user something about the data, on stderr."""
  print(sentence, file=sys.stderr)


def read(files: leaf_files.Files) -> examples_lib.Examples:
  """Lists the examples of all files; those of test users are the test part.

  An example's id is its number: users in the order of "users", training files
  first, as in the tasks of LEAF's sets. Labels that are whole numbers are the
  classes; others, such as the characters of Shakespeare, are numbered in their
  order.
  """
  codes = examples_lib.Codes()
  parts, first = [], 0
  for paths in filter(None, (files.train or files.all, files.test)):
    of_user = {}

    def add(where, name, _, y, of_user=of_user):
      of_user[name] = codes.numbers([_text(label, where) for label in y])

    users = json_users.read_all(paths, add)
    labels = [np.zeros(0, np.int32), *(of_user[name] for name in users)]
    owners = np.repeat(
      np.arange(len(users), dtype=np.int32), list(map(len, labels[1:]))
    )
    ids = range(first, first + len(owners))
    parts.append((np.concatenate(labels), ids, owners, users))
    first += len(owners)
  found = codes.names
  is_number = found and all(name.isdecimal() for name in found)
  if is_number and max(map(int, found)) < 1 << 20:
    numbers = list(map(int, found))
    names = list(map(str, range(max(numbers) + 1)))
  else:
    names = examples_lib.in_order(found)
    place = {name: i for i, name in enumerate(names)}
    numbers = [place[name] for name in found]
  classes = np.array(numbers, np.int32)
  return examples_lib.of_parts(
    *(
      examples_lib.Examples(classes[labels], names, *others)
      for labels, *others in parts
    )
  )


def _text(label, where: str) -> str:
  if isinstance(label, float) and label.is_integer():
    label = int(label)  # CelebA's are 0.0 and 1.0.
  if type(label) not in (str, int):
    raise errors.InputError(
      f'{where}: the label is {str(label)[:40]}, expected text or a whole number; '
      'mend the file'
    )
  return str(label)
