"""Tables of features (`datasets.tables` reads them).

A row has a class, perhaps a user, an id and a mark of the test part, and
numbers. A column of lists of one length, in Parquet and JSON, is as many features.
"""

import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from datasets import tables
from tff_xc import errors
from tff_xc import memory

_IS_TEST = {
  **dict.fromkeys(('test', 'true', '1', 'yes'), True),
  **dict.fromkeys(('train', 'false', '0', 'no', '', 'none', 'nan'), False),
}
_BOOL = {
  n: float(n.lower() == 'true')
  for n in ('true', 'True', 'TRUE', 'false', 'False', 'FALSE')
}


class Columns(NamedTuple):
  """The columns of a table.

  Attributes:
    label: the classes, text or numbers.
    user: the users; empty: 'user_id', if the table has it.
    id: what a split calls the rows; empty: 'image_id', if the table has it.
    test: marks test rows by test, true, 1 or yes, and others by train, false, 0,
      no or nothing; empty: no row is marked.
    features: empty: all others that hold numbers.
  """

  label: str = 'class'
  user: str = ''
  id: str = ''
  test: str = ''
  features: tuple[str, ...] = ()


DEFAULT = Columns()


class Table(NamedTuple):
  """The rows of a file, or of two.

  Attributes:
    x: float64 [N, D], finite.
    features: the names of their columns.
    labels: [N].
    users: [N], or empty if the table has none.
    ids: [N], or empty.
    is_test: bool [N]; None: no row is marked.
  """

  x: np.ndarray
  features: list[str]
  labels: list[str]
  users: list[str]
  ids: list[str]
  is_test: np.ndarray | None


def read(
  path: str | os.PathLike, columns: Columns, features: Sequence[str] = ()
) -> Table:
  """Reads a table.

  Args:
    path: the file.
    columns: their names.
    features: the features that it must have; none: as `columns` says.

  Raises:
    errors.InputError: the file is missing or damaged, lacks a column, has an
      empty class, user or id, or a feature that is no finite number.
  """
  path = pathlib.Path(path)
  found = header(path)
  roles = _roles(path, found, columns)
  names = list(features) or _candidates(path, found, columns, roles)
  _require(path, found, names)
  test = roles.pop('test', '')
  text, parts, marks, size = {role: [] for role in roles}, [], [], 0

  def batches():
    raw = list(filter(None, [*names, test]))
    return tables.batches(path, list(roles.values()), raw=raw)

  if not (features or columns.features):
    # Columns without numbers may be large: the rest of the file is read without.
    for batch in itertools.islice(batches(), 1):
      names = _of_numbers(path, _frame(batch, names), roles)
  for batch in batches():
    frame = _frame(batch, names)
    for role, column in roles.items():
      if '' in batch.columns[column]:
        where = batch.where(batch.columns[column].index(''))
        raise errors.InputError(
          f"{where}: {column!r} is ''; expected {role}: fill it in, or leave the"
          ' row out'
        )
      text[role] += batch.columns[column]
    if test:
      marks += _marks(batch, test)
    parts.append(_numbers(frame, names, batch))
    size += parts[-1].nbytes
    what = f'{batch.where(-1)} and what is before it'
    memory.require(size, what, 'give a smaller table')
  if not parts:
    raise errors.InputError(f'{path} has no rows; give a table with some')
  return Table(
    np.concatenate(parts),
    names,
    text['class'],
    text.get('user', []),
    text.get('id', []),
    np.array(marks, bool) if test else None,
  )


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of a table's columns; errors are those of `read`."""
  path = pathlib.Path(path)
  if not tables.form(path):
    raise errors.InputError(
      f'{path} is no table; give {", ".join(tables.FORMS)} or .npz'
    )
  if not path.is_file():
    raise errors.InputError(f'{path} is no file; give a table')
  return tables.header(path)


def _frame(batch: tables.Batch, names: Sequence[str]) -> pd.DataFrame:
  return pd.DataFrame({name: _series(batch.raw[name]) for name in names})


def _series(values) -> pd.Series:
  """Returns a column: float64 if all its cells are numbers."""
  if hasattr(values, 'to_pandas'):
    return values.to_pandas()
  column = pd.Series(values, dtype=object)
  try:
    numbers = pd.to_numeric(column, 'coerce')
    if not numbers.notna().all():
      numbers = column.map(_BOOL)
  except TypeError:  # JSON's lists and objects.
    return column
  return numbers.astype(np.float64) if numbers.notna().all() else column


def _marks(batch: tables.Batch, column: str) -> list[bool]:
  """Returns whether each row is marked as one of the test."""
  values = batch.raw[column]
  values = values.to_pylist() if hasattr(values, 'to_pylist') else values
  texts = [str(value).strip().lower().removesuffix('.0') for value in values]
  for row, text in enumerate(texts):
    if text not in _IS_TEST:
      raise errors.InputError(
        f'{batch.where(row)}: {column!r} is {str(values[row])!r}; expected test,'
        ' train, true, false, 1, 0: mend it, or leave the row out'
      )
  return [_IS_TEST[text] for text in texts]


def _roles(path, found: list[str], columns: Columns) -> dict[str, str]:
  """Returns the column of each role: 'class', 'user', 'id', 'test'."""
  _require(path, found, [columns.label], ': name it with --label_column')
  roles = {'class': columns.label}
  for role, column, otherwise in (
    ('user', columns.user, 'user_id'),
    ('id', columns.id, 'image_id'),
    ('test', columns.test, ''),
  ):
    if column:
      _require(path, found, [column])
      roles[role] = column
    elif otherwise in found:
      roles[role] = otherwise
  return roles


def _require(path, found, wanted: Sequence[str], hint: str = '') -> None:
  for name in wanted:
    if name not in found:
      shown = ', '.join(map(str, found))
      shown = shown if len(shown) < 200 else f'{shown[:200]} ...'
      raise errors.InputError(
        f'{path} has no column {name!r}, it has {shown}'
        + (hint or '; name another column')
      )


def _candidates(path, found, columns: Columns, roles) -> list[str]:
  """Returns the columns of features: those named, or all that may be."""
  if not columns.features:
    # A column without a name is the rows' index, as pandas writes it.
    return [name for name in found if name and name not in roles.values()]
  for name in columns.features:
    if name in roles.values() or columns.features.count(name) > 1:
      raise errors.InputError(
        f'--feature_columns: {name!r} is given twice, or is the column of the'
        ' class, the user, the id or the test; leave it out'
      )
  return list(columns.features)


def _of_numbers(path, frame, roles) -> list[str]:
  """Returns the columns of a frame that hold numbers."""
  features = [name for name in frame.columns if _holds_numbers(frame[name])]
  if not features:
    raise errors.InputError(
      f'{path} has no column of numbers beside {", ".join(roles.values())};'
      ' give --feature_columns=NAME,NAME'
    )
  return features


def _holds_numbers(column: pd.Series) -> bool:
  """Whether most cells are numbers; a feature's other cells are errors."""
  if column.dtype.kind in 'fiub' or _is_lists(column):
    return True
  if column.dtype != object:
    return False  # Dates, for example.
  try:
    return pd.to_numeric(column, 'coerce').notna().mean() > 0.5
  except TypeError:  # JSON's objects.
    return False


def _is_lists(column: pd.Series) -> bool:
  return column.dtype == object and any(
    isinstance(cell, np.ndarray | list) for cell in column
  )


def _numbers(frame, features: Sequence[str], batch: tables.Batch) -> np.ndarray:
  """Returns float64 [rows, D]."""
  try:
    x = frame[list(features)].to_numpy(np.float64)
  except (ValueError, TypeError):  # Lists, or cells that are no numbers.
    x = np.hstack([_column(frame[name], name, batch) for name in features])
  bad = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))
  if not len(bad):
    return x
  row, place = bad[0]
  name, cell = f'feature {place}', x[row, place]
  if x.shape[1] == len(features):
    name = repr(features[place])
    cell = frame[features[place]].iloc[row]
  raise errors.InputError(
    f'{batch.where(row)}: {name} is {str(cell)[:40]!r}; expected a finite number:'
    ' mend it, leave the row out, or name other --feature_columns'
  )


def _column(column: pd.Series, name: str, batch: tables.Batch) -> np.ndarray:
  """Returns float64 [rows, 1], or [rows, k] of a column of lists."""
  if not _is_lists(column):
    return pd.to_numeric(column, 'coerce').to_numpy(np.float64)[:, None]
  try:
    return np.stack(column.tolist()).astype(np.float64)
  except (ValueError, TypeError) as e:
    raise errors.InputError(
      f'{batch.where(0)} or below: the lists of column {name!r} are not numbers of'
      ' one length; make them so, or name other --feature_columns'
    ) from e
