"""Reads splits of sparse text, as `launch.make_splits` writes them.

  user_id,image_id,class    of clients; of a test part without user_id

An image_id is an example's number from 0, and class is the one of its labels that
it keeps.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets import tables
from datasets.splits import inputs
from datasets.splits import split_files
from tff_xc import errors

_USER, _ID, _CLASS = split_files.COLUMNS


class Rows(NamedTuple):
  """The rows of a file.

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


def read(
  path: str | os.PathLike,
  labels: scipy.sparse.csr_matrix,
  data: str | os.PathLike,
  *,
  is_test: bool = False,
) -> Rows:
  """Reads a split, or its test part.

  Args:
    path: the CSV.
    labels: bool [N, n], of the examples.
    data: their file, for errors.
    is_test: whether the file has no users.

  Raises:
    errors.InputError: the file is missing or damaged, or of other data; its
      classes are sets of labels.
  """
  if not os.path.isfile(path):
    raise errors.InputError(
      f'{path} is no file; give a CSV {",".join(split_files.COLUMNS)}, or a folder of'
      ' `python -m launch.make_splits`'
    )
  columns = split_files.COLUMNS[is_test:]
  numbers, classes, users = [], [], examples_lib.Codes()
  for batch in tables.batches(path, columns):
    found = _numbers(batch, _ID, labels.shape[0])
    numbers.append(found)
    classes.append(_classes(batch, found, labels, data, is_test))
    if is_test:
      users.add([inputs.NOBODY] * len(found))
      continue
    if '' in batch.columns[_USER]:
      where = batch.where(batch.columns[_USER].index(''))
      raise errors.InputError(f'{where} has no user_id; name the user')
    users.add(batch.columns[_USER])
  if not numbers:
    raise errors.InputError(f'{path} has no examples; give a line for each')
  numbers = np.concatenate(numbers)
  again, counts = np.unique(numbers, return_counts=True)
  if (counts > 1).any():
    raise errors.InputError(
      f'{path} has example {again[counts > 1][0]} twice; give each to one user'
    )
  return Rows(numbers, np.concatenate(classes), *inputs.named_users(users))


def _numbers(batch: tables.Batch, column: str, size: int) -> np.ndarray:
  """Returns int64 [rows], numbers below `size`."""
  texts = batch.columns[column]
  # int() may refuse longer numbers.
  is_number = lambda text: text.isdecimal() and len(text) < 20
  found = [int(text) if is_number(text) else size for text in texts]
  row = next((i for i, number in enumerate(found) if number >= size), None)
  if row is not None:
    raise errors.InputError(
      f'{batch.where(row)}: {column} is {texts[row][:20]!r}; expected 0 to'
      f' {size - 1}, the number of an example: give the split of these data'
    )
  return np.array(found, np.int64)


def _classes(
  batch: tables.Batch, numbers: np.ndarray, labels, data, is_test: bool
) -> np.ndarray:
  """Returns int32 [rows], one label of each of these examples."""
  texts, size = batch.columns[_CLASS], labels.shape[1]
  is_number = lambda text: text.isdecimal() and len(text) < 10
  found = [int(text) if is_number(text) else size for text in texts]
  found = np.array([min(label, size) for label in found], np.int32)
  right = found < size
  right[right] = np.asarray(labels[numbers[right], found[right]]).ravel()
  if right.all():
    return found
  row = int(np.flatnonzero(~right)[0])
  has = ' '.join(map(str, labels[numbers[row]].indices.tolist())) or 'no label'
  cure = 'give the split of these data'
  if is_test:
    cure = 'if it is of another file, give that as --test_file'
  elif ' ' in texts[row]:
    cure = 'take another rule than frequent_labels, of one label an example'
  raise errors.InputError(
    f'{batch.where(row)}: example {numbers[row]} has class {texts[row]!r} here and'
    f' {has} in {data}; {cure}'
  )
