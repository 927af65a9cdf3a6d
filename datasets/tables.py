"""Columns of tables as text: CSV, JSON lines and Parquet, read in batches.

The form is that of the file's name: `.csv` (commas), `.tsv` (tabs), `.jsonl` or
`.ndjson`, each also as `.gz` or in a zip (`a.zip/b.csv`, `zip_members`), and
`.parquet`; other names are CSV. In CSV, line 1 names the columns, fields may be
quoted, blank lines do not count, and spaces around a field are left out. Text is
what names things, such as classes: whole numbers, true and false are written as in
JSON, and 2.0 is 2, because pandas writes it where another row has no value.
"""

import csv
import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from datasets import parquet_columns
from datasets import zip_members
from tff_xc import errors

FORMS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')

# Of a batch; characters are those of its lines.
_ROWS, _CELLS, _CHARACTERS = 1 << 16, 1 << 21, 1 << 26
_WHOLE = re.compile(r'(0|-?[1-9][0-9]*)\.0')


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
  for batch in read.get(form(path), _csv)(path, required, optional, raw):
    for name, texts in batch.columns.items():
      batch.columns[name] = list(map(plain, texts))
    yield batch


def plain(text: str) -> str:
  """Returns what a name is in a table: without spaces around it, and 2 for 2.0."""
  text = text.strip()
  return text[:-2] if _WHOLE.fullmatch(text) else text


def not_utf8(
  path: str | os.PathLike, error: UnicodeDecodeError
) -> errors.InputError:
  """Returns the error of a file in another encoding."""
  byte = error.object[error.start]
  return errors.InputError(
    f'{path} is not UTF-8 text (it has the byte {byte:#x}); save it as UTF-8'
  )


def _rows(columns: int) -> int:
  """Returns how many rows of so many columns a batch has."""
  return max(1, min(_ROWS, _CELLS // max(columns, 1)))


def _parts(rows: Iterator[tuple[int, Any, int]], most: int) -> Iterator[list]:
  """Yields lists of (line, row), of (line, row, characters of the row's lines)."""
  part, size = [], 0
  for line, row, characters in rows:
    part.append((line, row))
    size += characters
    if len(part) == most or size > _CHARACTERS:
      yield part
      part, size = [], 0
  if part:
    yield part


def _csv_header(path) -> list[str]:
  return [n.strip() for n in next((r for _, r, _ in _records(path)), [])]


def _records(path) -> Iterator[tuple[int, list[str], int]]:
  """Yields the records of a CSV that are not blank, as `_parts` takes them.

  A record has the line in which it begins: where a quote is not closed, the lines
  that it spoils can be many.
  """
  line, size, reader = 0, 0, None

  def counted(lines):
    nonlocal size
    for text in lines:
      size += len(text)
      yield text

  csv.field_size_limit(zip_members.LONGEST_LINE)
  try:
    with zip_members.open_text(path, newline='') as file:
      reader = csv.reader(
        counted(zip_members.lines(file, path)),
        delimiter='\t' if form(path) == '.tsv' else ',',
        strict=True,
      )
      line = 1
      for record in reader:
        if record and not (len(record) == 1 and record[0].isspace()):
          yield line, record, size
        line, size = reader.line_num + 1, 0
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except (*zip_members.DAMAGE, csv.Error) as e:
    near = f', line {line},' if line else ''
    more = ''
    if line and reader.line_num > line:
      more = f'; a quote in it is open until line {reader.line_num}'
    raise errors.InputError(
      f'{path}{near} is no CSV text ({e}{more}); mend it, or give another file'
    ) from e


def _csv(path, required, optional, raw) -> Iterator[Batch]:
  records = _records(path)
  header = [name.strip() for name in next((r for _, r, _ in records), [])]
  places = dict(_places(header, required, [*optional, *raw], path))
  rows = _wanted(records, len(header), list(places.values()), path)
  for part in _parts(rows, _rows(len(header))):
    columns = zip(*(row for _, row in part), strict=True)
    found = {
      name: list(map(str.strip, column))
      for name, column in zip(places, columns, strict=True)
    }
    text, others = _parted(found, required, optional, raw)
    yield Batch(f'{path}, line', [n for n, _ in part], text, others)


def _wanted(records, width: int, places: list[int], path):
  """Yields records with the fields of these places only; checks their number."""
  for line, record, size in records:
    if len(record) != width:
      raise errors.InputError(
        f'{path}, line {line} has {len(record)} fields; expected'
        f' {width}, as in line 1: mend the line'
      )
    yield line, [record[i] for i in places], size


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


def _json_header(path) -> list[str]:
  return next((list(row) for _, row, _ in _objects(path)), [])


def _objects(path) -> Iterator[tuple[int, dict, int]]:
  """Yields the objects of JSON lines, as `_parts` takes them."""
  try:
    with zip_members.open_text(path) as file:
      for number, line in enumerate(zip_members.lines(file, path), 1):
        if not line.isspace():
          yield number, _object(number, line, path), len(line)
  except UnicodeDecodeError as e:
    raise not_utf8(path, e) from e
  except zip_members.DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); mend it, or give another file'
    ) from e


def _json(path, required, optional, raw) -> Iterator[Batch]:
  """Reads JSON lines; the first one says which optional columns there are."""
  objects = _objects(path)
  for first in itertools.islice(objects, 1):
    row = first[1]
    names = [*required, *(n for n in optional if n in row)]
    absent = set(optional) - set(names)
    wanted = {*required, *optional, *raw}
    rows = (
      (line, {name: row[name] for name in wanted & row.keys()}, size)
      for line, row, size in itertools.chain([first], objects)
    )
    for part in _parts(rows, _rows(len(row))):
      where = [f'{path}, line {number}' for number, _ in part]
      found = [row for _, row in part]
      _check_absent(found, where, absent)
      text = {
        name: [
          _value(row, name, place)
          for row, place in zip(found, where, strict=True)
        ]
        for name in names
      }
      others = {name: [row.get(name) for row in found] for name in raw}
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
  return value


def _parquet(path, required, optional, raw) -> Iterator[Batch]:
  with parquet_columns.open_file(path, [*required, *optional]) as file:
    header = file.schema_arrow.names
    wanted = dict(
      parquet_columns.columns(header, required, [*optional, *raw], path)
    )
    start = 0
    rows = parquet_columns.rows_of_batch(file, set(wanted), _ROWS)
    for part in file.iter_batches(rows, columns=list(wanted)):
      found = {name: part.column(name) for name in wanted}
      text, others = _parted(found, required, optional, raw)
      text = {
        name: parquet_columns.as_text(values, f'{path}, column {name!r}', start)
        for name, values in text.items()
      }
      end = start + part.num_rows
      yield Batch(f'{path}, row', range(start + 1, end + 1), text, others)
      start = end
