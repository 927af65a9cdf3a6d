"""Columns of tables as text: CSV, JSON lines and Parquet, read in batches.

The form is that of the file's name: `.csv` (commas), `.tsv` (tabs), `.jsonl` or
`.ndjson`, each also as `.gz` or in a zip (`a.zip/b.csv`, `zip_members`), and
`.parquet`; other names are CSV. In CSV, line 1 names the columns,
fields may be quoted, blank lines do not count, and spaces around a field are
left out. Values are text: whole numbers are written as in JSON.
"""

import csv
import gzip
import itertools
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from datasets import zip_members
from tff_xc import errors

FORMS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')

_ROWS = 1 << 16
_DAMAGE = (
  OSError,
  EOFError,
  zlib.error,
  zipfile.BadZipFile,
  UnicodeDecodeError,
)


class Batch(NamedTuple):
  """Successive rows.

  Attributes:
    file: `FILE, line` or `FILE, row`.
    places: the rows' lines, or their numbers from 1.
    columns: by name, text of each row. A column that the file lacks is absent.
  """

  file: str
  places: Sequence[int]
  columns: dict[str, list[str]]

  def where(self, row: int) -> str:
    """Names a row of the batch for an error: `a.csv, line 7`."""
    return f'{self.file} {self.places[row]}'


def form(path: str | os.PathLike) -> str | None:
  """Returns the one of `FORMS` that a file's name ends in, or None."""
  name = pathlib.Path(path).name.lower().removesuffix('.gz')
  return next((f for f in FORMS if name.endswith(f)), None)


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of a CSV's columns; raises InputError if it is none."""
  path = pathlib.Path(path)
  try:
    with _text(path, newline='') as file:
      return [n.strip() for n in next(csv.reader(file), [])]
  except (*_DAMAGE, csv.Error) as e:
    raise errors.InputError(
      f'{path} is no CSV text ({e}); mend it, or give another file'
    ) from e


def batches(
  path: str | os.PathLike,
  required: Sequence[str],
  optional: Sequence[str] = (),
) -> Iterator[Batch]:
  """Yields the rows of a table, some columns of them.

  Args:
    path: the file.
    required: columns that the file must have.
    optional: columns that it may have.

  Raises:
    errors.InputError: the file cannot be read, lacks a column, or a row is not
      as the others.
  """
  path = pathlib.Path(path)
  read = {'.jsonl': _json, '.ndjson': _json, '.parquet': _parquet}
  yield from read.get(form(path), _csv)(path, required, optional)


def not_utf8(
  path: str | os.PathLike, error: UnicodeDecodeError
) -> errors.InputError:
  """Returns the error of a file in another encoding."""
  byte = error.object[error.start]
  return errors.InputError(
    f'{path} is not UTF-8 text (it has the byte {byte:#x}); save it as UTF-8'
  )


def _text(path: pathlib.Path, **more):
  if path.name.lower().endswith('.gz'):
    return gzip.open(path, 'rt', encoding='utf-8-sig', **more)
  return zip_members.open_text(path, encoding='utf-8-sig', **more)


def _csv(path, required, optional) -> Iterator[Batch]:
  delimiter = '\t' if form(path) == '.tsv' else ','
  reader = None
  try:
    with _text(path, newline='') as file:
      reader = csv.reader(file, delimiter=delimiter, strict=True)
      header = [name.strip() for name in next(reader, [])]
      places = _places(header, required, optional, path, delimiter)
      rows = ((reader.line_num, row) for row in filter(None, reader))
      while part := list(itertools.islice(rows, _ROWS)):
        for line, row in part:
          if len(row) != len(header):
            raise errors.InputError(
              f'{path}, line {line} has {len(row)} fields; expected'
              f' {len(header)}, as in line 1: mend the line'
            )
        yield Batch(
          f'{path}, line',
          [number for number, _ in part],
          {name: [row[i].strip() for _, row in part] for name, i in places},
        )
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except (*_DAMAGE, csv.Error) as e:
    near = f', line {reader.line_num},' if reader else ''
    raise errors.InputError(
      f'{path}{near} is no CSV text ({e}); mend it, or give another file'
    ) from e


def _places(header, required, optional, path, delimiter: str):
  """Returns the columns wanted, as pairs of name and place."""
  if not set(required) <= set(header):
    raise errors.InputError(
      f'{path}, line 1 is {delimiter.join(header)[:200]!r}; expected the columns'
      f' {delimiter.join(required)}: mend it, or name other columns'
    )
  wanted = [name for name in (*required, *optional) if name in header]
  for name in wanted:
    if header.count(name) > 1:
      raise errors.InputError(
        f'{path}, line 1 names the column {name!r} twice; rename one of the two'
      )
  return [(name, header.index(name)) for name in wanted]


def _json(path, required, optional) -> Iterator[Batch]:
  """Reads JSON lines; the first one says which optional columns there are."""
  names = None
  try:
    with _text(path) as file:
      lines = ((i, line) for i, line in enumerate(file, 1) if line.strip())
      while part := list(itertools.islice(lines, _ROWS)):
        if names is None:
          first = _object(*part[0], path)
          names = [*required, *(n for n in optional if n in first)]
        rows = [_object(*numbered, path) for numbered in part]
        where = [f'{path}, line {number}' for number, _ in part]
        yield Batch(
          f'{path}, line',
          [number for number, _ in part],
          {
            name: [
              _value(row, name, place)
              for row, place in zip(rows, where, strict=True)
            ]
            for name in names
          },
        )
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except _DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); mend it, or give another file'
    ) from e


def _object(number: int, line: str, path) -> dict:
  try:
    row = json.loads(line)
  except (ValueError, RecursionError) as e:
    raise errors.InputError(
      f'{path}, line {number} is no JSON ({e}); give one object a line'
    ) from e
  if not isinstance(row, dict):
    raise errors.InputError(
      f'{path}, line {number} is {line.strip()[:40]!r}; expected an object with'
      ' the names of columns'
    )
  return row


def _value(row: dict, name: str, where: str) -> str:
  value = row.get(name)
  if type(value) not in (str, int):
    found = f'is {json.dumps(value)[:40]}' if name in row else 'is missing'
    raise errors.InputError(
      f'{where}: {name!r} {found}; expected text or a whole number'
    )
  if isinstance(value, int):
    return str(value)
  try:
    value.encode()
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{where}: {name!r} is {value[:40]!a}, which is no text; mend it'
    ) from e
  return value.strip()


def _parquet(path, required, optional) -> Iterator[Batch]:
  import pyarrow as pa
  import pyarrow.parquet

  try:
    with pyarrow.parquet.ParquetFile(path) as file:
      header = file.schema_arrow.names
      names = [n for n, _ in _columns(header, required, optional, path)]
      start = 0
      for part in file.iter_batches(_ROWS, columns=names):
        columns = {
          name: _as_text(part.column(name), f'{path}, column {name!r}', start)
          for name in names
        }
        end = start + part.num_rows
        yield Batch(f'{path}, row', range(start + 1, end + 1), columns)
        start = end
  except (OSError, pa.ArrowException) as e:
    reason = ' '.join(str(e).split())[:200]
    raise errors.InputError(
      f'{path} is no Parquet file that can be read ({reason}); write it again'
    ) from e


def _columns(header, required, optional, path) -> Iterable[tuple[str, int]]:
  missing = [name for name in required if name not in header]
  if missing:
    raise errors.InputError(
      f'{path} has no column {missing[0]!r}, it has'
      f' {", ".join(header)[:200]}; name another column'
    )
  wanted = [name for name in (*required, *optional) if name in header]
  for name in wanted:
    if header.count(name) > 1:
      raise errors.InputError(
        f'{path} has two columns {name!r}; rename one of the two'
      )
  return [(name, header.index(name)) for name in wanted]


def _as_text(values, where: str, start: int) -> list[str]:
  """Returns an arrow array of text or whole numbers as text."""
  import pyarrow as pa

  kind = values.type
  if pa.types.is_dictionary(kind):
    kind = kind.value_type
  if not (
    pa.types.is_integer(kind)
    or pa.types.is_string(kind)
    or pa.types.is_large_string(kind)
  ):
    raise errors.InputError(
      f'{where} is {values.type}; expected text or whole numbers: write it so'
    )
  if values.null_count:
    row = values.is_null().to_pylist().index(True)
    raise errors.InputError(
      f'{where}, row {start + row + 1} has no value; fill it in, or leave out'
      ' the row'
    )
  text = values.cast(pa.large_string()).to_pylist()
  return [value.strip() for value in text]
