"""Splits in files `user_id,image_id,class`: one line for each example.

Hsu, Qi and Brown (FedVC, FedIR) publish their splits in this form. Columns may
come in any order and beside others, fields may be quoted, and blank lines do not
count. An image_id is an example's number.
"""

import csv
import os
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from tff_xc import errors
from tff_xc.data import partition as partition_lib

_COLUMNS = ('user_id', 'image_id', 'class')


def read(
  path: str | os.PathLike, labels: np.ndarray
) -> partition_lib.Partition:
  """Reads a split; clients are users, in the order of their ids.

  Ids that are integers are sorted as numbers. A client's examples keep the
  file's order.

  Args:
    path: the file.
    labels: int [N], the labels of all examples, with which `class` must agree.

  Raises:
    errors.InputError: the file is missing, damaged or does not fit the labels.
  """
  path = pathlib.Path(path)
  users, images = [], []
  line_of = np.zeros(len(labels), np.int64)  # 0: not seen yet.
  for number, (user, image, label) in _lines(path):
    where = f'{path}, line {number}'
    if not image.isdecimal() or int(image) >= len(labels):
      raise errors.InputError(
        f'{where}: image_id is {image!r}; expected 0 to {len(labels) - 1}: mend'
        ' it'
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
    users.append(user)
    images.append(image)
  if not images:
    raise errors.InputError(f'{path} has no images; give a line for each')
  owners = np.array(users)
  if all(user.isdecimal() and user == str(int(user)) for user in set(users)):
    owners = owners.astype(np.int64)  # As numbers, 2 sorts before 10.
  return partition_lib.of_owners(owners, np.array(images))


def write(
  path: str | os.PathLike,
  partition: partition_lib.Partition,
  labels: np.ndarray,
) -> None:
  """Writes a split in one step: after an error the old file is unchanged.

  Args:
    path: the file.
    partition: the clients.
    labels: int [N], the labels of all examples.
  """
  path = pathlib.Path(path)
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    temporary = pathlib.Path(folder) / path.name
    with temporary.open('w', newline='', encoding='utf-8') as file:
      writer = csv.writer(file, lineterminator='\n')
      writer.writerow(_COLUMNS)
      for k, client_id in enumerate(partition.client_ids):
        for image in partition.of_client(k):
          writer.writerow((client_id, image, labels[image]))
    os.replace(temporary, path)


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
