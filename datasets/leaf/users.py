"""The users of a LEAF set, parsed through the cache."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from datasets import examples as examples_lib, parsed_cache
from datasets.leaf import files as leaf_files, json_users
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
  """Puts the fields of `Users` into a store; without `starts`, in their order."""
  if not sum(sizes):
    raise errors.InputError(f'{path}: there are no examples of any user; get the file again')
  sizes = np.array(sizes, np.int64)
  store.append('names', np.array(names, np.str_))
  store.append('sizes', sizes)
  store.append('starts', np.cumsum(sizes) - sizes if starts is None else np.array(starts, np.int64))
  if is_test is not None:
    store.append('is_test', np.array(is_test, bool))


def of_arrays(arrays: Mapping[str, np.ndarray]) -> Users:
  """Returns the users of arrays among which `put` has put them."""
  return Users(arrays['names'].tolist(), arrays['starts'], arrays['sizes'], arrays.get('is_test'))


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

  def fill(store: parsed_cache.Store) -> None:
    users, total = [], 0
    for is_test, paths in enumerate((found.train or found.all, found.test)):
      spans = {}

      def add(where, name, x, y, spans=spans):
        nonlocal total
        if y:
          for key, rows in parse(x, y, where).items():
            store.append(key, rows)
        spans[name] = len(y), total
        total += len(y)

      names = json_users.read_all(paths, add)
      users += [(name, *spans[name], bool(is_test)) for name in names]
    names, sizes, starts, tests = zip(*users, strict=True) if users else [()] * 4
    put(store, found.folder, names, sizes, starts, None if found.all else tests)

  paths = [path for part in found for path in part]
  parts = [len(part) for part in found]
  return parsed_cache.of_files(place, form, VERSION, paths, fill, parts=parts)


def labels(y: list, num_classes: int, where: str, kinds='iu') -> np.ndarray:
  """Returns a user's labels, int32 [k], of whole numbers of these dtypes' kinds."""
  such = ', such as 3 (not 3.0)' if 'f' not in kinds else ''
  expected = f'whole numbers from 0 to {num_classes - 1}{such}'
  try:
    found = np.array(y)
  except ValueError:  # Lists among them.
    refuse(where, 'labels', y, expected)
  # NumPy takes true among numbers for 1.
  is_bad = found.dtype.kind not in kinds or bool in map(type, y)
  if is_bad or found.shape != (len(y),):
    refuse(where, 'labels', y, expected)
  bad = ~((found >= 0) & (found < num_classes) & (found == np.floor(found)))
  if bad.any():
    refuse(where, 'labels', found[bad].tolist(), expected)
  return found.astype(np.int32)


def refuse(where: str, what: str, found, expected: str) -> NoReturn:
  """Raises InputError of a value of the JSON, of which 40 characters are shown."""
  text = repr(found)
  text = text if len(text) <= 40 else text[:37] + '...'
  raise errors.InputError(f'{where}: {what} {text}, expected {expected}; mend the file')


def say(sentence: str) -> None:
  """Tells the user something about the data, on stderr."""
  print(sentence, file=sys.stderr)


def read(files: leaf_files.Files) -> examples_lib.Examples:
  """Lists the examples of all files; those of test users are the test part.

  An example's id is its number: users in the order of "users", training files
  first. Labels that are whole numbers are the classes; others, such as
  Shakespeare's characters, are numbered in their order.
  """
  codes = examples_lib.Codes()
  parts, first = [], 0
  for paths in filter(None, (files.train or files.all, files.test)):
    of_user = {}

    def add(where, name, _, y, of_user=of_user):
      of_user[name] = codes.numbers([_text(label, where) for label in y])

    users = json_users.read_all(paths, add)
    labels = [np.zeros(0, np.int32), *(of_user[name] for name in users)]
    owners = np.repeat(np.arange(len(users), dtype=np.int32), list(map(len, labels[1:])))
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
    *(examples_lib.Examples(classes[labels], names, *others) for labels, *others in parts)
  )


def _text(label, where: str) -> str:
  if isinstance(label, float) and label.is_integer():
    label = int(label)  # CelebA's are 0.0 and 1.0.
  if type(label) not in (str, int):
    refuse(where, 'the label is', label, 'text or a whole number')
  return str(label)
