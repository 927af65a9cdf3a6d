"""Splits in files `user_id,image_id,class`: one line for each example.

Hsu, Qi and Brown (FedVC, FedIR) publish their splits in this form. Columns may
come in any order and beside others, fields may be quoted, and blank lines do not
count. An image_id is an example's number.
"""

import csv
import itertools
import os
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tff_xc import errors
from tff_xc.data import partition as partition_lib

_COLUMNS = ('user_id', 'image_id', 'class')
# Lines that are read at once.
_LINES = 2**16


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
  if not path.is_file():
    raise errors.InputError(
      f"{path} is no file; partition is 'class' or the path of a CSV"
      f' {",".join(_COLUMNS)}'
    )
  line_of = np.zeros(len(labels), np.int64)  # 0: not seen yet.
  users, images = [np.zeros(0, str)], [np.zeros(0, np.int64)]
  for lines in _chunks(path):
    images.append(_images(path, lines, labels, line_of))
    users.append(lines['user_id'].to_numpy(str))
  owners = np.concatenate(users)
  if not len(owners):
    raise errors.InputError(f'{path} has no images; give a line for each')
  if pd.Series(owners).str.fullmatch(r'0|[1-9]\d{0,17}').all():
    owners = owners.astype(np.int64)  # As numbers, 2 sorts before 10.
  return partition_lib.of_owners(owners, np.concatenate(images))


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
  table = pd.DataFrame(
    {
      'user_id': np.array(partition.client_ids)[partition.owners()],
      'image_id': partition.numbers,
      'class': labels[partition.numbers],
    }
  )
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    temporary = pathlib.Path(folder) / path.name
    table.to_csv(temporary, index=False, lineterminator='\n')
    os.replace(temporary, path)


def _chunks(path: pathlib.Path) -> Iterator[pd.DataFrame]:
  """Yields the columns as text, by the lines' numbers.

  The csv module reads them, because pandas takes lines of too many or too few
  fields as it can.
  """
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
      rows = _rows(path, reader, len(header))
      while some := dict(itertools.islice(rows, _LINES)):
        fields = [[row[i].strip() for i in places] for row in some.values()]
        yield pd.DataFrame(fields, pd.Index(list(some)), _COLUMNS)
  except (UnicodeDecodeError, csv.Error) as e:
    raise errors.InputError(
      f'{path} is no CSV text ({e}); give a split file'
    ) from e


def _rows(path, reader, width: int) -> Iterator[tuple[int, list[str]]]:
  """Yields the number and the fields of every line that is not blank."""
  for row in reader:
    if row and len(row) != width:
      raise errors.InputError(
        f'{path}, line {reader.line_num} has {len(row)} fields; expected'
        f' {width}, as in line 1: mend the line'
      )
    if row:
      yield reader.line_num, row


def _images(
  path: pathlib.Path,
  lines: pd.DataFrame,
  labels: np.ndarray,
  line_of: np.ndarray,
) -> np.ndarray:
  """Returns the lines' image ids, int64 [k], and enters them in `line_of`."""
  ids, classes = lines['image_id'], lines['class']
  _refuse(path, lines, lines['user_id'] == '', 'has no user_id: name the user')
  images = pd.to_numeric(ids.where(ids.str.fullmatch(r'\d{1,18}'), '-1'))
  _refuse(
    path,
    lines,
    (images < 0) | (images >= len(labels)),
    f'has image_id {{image_id!r}}; expected 0 to {len(labels) - 1}',
  )
  images = images.to_numpy(np.int64)
  of_data = labels[images].astype(str)
  wrong = (classes != of_data).to_numpy()
  if wrong.any():
    of_data = of_data[np.flatnonzero(wrong)[0]]
  _refuse(
    path,
    lines,
    wrong,
    f'gives image {{image_id}} the class {{class!r}}, and the data {of_data},'
    ' so the image order differs from the official one, or the file belongs to'
    ' other data',
  )
  before = pd.Series(line_of[images], lines.index)
  here = pd.Series(lines.index, lines.index).groupby(images).transform('min')
  before = before.where(before > 0, here)
  again = before < lines.index
  first = before[again].iloc[0] if again.any() else 0
  _refuse(
    path, lines, again, f'has image {{image_id}}, as line {first} already'
  )
  line_of[images] = lines.index
  return images


def _refuse(path, lines: pd.DataFrame, bad, said: str) -> None:
  """Raises InputError for the first bad line, if there is one."""
  places = np.flatnonzero(bad)
  if len(places):
    line = lines.iloc[places[0]]
    raise errors.InputError(
      f'{path}, line {line.name} {said.format(**line)}: mend the line, or give'
      ' another file'
    )
