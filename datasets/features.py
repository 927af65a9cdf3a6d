"""One's own rows of features as federated data: a table (`datasets.tables`) or `.npz`.

A row has a class, perhaps a user, an id and a mark of the test part, and
numbers. A column of lists of one length, in Parquet and JSON, is as many features.
Classes of a table are numbered in the order of their names, whole numbers as
numbers. Features are standardised by the rows that clients hold: less their
mean, over their standard deviation. (A deployed system would compute both from
the clients' sums.)
"""

import dataclasses
import itertools
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from datasets import arrays as arrays_lib, examples as examples_lib, tables
from datasets.splits import inputs, own
from tff_xc import errors, memory, wording
from tff_xc.data import client_data, fingerprint

# Rows at a time.
_ROWS = 1 << 14
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

  label: str = 'class'  # The classes, text or numbers.
  user: str = ''  # Empty: 'user_id', if the table has it.
  id: str = ''  # What a split calls the rows. Empty: 'image_id', likewise.
  # Marks test rows by test, true, 1 or yes, and others by train, false, 0, no or
  # nothing. Empty: no row is marked.
  test: str = ''
  features: tuple[str, ...] = ()  # Empty: all others that hold numbers.


DEFAULT = Columns()


def load(
  path: str | os.PathLike,
  choice: own.Choice,
  columns: Columns = DEFAULT,
  *,
  standardise: bool = True,
  bounds: Mapping[str, tuple[float, float]] | None = None,
) -> client_data.FederatedDataset:
  """Loads a table, or a .npz (`datasets.arrays`), of features; `x` is float32 [D].

  The `test_file` of the choice is a second table. With `bounds`, the least and the
  largest number of a column by its name, or of all others by '', features are scaled so
  that these become -1 and 1, in place of the mean and deviation of the rows. Raises `errors.InputError` for a
  file that is missing or damaged, lacks a column, has a feature that is no finite
  number, or fewer than two classes.
  """
  path = pathlib.Path(path)
  name, class_names, names = path.name.partition('.')[0], None, []
  if path.suffix.lower() == '.npz':
    name = path.stem
    if columns != DEFAULT:
      raise errors.InputError(
        f'{path} has arrays and no columns; leave out --label_column,'
        ' --user_column, --id_column, --test_column and --feature_columns'
      )
    arrays = read_arrays(path)
    if choice.test_file:
      raise errors.InputError(
        f'--test_file={choice.test_file}: the test rows of {path} are its arrays'
        ' test_x and test_y; leave the flag out'
      )
    class_names = arrays_lib.listed(arrays, choice.classes)
    found = arrays_lib.parts(path, arrays, choice, class_names)
  else:
    x, names, data = _of_tables(path, choice.test_file, columns)
    data = data.listed(choice.classes)
    arrays, class_names = {'x': x, 'y': data.labels}, data.class_names
    rest = choice._replace(test_file='')
    found = own.parts(data, rest, str(path), 'name --user_column, or ')
    # An unnamed id would be a feature.
    shown = ', '.join(names)
    shown = shown if len(shown) < 200 else f'{shown[:200]} ...'
    how = ', standardised by the training rows' if standardise else ''
    how = ', scaled by --feature_bounds' if bounds else how
    count = wording.count(len(names), 'feature')
    print(f'{path}: {count}{how}: {shown}', file=sys.stderr)
  present = arrays_lib.present(arrays)
  raw = [arrays[f'{part}x'] for part in present]
  labels = [arrays[f'{part}y'] for part in present]
  preprocessing = {'columns': names, 'label': columns.label} if names else {}
  moments = 0.0, 1.0
  if standardise and len(rows := found.clients.numbers):
    moments = _of_bounds(bounds, names, raw[0].shape[1], path) if bounds else _moments(raw[0], rows)
    named = zip(('mean', 'deviation'), moments, strict=True)
    preprocessing |= {name: of_all.tolist() for name, of_all in named}
  for part, x in zip(present, raw, strict=True):
    arrays[f'{part}x'] = _scaled(x, *moments)
  return arrays_lib.federated(
    name,
    arrays,
    found,
    exact=False,  # Processors add in different orders.
    source_checksum=_checksum(*raw, *labels, found.test),
    class_names=class_names,
    preprocessing=preprocessing,
  )


def _of_tables(
  path: pathlib.Path, test_file: str, columns: Columns
) -> tuple[np.ndarray, list[str], examples_lib.Examples]:
  """Reads a table, and perhaps a second one, whose rows are the test."""
  x, names, data = read(path, columns)
  if test_file:
    if data.test is not None:
      raise errors.InputError(
        f'{path} has test rows, marked by {columns.test!r}; leave out --test_file or --test_column'
      )
    own.check_test_file(test_file, path)
    columns_of_test = columns._replace(user='', id='', test='')
    more, _, other = read(test_file, columns_of_test, names)
    if more.shape[1] != x.shape[1]:
      raise errors.InputError(
        f'{test_file} has {more.shape[1]} features and {path} {x.shape[1]}; give rows of one form'
      )
    x, data = np.concatenate([x, more]), _with_test(data, other)
  where = f'{path}: the column {columns.label!r}'
  examples_lib.require_two(len(data.class_names), where, 'give at least two')
  return x, names, data


def _with_test(data: examples_lib.Examples, other: examples_lib.Examples) -> examples_lib.Examples:
  """Returns the rows of both; those of `other` have no ids and are the test."""
  names = examples_lib.in_order({*data.class_names, *other.class_names})
  place = {name: i for i, name in enumerate(names)}
  labels = [
    np.array([place[name] for name in part.class_names], np.int32)[part.labels]
    for part in (data, other)
  ]
  users = data.users
  if users is not None:
    users = np.append(users, np.full(len(other), -1, np.int32))
  return dataclasses.replace(
    data,
    labels=np.concatenate(labels),
    class_names=names,
    users=users,
    test=np.arange(len(data), len(data) + len(other)),
  )


def read(
  path: str | os.PathLike, columns: Columns, features: Sequence[str] = ()
) -> tuple[np.ndarray, list[str], examples_lib.Examples]:
  """Reads a table; it must have `features`, or if none are given, what `columns` says.

  Returns finite features, float64 [N, D], the names of their columns, and the rows
  without them. Raises `errors.InputError` as `load`, and for an empty class, user
  or id.
  """
  path = pathlib.Path(path)
  found = header(path)
  explicit = list(filter(None, (columns.user, columns.id, columns.test)))
  tables.present(path, found, [columns.label, *explicit], inputs.NAME_THEM)
  others = {columns.label, *explicit}
  others |= {usual for usual in ('user_id', 'image_id') if usual in found}
  names = list(features or columns.features)
  for place, name in enumerate(columns.features if not features else ()):
    if name in (*others, *names[:place]):
      raise errors.InputError(
        f'--feature_columns: {name!r} is given twice, or is the column of the'
        ' class, the user, the id or the test; leave it out'
      )
  tables.present(path, found, names)
  if not names:
    names = tables.without_index(path, found)
    names = _of_numbers(path, [name for name in names if name not in others])
  parts, marks = [], []

  def use(batch: tables.Batch) -> None:
    if columns.test:
      marks.extend(_marks(batch, columns.test))
    parts.append(np.hstack([numbers(batch, name) for name in names]))
    what = f'{batch.where(-1)} and what is before it'
    size = sum(part.nbytes for part in parts)
    memory.require(size, what, 'give a smaller table')

  data = inputs.table(
    path,
    inputs.Columns(columns.label, columns.user or None, columns.id or None),
    raw=list(filter(None, [*names, columns.test])),
    use=use,
  )
  if not parts:
    raise errors.InputError(f'{path} has no rows; give a table with some')
  if columns.test:
    data = dataclasses.replace(data, test=np.flatnonzero(marks))
  return np.concatenate(parts), names, data


def _of_numbers(path: pathlib.Path, names: Sequence[str]) -> list[str]:
  """Returns the columns that hold numbers in the first batch of rows.

  The others may be large: the rest of the file is read without them.
  """
  found = []
  for batch in itertools.islice(tables.batches(path, [], raw=names), 1):
    for name in names:
      column = _series(batch.raw[name])
      if _holds_numbers(column):
        found.append(name)
      else:
        _tell_unused(batch, name, column)
    if not found:
      raise errors.InputError(f'{path} has no column of numbers; give --feature_columns=NAME,NAME')
  return found


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of a table's columns; errors are those of `read`."""
  path = pathlib.Path(path)
  if not tables.form(path):
    raise errors.InputError(
      f'{path} is no table; give {", ".join(tables.FORMS)} or .npz (an array in a .npy'
      ' becomes one with numpy.savez(FILE, x=..., y=..., client=...))'
    )
  if not path.is_file():
    raise errors.InputError(f'{path} is no file; give a table')
  return tables.header(path)


def _series(values) -> pd.Series:
  """Returns a column: float64 if all its cells are numbers, or true and false."""
  if not isinstance(values, list):
    return pd.Series(values.astype(str) if values.dtype.kind == 'M' else values)
  column = pd.Series(values, dtype=object)
  try:
    numbers = _parsed(column)
    if not numbers.notna().all():
      numbers = column.map(_BOOL)
  except (TypeError, OverflowError):  # JSON's lists, objects and largest numbers.
    return column
  return numbers.astype(np.float64) if numbers.notna().all() else column


def _parsed(column: pd.Series) -> pd.Series:
  """Returns numbers, NaN for a cell that is none; JSON's may be too large for any."""
  try:
    return pd.to_numeric(column, 'coerce')
  except OverflowError:
    return pd.to_numeric(column.map(str), 'coerce')


def _holds_numbers(column: pd.Series) -> bool:
  """Whether most cells are numbers; a feature's other cells are errors."""
  if column.dtype.kind in 'fiub' or _is_lists(column):
    return True
  if column.dtype != object:
    return False  # Of pandas' categories, for example.
  try:
    return _parsed(column).notna().mean() > 0.5
  except TypeError:  # JSON's objects.
    return False


def _tell_unused(batch: tables.Batch, name: str, column: pd.Series) -> None:
  """Warns of a column of text that was probably meant to be numbers."""
  texts = column.map(str).str.strip()
  others = _parsed(texts).isna()
  distinct = texts.drop_duplicates().str.replace(',', '.')
  if others.any() and _parsed(distinct).notna().mean() >= 0.5:
    row = int(others.argmax())
    print(
      f'warning: {batch.where(row)}: {name!r} is {texts[row][:40]!r}, and'
      f' {others.sum():,} of its first {len(texts):,} values are no numbers, so it is'
      ' no feature; write numbers such as 1.5 in all rows to use it',
      file=sys.stderr,
    )


def _is_lists(column: pd.Series) -> bool:
  return column.dtype == object and any(isinstance(cell, np.ndarray | list) for cell in column)


def numbers(batch: tables.Batch, name: str) -> np.ndarray:
  """Returns float64 [rows, 1], or [rows, k] of a column of lists."""
  column = _series(batch.raw[name])
  is_lists = _is_lists(column)
  try:
    x = np.stack(column) if is_lists else column.to_numpy()[:, None]
    x = x.astype(np.float64)
  except (ValueError, TypeError, OverflowError) as e:
    if is_lists:
      raise errors.InputError(
        f'{batch.where(0)} or below: the lists of column {name!r} are not numbers'
        ' of one length; make them so, or take other columns'
      ) from e
    x = _parsed(column).to_numpy(np.float64)[:, None]
  bad = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))
  if len(bad):
    row = bad[0][0]
    raise errors.InputError(
      f'{batch.where(row)}: {name!r} is {str(column.iloc[row])[:40]!r}; expected a'
      ' finite number: mend it, leave the row out, or take other columns'
    )
  return x


def _marks(batch: tables.Batch, column: str) -> list[bool]:
  """Returns whether each row is marked as one of the test."""
  values = batch.raw[column]
  texts = [str(value).strip().lower().removesuffix('.0') for value in values]
  for row, text in enumerate(texts):
    if text not in _IS_TEST:
      raise errors.InputError(
        f'{batch.where(row)}: {column!r} is {str(values[row])!r}; expected test,'
        ' train, true, false, 1, 0: mend it, or leave the row out'
      )
  return [_IS_TEST[text] for text in texts]


def read_arrays(path: str | os.PathLike) -> arrays_lib.Arrays:
  """Reads a .npz of features and checks it; errors are those of `load`."""
  arrays = arrays_lib.read(path)
  for part in arrays_lib.present(arrays):
    x, what = arrays[f'{part}x'], f'{path}: {part}x'
    if x.ndim != 2 or not x.shape[1] or x.dtype.kind not in 'fiub':
      raise errors.InputError(
        f'{what} is {x.dtype} {list(x.shape)}; expected numbers [N, D], a row of D'
        ' features for each example; images are --task=images'
      )
    for start in range(0, len(x), _ROWS):
      block = x[start : start + _ROWS].astype(np.float64)
      bad = np.argwhere(~(np.abs(block) <= np.finfo(np.float32).max))
      if len(bad):
        row, column = bad[0]
        raise errors.InputError(
          f'{what}[{start + row}, {column}] is {block[row, column]}; expected'
          ' finite numbers: mend it, or leave the row out'
        )
  return arrays


def _moments(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns mean and deviation of some rows, float64 [D]; 1 where nothing varies."""
  first = x[rows[0]].astype(np.float64)
  mean = _mean(x, rows, lambda x: x)
  deviation = np.sqrt(_mean(x, rows, lambda x: (x - mean) ** 2))
  # The mean of equal numbers is rounded, so that they seem to deviate from it.
  varies = _mean(x, rows, lambda x: x != first) > 0
  return mean, np.where(varies & (deviation > 0), deviation, 1.0)


def _of_bounds(bounds, names: Sequence[str], size: int, path):
  """Returns the middle and half the width of each feature's bounds, float64 [D]."""
  # Of arrays, and of columns of lists, features have no names.
  names = names if len(names) == size else [''] * size
  wrong = [name for name in bounds if name and name not in names]
  wrong += [name for name in names if not {name, ''} & bounds.keys()]
  if wrong:
    raise errors.InputError(
      f'--feature_bounds: {wording.shown(wrong[0])!r} is no single feature of {path}, or'
      ' has no bounds; give LOW:HIGH of all features, or NAME=LOW:HIGH of each'
    )
  pairs = np.array([bounds.get(name) or bounds[''] for name in names])
  return pairs.mean(axis=1), (pairs[:, 1] - pairs[:, 0]) / 2


def _scaled(x: np.ndarray, mean, deviation) -> np.ndarray:
  """Returns a float32 copy, less the mean and over the deviation."""
  new = np.empty(x.shape, np.float32)
  for start in range(0, len(x), _ROWS):
    block = x[start : start + _ROWS].astype(np.float64)
    new[start : start + _ROWS] = (block - mean) / deviation
  return new


def _mean(x: np.ndarray, rows: np.ndarray, value) -> np.ndarray:
  """Returns float64 [D], the mean of `value` over rows."""
  blocks = np.array_split(rows, -(-len(rows) // _ROWS))
  return sum(value(x[b].astype(np.float64)).sum(0) for b in blocks) / len(rows)


def _checksum(*values: np.ndarray | None) -> str:
  return fingerprint.checksum(np.zeros(0) if v is None else v for v in values)
