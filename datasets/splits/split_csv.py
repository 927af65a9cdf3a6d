"""Splits in files `user_id,image_id,class`: one line for each example.

Hsu, Qi and Brown (FedVC, FedIR) publish their splits in this form. Columns may
come in any order and beside others, fields may be quoted, and blank lines do not
count. An image_id is an example's number.
"""

import csv
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

import numpy as np
import scipy.sparse

from tff_xc import errors
from tff_xc.data import partition as partition_lib

_COLUMNS = ('user_id', 'image_id', 'class')
_NUMBER = re.compile('0|[1-9][0-9]*')


def read(
  path: str | os.PathLike, labels: np.ndarray
) -> partition_lib.Partition:
  """Reads a split; clients are users, in the order of their ids.

  If all ids are integers, they are sorted as numbers. A client's examples keep
  the file's order. Spaces around a field do not count: users whose ids differ
  only in them are one client.

  Args:
    path: the file.
    labels: int [N], the labels of all examples, with which `class` must agree.

  Raises:
    errors.InputError: the file is missing, damaged or does not fit the labels.
  """
  path = pathlib.Path(path)
  _check_single(labels)
  clients = {}
  line_of = np.zeros(len(labels), np.int64)  # 0: not seen yet.
  for number, (user, image, label) in _lines(path):
    where = f'{path}, line {number}'
    # int() may refuse longer numbers.
    short = len(image) < 20
    if not (image.isdecimal() and short and int(image) < len(labels)):
      raise errors.InputError(
        f'{where}: image_id is {image[:20]!r}; expected 0 to'
        f' {len(labels) - 1}: mend it'
      )
    image = int(image)
    if label != str(labels[image]):
      raise errors.InputError(
        f'{where}: image {image} has class {label!r} here and {labels[image]}'
        ' in the data, so the image order differs from the official one, or the'
        ' file belongs to other data; give the official files as --data_dir'
      )
    if line_of[image]:
      raise errors.InputError(
        f'{where}: image {image} is in line {line_of[image]} already; give each'
        ' image to one user'
      )
    if not user:
      raise errors.InputError(f'{where} has no user_id; name the user')
    line_of[image] = number
    clients.setdefault(user, []).append(image)
  if not clients:
    raise errors.InputError(f'{path} has no images; give a line for each')
  numbers = all(map(_NUMBER.fullmatch, clients))
  # Of numbers without leading zeros, the longer one is larger.
  key = (lambda user: (len(user), user)) if numbers else None
  return partition_lib.of_clients(
    {u: clients[u] for u in sorted(clients, key=key)}
  )


def write(
  path: str | os.PathLike,
  partition: partition_lib.Partition,
  labels: np.ndarray,
) -> None:
  """Writes a split in one step: after an error the old file is unchanged.

  `read` returns the clients sorted by id, and none without examples.

  Args:
    path: the file.
    partition: the clients.
    labels: int [N], the labels of all examples.

  Raises:
    errors.InputError: the folder is missing, or labels are sets.
  """
  path = pathlib.Path(path)
  _check_single(labels)
  if not path.parent.is_dir():
    raise errors.InputError(
      f'{path.parent} is no folder; make it, or write the split elsewhere'
    )
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    temporary = pathlib.Path(folder) / path.name
    with temporary.open('w', newline='', encoding='utf-8') as file:
      writer = csv.writer(file, lineterminator='\n')
      writer.writerow(_COLUMNS)
      for k, client_id in enumerate(partition.client_ids):
        for image in partition.of_client(k):
          writer.writerow((client_id, image, labels[image]))
    os.replace(temporary, path)


def _check_single(labels) -> None:
  if scipy.sparse.issparse(labels):
    raise errors.InputError(
      'a split file has one class for each image; examples with sets of labels'
      ' need other clients'
    )


def _lines(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
  """Yields (line number, [user_id, image_id, class]) of every line.

  The csv module reads them: pandas accepts lines of too few or too many fields.
  """
  if not path.is_file():
    raise errors.InputError(
      f"{path} is no file; partition is 'class' or the path of a CSV"
      f' {",".join(_COLUMNS)}'
    )
  try:
    with path.open(newline='', encoding='utf-8-sig') as file:
      reader = csv.reader(file)
      header = next(reader, [])
      if not set(_COLUMNS) <= set(header):
        raise errors.InputError(
          f'{path}, line 1 is {",".join(header)!r}; expected the columns'
          f' {",".join(_COLUMNS)}: give a split file'
        )
      places = [header.index(column) for column in _COLUMNS]
      for row in filter(None, reader):
        if len(row) != len(header):
          raise errors.InputError(
            f'{path}, line {reader.line_num} has {len(row)} fields; expected'
            f' {len(header)}, as in line 1: mend the line'
          )
        yield reader.line_num, [row[i].strip() for i in places]
  except (UnicodeDecodeError, csv.Error) as e:
    raise errors.InputError(
      f'{path} is no CSV text ({e}); give a split file'
    ) from e
