"""Reads tables of features: CSV (.csv, .tsv, each also as .gz) and Parquet.

A row has a class, perhaps a user, an id and a mark of the test part, and
numbers. In Parquet a column of lists of one length is as many features.
"""

import gzip
import os
import pathlib
import zlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from datasets import tables
from tff_xc import errors

FORMS = ('.csv', '.tsv', '.csv.gz', '.tsv.gz', '.parquet')
# Rows at a time.
_ROWS = 1 << 16
_IS_TEST = {
  **dict.fromkeys(('test', 'true', '1', 'yes'), True),
  **dict.fromkeys(('train', 'false', '0', 'no', ''), False),
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
  roles, parts, text, start = None, [], {}, 0
  for frame in _frames(path, columns):
    if not len(frame):
      continue
    if roles is None:
      roles = _roles(path, list(frame.columns), columns)
      text = {role: [] for role in roles}
      features = features or _features(path, frame, columns, roles)
      _require(path, frame.columns, features)
    for role, column in roles.items():
      text[role] += _text(
        frame[column], role, f'{path}, column {column!r}', start
      )
    parts.append(_numbers(frame, features, path, start))
    start += len(frame)
  if not start:
    raise errors.InputError(f'{path} has no rows; give a table with some')
  marks = text.get('test')
  return Table(
    np.concatenate(parts),
    list(features),
    text['class'],
    text.get('user', []),
    text.get('id', []),
    None if marks is None else np.array([_IS_TEST[m.lower()] for m in marks]),
  )


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of a table's columns; errors are those of `read`."""
  for frame in _frames(pathlib.Path(path), DEFAULT):
    return list(map(str, frame.columns))
  return []


def _frames(path: pathlib.Path, columns: Columns) -> Iterator[pd.DataFrame]:
  """Returns the rows in parts."""
  if not path.name.lower().endswith(FORMS):
    raise errors.InputError(
      f'{path} is no table; give {", ".join(FORMS)} or .npz'
    )
  if not path.is_file():
    raise errors.InputError(f'{path} is no file; give a table')
  is_parquet = path.name.lower().endswith('.parquet')
  return _parquet(path) if is_parquet else _csv(path, columns)


def _csv(path: pathlib.Path, columns: Columns) -> Iterator[pd.DataFrame]:
  as_text = [c for c in (*columns[:4], 'user_id', 'image_id') if c]
  tabs = tables.form(path) == '.tsv'
  try:
    # pandas would call the second of two columns x 'x.1'.
    first = pd.read_csv(
      path,
      sep='\t' if tabs else ',',
      header=None,
      nrows=1,
      dtype=str,
      keep_default_na=False,
      encoding='utf-8-sig',
    )
    _check_names(path, [str(name).strip() for name in first.iloc[0]])
    frames = pd.read_csv(
      path,
      sep='\t' if tabs else ',',
      chunksize=_ROWS,
      dtype=dict.fromkeys(as_text, str),
      keep_default_na=False,
      skipinitialspace=True,
      encoding='utf-8-sig',
    )
    with frames:
      for frame in frames:
        # pandas takes the first field as an index if rows have one too many.
        if not isinstance(frame.index, pd.RangeIndex):
          raise errors.InputError(
            f'{path}: rows have more fields than line 1 names columns; mend it'
          )
        frame.columns = [str(name).strip() for name in frame.columns]
        yield frame
  except UnicodeDecodeError as e:
    raise tables.not_utf8(path, e) from e
  except (
    OSError,
    EOFError,
    ValueError,  # Also pandas's errors.
    zlib.error,
    gzip.BadGzipFile,
  ) as e:
    raise errors.InputError(
      f'{path} is no CSV text ({" ".join(str(e).split())}); mend it, or give'
      ' another file'
    ) from e


def _parquet(path: pathlib.Path) -> Iterator[pd.DataFrame]:
  import pyarrow as pa
  import pyarrow.parquet

  try:
    with pyarrow.parquet.ParquetFile(path) as file:
      _check_names(path, file.schema_arrow.names)
      for batch in file.iter_batches(_ROWS):
        yield batch.to_pandas()
  except (OSError, pa.ArrowException) as e:
    raise errors.InputError(
      f'{path} is no Parquet file that can be read'
      f' ({" ".join(str(e).split())[:200]}); write it again'
    ) from e


def _check_names(path, names: list[str]) -> None:
  seen = set()
  for name in filter(None, names):
    if name in seen:
      raise errors.InputError(
        f'{path} has two columns {name!r}; rename one of the two'
      )
    seen.add(name)


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


def _features(path, frame, columns: Columns, roles) -> list[str]:
  """Returns the columns of features: those named, or all that hold numbers."""
  if columns.features:
    for name in columns.features:
      if name in roles.values() or columns.features.count(name) > 1:
        raise errors.InputError(
          f'--feature_columns: {name!r} is given twice, or is the column of the'
          ' class, the user, the id or the test; leave it out'
        )
    return list(columns.features)
  others = [name for name in frame.columns if name not in roles.values()]
  features = [name for name in others if _holds_numbers(frame[name])]
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
  return pd.to_numeric(column, 'coerce').notna().mean() > 0.5


def _is_lists(column: pd.Series) -> bool:
  return column.dtype == object and any(
    isinstance(cell, np.ndarray) for cell in column
  )


def _text(column: pd.Series, role: str, where: str, start: int) -> list[str]:
  """Returns the cells as text; raises InputError if one is empty."""
  text = column.astype(object).where(column.notna(), '').map(str)
  text = text.str.strip().tolist()
  known = (lambda cell: cell.lower() in _IS_TEST) if role == 'test' else bool
  for row, cell in enumerate(text, start + 1):
    if not known(cell):
      expected = 'test, train, true, false, 1, 0' if role == 'test' else role
      raise errors.InputError(
        f'{where}, row {row} is {cell!r}; expected {expected}: fill it in, or'
        ' leave the row out'
      )
  return text


def _numbers(frame, features: Sequence[str], path, start: int) -> np.ndarray:
  """Returns float64 [rows, D]."""
  try:
    x = frame[list(features)].to_numpy(np.float64)
  except (ValueError, TypeError):  # Lists, or cells that are no numbers.
    x = np.hstack([_column(frame[name], name, path) for name in features])
  bad = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))
  if not len(bad):
    return x
  row, place = bad[0]
  name, cell = f'feature {place}', x[row, place]
  if x.shape[1] == len(features):
    name = repr(features[place])
    cell = frame[features[place]].iloc[row]
  raise errors.InputError(
    f'{path}, row {start + row + 1}: {name} is {str(cell)!r}; expected a finite'
    ' number: mend it, leave the row out, or name other --feature_columns'
  )


def _column(column: pd.Series, name: str, path) -> np.ndarray:
  """Returns float64 [rows, 1], or [rows, k] of a column of lists."""
  if not _is_lists(column):
    return pd.to_numeric(column, 'coerce').to_numpy(np.float64)[:, None]
  try:
    return np.stack(column.tolist()).astype(np.float64)
  except (ValueError, TypeError) as e:
    raise errors.InputError(
      f'{path}: the lists of column {name!r} are not numbers of one length; make'
      ' them so, or name other --feature_columns'
    ) from e
