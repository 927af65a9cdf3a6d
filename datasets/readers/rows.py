"""Reads rows of numbers from a table (`datasets.readers.tables`).

A row has a class, features, and optionally a user, an id and a mark for test rows. In
Parquet and JSON, a column of lists of k numbers is k features. Classes are sorted by name.
If all names are whole numbers, they are sorted as numbers.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from datasets import examples as examples_lib
from datasets.readers import tables, zipped
from tff_xc import errors, memory

_IS_TEST = {
  **dict.fromkeys(('test', 'true', '1', 'yes'), True),
  **dict.fromkeys(('train', 'false', '0', 'no', '', 'none', 'nan'), False),
}
_BOOL = {
  **dict.fromkeys(('true', 'True', 'TRUE'), 1.0),
  **dict.fromkeys(('false', 'False', 'FALSE'), 0.0),
}


class Columns(NamedTuple):
  """The columns of a table."""

  label: str = 'class'  # The column of classes, which are text or numbers.
  user: str = ''  # Empty: 'user_id', if the table has this column.
  id: str = ''  # The rows' ids in split files. Empty: 'image_id', if the table has this column.
  # The column that marks test rows with test, true, 1 or yes, and training rows with train,
  # false, 0, no or nothing. Empty: all rows are training rows.
  test: str = ''
  features: tuple[str, ...] = ()  # Empty: all other columns that hold numbers.


DEFAULT = Columns()


def read(
  path: str | os.PathLike, columns: Columns, features: Sequence[str] = ()
) -> tuple[np.ndarray, list[str], examples_lib.Examples]:
  """Reads a table; `features` names the columns of features.

  If `features` is empty, `columns.features` names these columns. Returns the features,
  float64 [N, D], the names of their columns, and the examples. Raises
  `errors.InputError` if the file is missing or damaged, lacks a column, has a feature that
  is not a finite number, or has an empty class, user or id.
  """
  path = pathlib.Path(path)
  found = header(path)
  explicit = list(filter(None, (columns.user, columns.id, columns.test)))
  tables.present(path, found, [columns.label, *explicit], tables.NAME_THEM)
  others = {columns.label, *explicit, *({'user_id', 'image_id'} & {*found})}
  names = list(features or columns.features)
  if not features and (len({*names}) < len(names) or others & {*names}):
    raise errors.InputError(
      f'--feature_columns={",".join(names)}: a column is given twice, or is that of the class,'
      ' the user, the id or the test; leave it out'
    )
  tables.present(path, found, names)
  if not names:
    names = tables.without_index(path, found)
    names = _of_numbers(path, [name for name in names if name not in others])
  parts, marks, widths = [], [], {}

  def use(batch: tables.Batch) -> None:
    if columns.test:
      marks.extend(_marks(batch, columns.test))
    of_columns = []
    for name in names:
      x = numbers(batch, name)
      if x.shape[1] != widths.setdefault(name, x.shape[1]):
        raise errors.InputError(
          f'{batch.where(0)} or below: the lists of the column {name!r} have another length than in'
          ' earlier rows; give lists of one length'
        )
      of_columns.append(x)
    parts.append(np.hstack(of_columns))
    what = f'{batch.where(-1)} and what is before it'
    memory.require(sum(part.nbytes for part in parts), what, 'give a smaller table')

  data = tables.examples(
    path,
    tables.Columns(columns.label, columns.user or None, columns.id or None),
    raw=list(filter(None, [*names, columns.test])),
    use=use,
  )
  if not parts:
    raise errors.InputError(f'{path} has no rows; give a table with some')
  if columns.test:
    data = dataclasses.replace(data, test=np.flatnonzero(marks))
  return np.concatenate(parts), names, data


def blocks(
  path: str | os.PathLike, description, size: int, label_column: str = ''
) -> Iterator[examples_lib.Block]:
  """Yields the rows of a table for a trained model; raises the errors of `read`."""
  found, how = header(path), description.preprocessing
  label = label_column or how.get('label', DEFAULT.label)
  if label_column or label in found:
    tables.present(path, found, [label], 'name another --label_column')
  else:
    label = ''
  names = how.get('columns') or [n for n in tables.without_index(path, found) if n != label]
  tables.present(path, found, names, "give the model's columns")
  [width] = description.shape
  for batch in tables.batches(path, [*filter(None, [label]), *names]):
    x = np.hstack([numbers(batch, name) for name in names])
    if x.shape[1] != width:
      raise errors.InputError(f'{path} has {x.shape[1]} features, and the model takes {width}')
    labels = [(text,) for text in batch.texts(label)] if label else None
    for start in range(0, len(x), size):
      part = slice(start, start + size)
      names_of_rows = list(map(str, batch.places[part]))
      yield examples_lib.Block(names_of_rows, (x[part],), labels and labels[part])


def _of_numbers(path: pathlib.Path, names: Sequence[str]) -> list[str]:
  """Returns the columns that have numbers in the first batch of rows.

  Other columns may be large. Later batches do not read them.
  """
  batch = next(tables.batches(path, names), None)
  if batch is None:
    return []
  found = []
  for name in names:
    column = _series(batch.columns[name])
    if _holds_numbers(column):
      found.append(name)
    else:
      _tell_unused(batch, name, column)
  if not found:
    raise errors.InputError(f'{path} has no column of numbers; give --feature_columns=NAME,NAME')
  return found


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of a table's columns; raises the errors of `read`."""
  path = pathlib.Path(path)
  if not tables.form(path) or not zipped.is_file(path):
    raise errors.InputError(
      f'{path} is no file of a table; give {", ".join(tables.FORMS)} or .npz (an array in a .npy'
      ' becomes one with numpy.savez(FILE, x=..., y=..., client=...))'
    )
  return tables.header(path)


def parsed(column: pd.Series) -> pd.Series:
  """Converts cells to numbers. Other cells, and numbers too large for float64, become NaN."""
  try:
    found = pd.to_numeric(column, errors='coerce')
  except OverflowError:  # A whole number in JSON may have any number of digits.
    found = pd.to_numeric(column.map(str), errors='coerce')
  return found.replace([np.inf, -np.inf], np.nan)


def _series(values) -> pd.Series:
  """Returns a column. If all cells are numbers, or all are true or false, its dtype is float64."""
  column = pd.Series(values, dtype=object if isinstance(values, list) else None)
  if column.dtype.kind == 'M':
    return column.astype(str)
  with contextlib.suppress(TypeError, OverflowError):  # JSON has lists and huge numbers.
    for found in (parsed(column), column.map(_BOOL)):
      if found.notna().all():
        return found.astype(np.float64)
  return column


def _holds_numbers(column: pd.Series) -> bool:
  """Whether most cells are numbers. In a feature column, other cells raise an error later."""
  if column.dtype != object or _is_lists(column):
    return column.dtype == object or column.dtype.kind in 'fiub'
  try:
    return parsed(column).notna().mean() > 0.5
  except TypeError:  # The cells are objects of JSON.
    return False


def _tell_unused(batch: tables.Batch, name: str, column: pd.Series) -> None:
  """Prints a warning if a column of text has numbers with decimal commas, such as 0,5."""
  texts = column.map(str)
  if parsed(texts.str.replace(',', '.')).notna().mean() >= 0.5:
    row = int(parsed(texts).isna().argmax())
    print(
      f'warning: {batch.where(row)}: {name!r} is {texts[row][:40]!r} and not used as a feature;'
      ' to use it, write numbers such as 1.5 in all rows',
      file=sys.stderr,
    )


def _is_lists(column: pd.Series) -> bool:
  return column.dtype == object and any(isinstance(cell, np.ndarray | list) for cell in column)


def numbers(batch: tables.Batch, name: str) -> np.ndarray:
  """Returns a column as float64 [rows, 1], or [rows, k] if its cells are lists."""
  column = _series(batch.columns[name])
  try:
    if _is_lists(column):
      x = np.stack(column).astype(np.float64)
    else:
      x = parsed(column).to_numpy(np.float64)[:, None]
  except (ValueError, TypeError, OverflowError) as e:
    raise errors.InputError(
      f'{batch.where(0)} or below: column {name!r} has neither numbers nor lists of numbers of'
      ' one length; make them so, or take other columns'
    ) from e
  bad = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))
  if len(bad):
    row = bad[0][0]
    raise errors.InputError(
      f'{batch.where(row)}: {name!r} is {str(column.iloc[row])[:40]!r}; expected a'
      ' finite number: mend it, leave the row out, or take other columns'
    )
  return x


def _marks(batch: tables.Batch, column: str) -> list[bool]:
  """Returns whether each row is marked as a test row."""
  values = batch.columns[column]
  texts = [str(value).strip().lower().removesuffix('.0') for value in values]
  for row, text in enumerate(texts):
    if text not in _IS_TEST:
      raise errors.InputError(
        f'{batch.where(row)}: {column!r} is {str(values[row])!r}; expected test,'
        ' train, true, false, 1, 0: mend it, or leave the row out'
      )
  return [_IS_TEST[text] for text in texts]
