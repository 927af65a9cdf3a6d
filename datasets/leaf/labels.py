"""Lists who has which labels in LEAF's JSON, for split rules.

Labels that are whole numbers are the classes; others, such as the characters of
Shakespeare, are numbered in their order.
"""

import numpy as np

from datasets import examples as examples_lib
from datasets.leaf import files as leaf_files
from datasets.leaf import json_users
from tff_xc import errors


def read(files: leaf_files.Files) -> examples_lib.Examples:
  """Lists the examples of all files; those of test users are the test part.

  An example's id is its number: users in the order of "users", training files
  first, as in the tasks of LEAF's sets. Refuses a label that is no text and no
  whole number.
  """
  codes = examples_lib.Codes()
  parts, first = [], 0
  for paths in filter(None, (files.train or files.all, files.test)):
    of_user = {}

    def add(where, name, _, y, of_user=of_user):
      of_user[name] = codes.numbers([_text(label, where) for label in y])

    users = json_users.read_all(paths, add)
    labels = [np.zeros(0, np.int32), *(of_user[name] for name in users)]
    sizes = [len(of_user[name]) for name in users]
    owners = np.repeat(np.arange(len(users), dtype=np.int32), sizes)
    ids = range(first, first + len(owners))
    parts.append((np.concatenate(labels), ids, owners, users))
    first += len(owners)
  classes, names = _classes(codes.names)
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


def _classes(names: list[str]) -> tuple[np.ndarray, list[str]]:
  """Returns int32, the class of each label, and the names of all classes."""
  if names and all(name.isdecimal() for name in names):
    classes = np.array([int(name) for name in names])
    if classes.max() < 1 << 20:
      return classes.astype(np.int32), list(map(str, range(classes.max() + 1)))
  ordered = examples_lib.in_order(names)
  place = {name: i for i, name in enumerate(ordered)}
  return np.array([place[name] for name in names], np.int32), ordered
