"""Lists who has which labels in LEAF's JSON, for split rules.

Labels that are whole numbers are the classes; others, such as the characters of
Shakespeare, are numbered in their order.
"""

import pathlib

import numpy as np

from datasets import examples as examples_lib
from datasets.leaf import files as leaf_files
from datasets.leaf import json_users
from tff_xc import errors


def read(files: leaf_files.Files) -> examples_lib.Examples:
  """Lists the examples of all files; those of test users are the test part.

  An example's id is its number: users in the order of "users", training files
  first, as in the tasks of LEAF's sets.

  Raises:
    errors.InputError: as `json_users.read`; a user is in two files of one part;
      a label is no text and no whole number.
  """
  labels = examples_lib.Codes()
  parts = [
    _Part(paths, labels) for paths in (files.train or files.all, files.test)
  ]
  of_code, class_names = _classes(labels.names)
  first = 0
  listings = []
  for part in parts:
    size = len(part.labels)
    listings.append(
      examples_lib.Examples(
        of_code[part.labels],
        class_names,
        range(first, first + size),
        np.repeat(np.arange(len(part.sizes), dtype=np.int32), part.sizes),
        part.users,
      )
    )
    first += size
  return examples_lib.of_parts(*listings[: 1 + bool(files.test)])


class _Part:
  """The users of some files, and their labels as codes, int32 [k]."""

  def __init__(self, paths, labels: examples_lib.Codes):
    self.users, self.sizes, found = [], [], []
    of_user = {}

    def add(path, name, y):
      if name in of_user:
        raise errors.InputError(
          f'{path}, user {name!r} is in another file, too; keep one of the two'
        )
      of_user[name] = labels.numbers([_text(v, path, name) for v in y])

    for path in paths:
      reading = examples_lib.watched_rows(
        _users(path, add), f'reading {path.name}', lambda _: 1
      )
      for name in reading:
        self.users.append(name)
        self.sizes.append(len(of_user[name]))
        found.append(of_user[name])
    self.labels = np.concatenate([np.zeros(0, np.int32), *found])


def _users(path: pathlib.Path, add):
  yield from json_users.read(path, lambda name, x, y: add(path, name, y))


def _text(label, path, user: str) -> str:
  if isinstance(label, float) and label.is_integer():
    label = int(label)  # CelebA's are 0.0 and 1.0.
  if type(label) not in (str, int):
    raise errors.InputError(
      f'{path}, user {user!r}: the label is {str(label)[:40]}, expected text or a'
      ' whole number; mend the file'
    )
  return str(label)


def _classes(names: list[str]) -> tuple[np.ndarray, list[str]]:
  """Returns int32, the class of each label, and the names of all classes."""
  if names and all(name.isdecimal() for name in names):
    classes = np.array([int(name) for name in names])
    if classes.max() < 1 << 20:
      return classes.astype(np.int32), list(map(str, range(classes.max() + 1)))
  ordered = examples_lib.in_order(names)
  place = {name: i for i, name in enumerate(ordered)}
  return np.array([place[name] for name in names], np.int32), ordered
