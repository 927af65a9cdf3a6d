"""Reads columns of tables as text, in batches. Tables are CSV, JSON lines or Parquet.

The suffix of the file tells its format: `.csv` (commas), `.tsv` (tabs), `.jsonl`, `.ndjson`
or `.parquet`. Except for Parquet, a file may be compressed (`.gz`) or in a zip
(`a.zip/b.csv`, see `zipped`). Files with other suffixes are read as CSV. In CSV, line 1 names
the columns, fields may be quoted, and blank lines and spaces around a field are ignored.

Some columns, such as the column of classes, contain names. In these columns, whole numbers,
true and false become text as in JSON. The number 2.0 becomes the name 2, because pandas writes
2 as 2.0 if another row has no value.
"""

import contextlib
import csv
import itertools
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import zipped
from tff_xc import errors, wording

FORMS = ('.csv', '.tsv', '.jsonl', '.ndjson', '.parquet')

_JSON = ('.jsonl', '.ndjson')
# The largest numbers of rows and of cells in a batch, and of rows in a batch of Parquet. The
# cells of Parquet may be long lists.
_ROWS, _CELLS, _PARQUET_ROWS = 1 << 16, 1 << 21, 1 << 13
_WHOLE = re.compile(r'(0|-?[1-9][0-9]*)\.0')
# If the header has a single name with one of these characters, the character is probably the
# separator.
_SEPARATOR = re.compile('[,;:|\t]')
# The column names that pandas gives to an unnamed index when it writes or reads a file.
_INDEX = re.compile(r'(__index_level_\d+__|Unnamed: \d+(\.\d+)?)?')
# Above this bound, a float may differ from the whole number that the user wrote.
_MOST_WHOLE = 2.0**53


# The user name of examples without a user, as in the files of TFF's iNaturalist.
NOBODY = 'NA'


class Columns(NamedTuple):
  """The columns of a table."""

  label: str = 'class'  # The column of classes, which are text or whole numbers.
  # None: 'user_id', if the table has this column. '': the examples have no users.
  user: str | None = None
  # None: 'image_id', if the table has this column, and otherwise row numbers from 0.
  id: str | None = None


NAME_THEM = 'name yours: ' + ', '.join(f'--{role}_column' for role in Columns._fields)


class Batch(NamedTuple):
  """Successive rows of a table."""

  file: str  # `FILE, line` or, for Parquet, `FILE, row`.
  places: Sequence[int]  # The line numbers of the rows or, for Parquet, row numbers from 1.
  # The columns by name. They are lists of strings or JSON values, or pandas series (Parquet).
  columns: dict[str, Any]

  def where(self, row: int) -> str:
    """Names a row of the batch for an error message: `a.csv, line 7`."""
    return f'{self.file} {self.places[row]}'

  def texts(self, column: str, noun: str = '') -> list[str]:
    """Converts a column to `plain` texts; whole numbers and bools become text as in JSON.

    Raises InputError for other values. `noun` is a word for the content of the column. If it
    is not '', an empty cell also raises InputError.
    """
    texts = []
    for row, value in enumerate(self.columns[column]):
      if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_WHOLE:
        value = int(value)
      if isinstance(value, int):
        value = json.dumps(value)
      if not isinstance(value, str):
        raise errors.InputError(
          f'{self.where(row)}: {column!r} is {value!r:.40}; expected text or a whole number: write'
          ' it so, or name another column'
        )
      texts.append(plain(value))
    if noun and '' in texts:
      raise errors.InputError(
        f'{self.where(texts.index(""))} has no {noun}, its {column!r} is empty; fill'
        ' it in, or leave the row out'
      )
    return texts


def form(path: str | os.PathLike) -> str | None:
  """Returns the suffix in `FORMS` with which a file's name ends (ignoring `.gz`), or None."""
  name = pathlib.Path(path).name.lower().removesuffix('.gz')
  return next((f for f in FORMS if name.endswith(f)), None)


def header(path: str | os.PathLike) -> list[str]:
  """Returns the names of the columns. For JSON lines, these are the first object's keys."""
  path = pathlib.Path(path)
  if form(path) == '.parquet':
    with _open_parquet(path) as file:
      names = list(file.schema_arrow.names)
  elif form(path) in _JSON:
    names = next((list(row) for _, row in _json_rows(path)), [])
  else:
    names = _csv_names(_csv_rows(path))
  if not names:
    raise errors.InputError(f'{path} is empty; give a table')
  return names


def without_index(path: str | os.PathLike, names: Sequence[str]) -> list[str]:
  """Removes the names of index columns, which pandas writes, from the result of `header`.

  In Parquet files, metadata of pandas name the index columns.
  """
  index, path = [], pathlib.Path(path)
  if form(path) == '.parquet':
    with _open_parquet(path) as file:
      index = (file.schema_arrow.pandas_metadata or {}).get('index_columns', [])
  return [n for n in names if n not in index and not _INDEX.fullmatch(n)]


def batches(path: str | os.PathLike, names: Sequence[str]) -> Iterator[Batch]:
  """Yields the rows of a table, with only the columns `names`.

  Raises `errors.InputError` if the file cannot be read or lacks a column, or a row is
  malformed.
  """
  path = pathlib.Path(path)
  names = present(path, header(path), names, 'add it, or give another file')
  kind, noun = form(path), 'line'
  read = _json if kind in _JSON else _csv
  if kind == '.parquet':
    read, noun = _parquet, 'row'
  for places, columns in read(path, names):
    yield Batch(f'{path}, {noun}', places, columns)


def examples(
  path: str | os.PathLike,
  columns: Columns,
  repeated: bool = False,
  advice: str = NAME_THEM,
  raw: Sequence[str] = (),
  use: Callable[[Batch], None] | None = None,
) -> examples_lib.Examples:
  """Returns the rows of a table as examples; calls `use` with each batch of rows.

  The batches also have the columns `raw`. Raises InputError if a row has no class, user or
  id, or two rows have the same id. If `repeated` is true, rows may have the same id, and a
  class may be empty. An example with an empty class has no labels. `advice` is part of the
  error message for a missing column.
  """
  named = {
    'class': columns.label,
    'user': 'user_id' if columns.user is None else columns.user,
    'id': columns.id or 'image_id',
  }
  explicit = [n for n in (columns.user, columns.id) if n]
  wanted = list(filter(None, named.values()))
  there = present(path, header(path), [columns.label, *explicit], advice, wanted)
  has_users, has_ids = named['user'] in there, named['id'] in there
  classes, users, ids = examples_lib.Codes(), examples_lib.Codes(), []
  for batch in examples_lib.watched(
    batches(path, [*there, *raw]), 'reading', lambda batch: len(batch.places)
  ):
    if use:
      use(batch)
    classes.add(batch.texts(columns.label, '' if repeated else 'class'))
    if has_users:
      users.add(batch.texts(named['user'], 'user'))
    if has_ids:
      ids.append(examples_lib.texts([batch.texts(named['id'], 'id')]))
  ids = examples_lib.texts(ids)
  if not repeated and (twice := examples_lib.repeated(ids)):
    name, first, second = twice
    raise errors.InputError(
      f'{where(second, path)} has the id {name!r}, as {where(first, path)} has;'
      ' leave one out, or name another --id_column'
    )
  labels, class_names = examples_lib.sorted_codes(classes)
  return examples_lib.Examples(
    labels,
    class_names,
    ids if has_ids else range(len(labels)),
    *(_named_users(users) if has_users else ()),
  )


def where(number: int, *paths: str | os.PathLike) -> str:
  """Returns the file and line of a row, for an error message; reads the tables again."""
  for path in paths:
    for batch in batches(path, []):
      if number < len(batch.places):
        return batch.where(number)
      number -= len(batch.places)
  raise IndexError(number)


def _named_users(users: examples_lib.Codes) -> tuple[np.ndarray, list[str]]:
  """Returns each row's user, int32 [rows], -1 for the user 'NA', and the other users' names."""
  names = [name for name in users.names if name != NOBODY]
  return examples_lib.recoded(users, names), names


def plain(text: str) -> str:
  """Removes spaces around a text, and the `.0` of a whole number such as 2.0."""
  text = text.strip()
  return text[:-2] if _WHOLE.fullmatch(text) else text


def present(path, names, required, advice='name another column', others=()) -> list[str]:
  """Returns those of the columns `required` and `others` that a table has.

  `names` are all columns of the table. Raises InputError if a required column is missing, or
  a column in the result occurs twice in the table.
  """
  missing = [name for name in required if name not in names]
  if missing and len(names) == 1 and _SEPARATOR.search(names[0]):
    raise errors.InputError(
      f'{path} has no column {missing[0]!r}, but one {names[0][:80]!r}; write names'
      ' and values of a .csv with commas between them, of a .tsv with tabs'
    )
  if missing:
    raise errors.InputError(
      f'{path} has no column {missing[0]!r}, it has {", ".join(names)[:200]}; {advice}'
    )
  wanted = [n for n in dict.fromkeys((*required, *others)) if n in names]
  for name in wanted:
    if names.count(name) > 1:
      raise errors.InputError(f'{path} names the column {name!r} twice; rename one of the two')
  return wanted


def _gathered(
  rows: Iterable[tuple[int, list]], names: Sequence[str], width: int
) -> Iterator[tuple[Sequence[int], dict[str, Sequence]]]:
  """Collects rows (line, values) into batches; yields the lines and columns of each batch."""
  rows, most = iter(rows), max(1, min(_ROWS, _CELLS // max(width, 1)))
  while part := list(itertools.islice(rows, most)):
    lines, values = zip(*part, strict=True)
    yield lines, dict(zip(names, map(list, zip(*values, strict=True)), strict=True))


def _csv_rows(path) -> Iterator[tuple[int, list[str]]]:
  """Yields the first line number and the fields of each record of a CSV; skips blank records."""
  csv.field_size_limit(zipped.LONGEST_LINE)
  line, delimiter = 1, '\t' if form(path) == '.tsv' else ','
  lines = zipped.text_lines(path, newline='')
  reader = csv.reader(lines, delimiter=delimiter, strict=True)
  try:
    for record in reader:
      if record and not (len(record) == 1 and record[0].isspace()):
        yield line, record
      line = reader.line_num + 1
  except csv.Error as e:
    raise errors.InputError(
      f'{path}, line {line}, is no CSV text ({e} until line {reader.line_num});'
      ' mend it, or give another file'
    ) from e


def _csv_names(rows) -> list[str]:
  return [name.strip() for name in next((row for _, row in rows), [])]


def _csv(path, names):
  rows = _csv_rows(path)
  header = _csv_names(rows)
  places = [header.index(name) for name in names]

  def wanted():
    for line, record in rows:
      if len(record) != len(header):
        raise errors.InputError(
          f'{path}, line {line} has {wording.count(len(record), "field")}; expected'
          f' {len(header)}, as in line 1: mend the line'
        )
      yield line, [record[place].strip() for place in places]

  return _gathered(wanted(), names, len(header))


def _json_rows(path) -> Iterator[tuple[int, dict]]:
  """Yields (line number, object) for each object of a file of JSON lines."""
  for number, line in enumerate(zipped.text_lines(path), 1):
    if line.isspace():
      continue
    try:
      row = json.loads(line)
    except (ValueError, RecursionError) as e:
      raise errors.InputError(
        f'{path}, line {number} is no JSON ({e}); give one object a line'
      ) from e
    if not isinstance(row, dict):
      raise errors.InputError(
        f'{path}, line {number} is {line.strip()[:40]!r}; expected an object'
        ' with the names of columns'
      )
    yield number, row


def _json(path, names):
  rows = ((line, [row.get(name) for name in names]) for line, row in _json_rows(path))
  return _gathered(rows, names, len(names))


@contextlib.contextmanager
def _open_parquet(path: pathlib.Path) -> Iterator:
  """Opens a `pyarrow.parquet.ParquetFile`."""
  import pyarrow as pa
  import pyarrow.parquet

  zipped.check_regular(path)
  try:
    with pyarrow.parquet.ParquetFile(path) as file:
      yield file
  except pa.ArrowMemoryError:
    raise
  except (OSError, pa.ArrowException) as e:
    reason = ' '.join(str(e).split())[:200]
    raise errors.InputError(
      f'{path} is no Parquet file that can be read ({reason}); write it again'
    ) from e


def _parquet(path, names):
  with _open_parquet(path) as file:
    start = 1
    for part in file.iter_batches(_PARQUET_ROWS, columns=names):
      end = start + part.num_rows
      # Python has no dates after the year 9999.
      columns = {name: part.column(name).to_pandas(date_as_object=False) for name in names}
      yield range(start, end), columns
      start = end
