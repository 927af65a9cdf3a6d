"""Columns of tables as text: CSV, JSON lines and Parquet, read in batches.

The form is that of the file's name: `.csv` (commas), `.tsv` (tabs), `.jsonl` or
`.ndjson`, each also as `.gz` or in a zip (`a.zip/b.csv`, `zip_members`), and
`.parquet`; other names are CSV. In CSV, line 1 names the columns, fields may be
quoted, blank lines do not count, and spaces around a field are left out. Text is
what names things, such as classes: whole numbers, true and false are written as in
JSON, and 2.0 is 2.
"""

import contextlib
import csv
import gzip
import itertools
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from datasets import parquet_columns
from datasets import zip_members
from tff_xc import errors

FORMS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')

# Of a batch.
_ROWS, _CELLS = 1 << 16, 1 << 21
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
    raw: by name, values as the file has them: text of CSV, JSON's values, or
      arrow arrays.
  """

  file: str
  places: Sequence[int]
  columns: dict[str, list[str]]
  raw: dict[str, Any]

  def where(self, row: int) -> str:
    """Names a row of the batch for an error: `a.csv, line 7`."""
    return f'{self.file} {self.places[row]}'


def form(path: str | os.PathLike) -> str | None:
  """Returns the one of `FORMS` that a file's name ends in, or None."""
  name = pathlib.Path(path).name.lower().removesuffix('.gz')
  return next((f for f in FORMS if name.endswith(f)), None)


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of the columns; of JSON lines, of the first object's.

  Raises:
    errors.InputError: as `batches`.
  """
  path = pathlib.Path(path)
  read = {'.jsonl': _json_header, '.ndjson': _json_header}
  read['.parquet'] = parquet_columns.header
  names = read.get(form(path), _csv_header)(path)
  if not names:
    raise errors.InputError(f'{path} is empty; give a table')
  return names


def require(
  path: str | os.PathLike, columns: Sequence[str], advice: str
) -> None:
  """Raises InputError if a table lacks a column.

  Args:
    path: the table.
    columns: that it must have.
    advice: what to do if it lacks one, which ends the message.
  """
  names = header(path)
  missing = [name for name in columns if name not in names]
  if missing:
    raise errors.InputError(
      f'{path} has no column {missing[0]!r}, it has {", ".join(names)[:200]};'
      f' {advice}'
    )


def batches(
  path: str | os.PathLike,
  required: Sequence[str],
  optional: Sequence[str] = (),
  raw: Sequence[str] = (),
) -> Iterator[Batch]:
  """Yields the rows of a table, some columns of them.

  Args:
    path: the file.
    required: columns of text that the file must have.
    optional: columns of text that it may have.
    raw: further columns, which are not made text.

  Raises:
    errors.InputError: the file cannot be read, lacks a column, or a row is not
      as the others; a value of text is something else.
  """
  path = pathlib.Path(path)
  read = {'.jsonl': _json, '.ndjson': _json, '.parquet': _parquet}
  yield from read.get(form(path), _csv)(path, required, optional, raw)


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


def _rows(columns: int) -> int:
  """Returns how many rows of so many columns a batch has."""
  return max(1, min(_ROWS, _CELLS // max(columns, 1)))


def _csv_header(path) -> list[str]:
  with _reader(path) as reader:
    return [name.strip() for name in next(reader, [])]


@contextlib.contextmanager
def _reader(path) -> Iterator:
  """Opens a CSV; raises InputError for what is wrong with its text."""
  reader = None
  try:
    with _text(path, newline='') as file:
      delimiter = '\t' if form(path) == '.tsv' else ','
      reader = csv.reader(file, delimiter=delimiter, strict=True)
      yield reader
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except (*_DAMAGE, csv.Error) as e:
    near = f', line {reader.line_num},' if reader else ''
    raise errors.InputError(
      f'{path}{near} is no CSV text ({e}); mend it, or give another file'
    ) from e


def _csv(path, required, optional, raw) -> Iterator[Batch]:
  with _reader(path) as reader:
    header = [name.strip() for name in next(reader, [])]
    places = dict(_places(header, required, [*optional, *raw], path))
    rows = ((reader.line_num, row) for row in filter(None, reader))
    while part := list(itertools.islice(rows, _rows(len(header)))):
      for line, row in part:
        if len(row) != len(header):
          raise errors.InputError(
            f'{path}, line {line} has {len(row)} fields; expected'
            f' {len(header)}, as in line 1: mend the line'
          )
      found = {
        name: [row[i].strip() for _, row in part] for name, i in places.items()
      }
      text, others = _parted(found, required, optional, raw)
      yield Batch(f'{path}, line', [n for n, _ in part], text, others)


def _parted(found, required, optional, raw) -> tuple[dict, dict]:
  """Returns the columns of text, and those that are not made text."""
  text = {n: found[n] for n in (*required, *optional) if n in found}
  return text, {n: found[n] for n in raw}


def _places(header, required, optional, path):
  """Returns the columns wanted, as pairs of name and place."""
  delimiter = '\t' if form(path) == '.tsv' else ','
  if not set(required) <= set(header):
    raise errors.InputError(
      f'{path}, line 1 is {delimiter.join(header)[:200]!r}; expected the columns'
      f' {delimiter.join(required)}: mend it, or give another file'
    )
  twice = lambda name: f'{path}, line 1 names the column {name!r} twice'
  return parquet_columns.places(header, (*required, *optional), twice)


@contextlib.contextmanager
def _lines(path) -> Iterator:
  """Opens JSON lines: pairs of number and line, without blank lines."""
  try:
    with _text(path) as file:
      yield ((i, line) for i, line in enumerate(file, 1) if line.strip())
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except _DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); mend it, or give another file'
    ) from e


def _json_header(path) -> list[str]:
  with _lines(path) as lines:
    return next((list(_object(*line, path)) for line in lines), [])


def _json(path, required, optional, raw) -> Iterator[Batch]:
  """Reads JSON lines; the first one says which optional columns there are."""
  with _lines(path) as lines:
    names = None
    first = list(itertools.islice(lines, 1))
    lines = itertools.chain(first, lines)
    for line in first:
      row = _object(*line, path)
      names = [*required, *(n for n in optional if n in row)]
      absent = set(optional) - set(names)
      size = _rows(len(row))
    while first and (part := list(itertools.islice(lines, size))):
      rows = [_object(*numbered, path) for numbered in part]
      where = [f'{path}, line {number}' for number, _ in part]
      _check_absent(rows, where, absent)
      text = {
        name: [
          _value(row, name, place)
          for row, place in zip(rows, where, strict=True)
        ]
        for name in names
      }
      others = {name: [row.get(name) for row in rows] for name in raw}
      yield Batch(f'{path}, line', [n for n, _ in part], text, others)


def _check_absent(rows: list[dict], where: list[str], absent: set[str]) -> None:
  """Raises InputError if a row has one of the columns that the first one lacks."""
  if not absent:
    return
  for row, place in zip(rows, where, strict=True):
    if found := sorted(absent & row.keys()):
      raise errors.InputError(
        f'{place} has {found[0]!r}, and the first line has not; give it to all lines'
        ' or to none'
      )


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
  if (
    type(value) is float
    and abs(value) < parquet_columns.MOST_WHOLE
    and value.is_integer()
  ):
    value = int(value)
  if type(value) not in (str, int, bool):
    found = f'is {json.dumps(value)[:40]}' if name in row else 'is missing'
    raise errors.InputError(
      f'{where}: {name!r} {found}; expected text or a whole number'
    )
  if type(value) is not str:
    return json.dumps(value)
  try:
    value.encode()
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{where}: {name!r} is {value[:40]!a}, which is no text; mend it'
    ) from e
  return value.strip()


def _parquet(path, required, optional, raw) -> Iterator[Batch]:
  with parquet_columns.open_file(path) as file:
    header = file.schema_arrow.names
    wanted = dict(
      parquet_columns.columns(header, required, [*optional, *raw], path)
    )
    start = 0
    for part in file.iter_batches(_ROWS, columns=list(wanted)):
      found = {name: part.column(name) for name in wanted}
      text, others = _parted(found, required, optional, raw)
      text = {
        name: parquet_columns.as_text(values, f'{path}, column {name!r}', start)
        for name, values in text.items()
      }
      end = start + part.num_rows
      yield Batch(f'{path}, row', range(start + 1, end + 1), text, others)
      start = end
