"""Splits in files `user_id,image_id,class`: one line for each example.

Hsu, Qi and Brown (FedVC, FedIR) publish their splits in this form, and test parts
as `image_id,class`. Columns may come in any order and beside others, fields may
be quoted, and blank lines do not count. An image_id is an example's number, or
its name in a folder or table. Of examples with sets of labels, `class` has them
separated by spaces.
"""

import csv
import itertools
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np
import scipy.sparse

from datasets import tables
from datasets import zip_members
from datasets.splits import listing as listing_lib
from datasets.splits import split_path
from tff_xc import errors
from tff_xc.data import partition as partition_lib
from tff_xc.report import run_files

COLUMNS = ('user_id', 'image_id', 'class')


def read(
  path: str | os.PathLike,
  labels: np.ndarray | scipy.sparse.csr_matrix,
  ids: listing_lib.Texts | Sequence[str] | None = None,
) -> partition_lib.Partition:
  """Reads a split; clients are users, in the order of their ids.

  If all ids are integers, they are sorted as numbers. A client's examples keep
  the file's order. Spaces around a field do not count: users whose ids differ
  only in them are one client. An example with a set of labels may be with several
  users, and several times.

  Args:
    path: the file, or a folder or zip with it, see `split_path`.
    labels: int [N], or sets of labels [N, n], with which `class` must agree.
    ids: [N], what the file calls the examples; None: 0 to N - 1.

  Raises:
    errors.InputError: the file is missing, damaged or does not fit the labels.
  """
  named = split_path.parse(path)
  path = _file(named.train, 'a split is the path of a CSV')
  users, parts = listing_lib.Codes(), []
  finder = _Finder(labels, ids)
  columns = (named.user, *COLUMNS[1:])
  tables.require(path, columns, split_path.OTHER_COLUMNS)
  for batch in tables.batches(path, columns):
    parts.append(finder.numbers(batch))
    names = batch.columns[named.user]
    if '' in names:
      raise errors.InputError(
        f'{batch.where(names.index(""))} has no {named.user}; name the user'
      )
    users.add(names)
  if not parts:
    raise errors.InputError(f'{path} has no images; give a line for each')
  owners, names = listing_lib.sorted_codes(users)
  by_client = partition_lib.of_places(owners, names)
  return partition_lib.Partition(
    names, by_client.offsets, np.concatenate(parts)[by_client.numbers]
  )


def read_test(
  path: str | os.PathLike,
  labels: np.ndarray | scipy.sparse.csr_matrix,
  ids: listing_lib.Texts | Sequence[str] | None = None,
) -> np.ndarray:
  """Reads a test part; returns its examples' numbers, int64 [k].

  Arguments and errors are those of `read`; a column user_id is ignored.
  """
  path = _file(path, f'give a CSV {",".join(COLUMNS[1:])}')
  tables.require(path, COLUMNS[1:], split_path.OTHER_COLUMNS)
  finder = _Finder(labels, ids)
  parts = [finder.numbers(b) for b in tables.batches(path, COLUMNS[1:])]
  return np.concatenate([np.zeros(0, np.int64), *parts])


def write(
  path: str | os.PathLike,
  partition: partition_lib.Partition,
  labels: np.ndarray | scipy.sparse.csr_matrix,
  ids: listing_lib.Texts | range | None = None,
) -> None:
  """Writes a split in one step: after an error the old file is unchanged.

  `read` returns the clients sorted by id, and none without examples.

  Args:
    path: the file.
    partition: the clients.
    labels: the labels of all examples, as of `read`.
    ids: [N], what to call the examples; None: 0 to N - 1.

  Raises:
    errors.InputError: the folder is missing; a client's id is empty or begins or
      ends with a space.
  """
  for name in partition.client_ids:
    if not name or name != name.strip():
      raise errors.InputError(
        f'the user {name!r} is empty, or begins or ends with a space; rename it'
      )
  offsets = partition.offsets

  def rows(places):
    clients = np.searchsorted(offsets, places, 'right') - 1
    numbers = partition.numbers[places]
    return (
      [partition.client_ids[k] for k in clients.tolist()],
      listing_lib.ids_of(ids or range(labels.shape[0]), numbers),
      _texts(labels, numbers),
    )

  write_rows(path, COLUMNS, map(rows, _watched_blocks(len(partition.numbers))))


def write_test(
  path: str | os.PathLike,
  numbers: np.ndarray,
  labels: np.ndarray | scipy.sparse.csr_matrix,
  ids: listing_lib.Texts | range,
) -> None:
  """Writes the test part that has these examples, as `write`."""

  def rows(places):
    chosen = numbers[places]
    return listing_lib.ids_of(ids, chosen), _texts(labels, chosen)

  write_rows(path, COLUMNS[1:], map(rows, _watched_blocks(len(numbers))))


def write_rows(
  path: str | os.PathLike, header: Sequence[str], blocks: Iterable[Sequence]
) -> None:
  """Writes a CSV in one step; a block has a list for each column."""
  path = pathlib.Path(path)
  if not path.parent.is_dir():
    raise errors.InputError(
      f'{path.parent} is no folder; make it, or write the split elsewhere'
    )
  with (
    run_files.replacing(path) as temporary,
    temporary.open('w', newline='', encoding='utf-8') as file,
  ):
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(header)
    for columns in blocks:
      writer.writerows(zip(*columns, strict=True))


def _watched_blocks(size: int):
  return listing_lib.watched_rows(
    listing_lib.blocks(size), 'writing', len, size
  )


def _file(path, otherwise: str) -> pathlib.Path:
  path = pathlib.Path(path)
  if not zip_members.is_file(path):
    raise errors.InputError(
      f'{path} is no file; {otherwise} {",".join(COLUMNS)}'
    )
  return path


def _texts(labels, numbers: np.ndarray) -> list[str]:
  """Returns the labels of these examples as a split file has them."""
  if not scipy.sparse.issparse(labels):
    return list(map(str, labels[numbers].tolist()))
  found = labels[numbers]
  ids = list(map(str, found.indices.tolist()))
  ends = found.indptr.tolist()
  return [' '.join(ids[a:b]) for a, b in itertools.pairwise(ends)]


class _Finder:
  """Finds a file's examples, and checks their classes."""

  def __init__(self, labels, ids: listing_lib.Texts | Sequence[str] | None):
    self._labels = labels
    self._size = labels.shape[0]
    self._places = ids and {name: i for i, name in enumerate(ids)}
    # 0: not seen yet. An example with a set of labels may be seen again.
    self._line_of = (
      None if scipy.sparse.issparse(labels) else np.zeros(self._size, np.int64)
    )

  def numbers(self, batch: tables.Batch) -> np.ndarray:
    """Returns the numbers of a batch's examples, int64 [rows]."""
    images, classes = batch.columns['image_id'], batch.columns['class']
    found = [self._number(image) for image in images]
    if None in found:
      row = found.index(None)
      raise errors.InputError(
        f'{batch.where(row)}: image_id is {images[row][:20]!r}; expected'
        f' {self._expected()}: mend it'
      )
    numbers = np.array(found, np.int64)
    if (right := _texts(self._labels, numbers)) != classes:
      row = next(i for i, text in enumerate(classes) if text != right[i])
      raise errors.InputError(
        f'{batch.where(row)}: image {images[row]} has class {classes[row]!r}'
        f' here and {right[row]} in the data, so the image order differs from'
        ' the official one, or the file belongs to other data; give the official'
        ' files as --data_dir'
      )
    if self._line_of is not None:
      self._check_new(batch, numbers)
    return numbers

  def _number(self, image: str) -> int | None:
    if self._places:
      return self._places.get(image)
    # int() may refuse longer numbers.
    if image.isdecimal() and len(image) < 20 and int(image) < self._size:
      return int(image)
    return None

  def _expected(self) -> str:
    if not self._places:
      return f'0 to {self._size - 1}'
    return f'an id of the data, such as {next(iter(self._places))!r}'

  def _check_new(self, batch: tables.Batch, numbers: np.ndarray) -> None:
    """Raises InputError if an example is in the file twice."""
    _, first = np.unique(numbers, return_index=True)
    again = np.ones(len(numbers), bool)
    again[first] = False
    again |= self._line_of[numbers] > 0
    rows = np.flatnonzero(again)
    lines = np.array(batch.places, np.int64)
    if len(rows):
      row = rows[0]
      before = self._line_of[numbers[row]]
      before = before or lines[np.flatnonzero(numbers == numbers[row])[0]]
      raise errors.InputError(
        f'{batch.where(row)}: image {batch.columns["image_id"][row]} is in line'
        f' {before} already; give each image to one user'
      )
    self._line_of[numbers] = lines
