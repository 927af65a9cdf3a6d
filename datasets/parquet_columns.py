"""Parquet files and their columns as text; `datasets.tables` reads them in batches."""

import contextlib
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from datasets import zip_members
from tff_xc import errors
from tff_xc import memory

# Larger floats need not be the number that was meant.
MOST_WHOLE = 2.0**53


@contextlib.contextmanager
def open_file(path, text: Iterable[str] = ()) -> Iterator:
  """Opens a `pyarrow.parquet.ParquetFile`; raises InputError if it is none.

  Args:
    path: the file.
    text: columns whose values, if they are text, are each read once.
  """
  import pyarrow as pa
  import pyarrow.parquet

  _check_kind(path)
  try:
    names = pyarrow.parquet.read_schema(path).names
    once = [name for name in text if names.count(name) == 1]
    with pyarrow.parquet.ParquetFile(path, read_dictionary=once) as file:
      yield file
  except pa.ArrowMemoryError:
    raise
  except (OSError, pa.ArrowException) as e:
    reason = ' '.join(str(e).split())[:200]
    raise errors.InputError(
      f'{path} is no Parquet file that can be read ({reason}); write it again'
    ) from e


def _check_kind(path) -> None:
  """Says what a file is that is no Parquet, or no file by itself."""
  path = pathlib.Path(path)
  if any(map(zip_members.is_zip, path.parents)):
    raise errors.InputError(
      f'{path} is in a zip, where Parquet is not read; unpack it'
    )
  zip_members.check_regular(path)
  if path.is_file():
    with path.open('rb') as file:
      if file.read(2) == b'\x1f\x8b':
        raise errors.InputError(
          f'{path} is packed by gzip, and Parquet is read as it is; unpack it'
        )


def rows_of_batch(file, names, most: int) -> int:
  """Returns how many rows of some columns to read at a time.

  Args:
    file: from `open_file`.
    names: of the columns.
    most: rows, or bytes and values times 1,024, of a batch.
  """
  widest = 0
  for group in map(
    file.metadata.row_group, range(file.metadata.num_row_groups)
  ):
    width = 0
    for column in map(group.column, range(group.num_columns)):
      if column.path_in_schema.split('.')[0] in names:
        width += 8 * column.num_values + column.total_uncompressed_size
    widest = max(widest, width // max(group.num_rows, 1))
  return max(1, min(most, 1024 * most // max(widest, 1)))


def header(path) -> list[str]:
  """Returns the names of all columns."""
  with open_file(path) as file:
    return list(file.schema_arrow.names)


def columns(header, required, optional, path) -> Iterable[tuple[str, int]]:
  """Returns the columns wanted, as pairs of name and place."""
  missing = [name for name in required if name not in header]
  if missing:
    raise errors.InputError(
      f'{path} has no column {missing[0]!r}, it has'
      f' {", ".join(header)[:200]}; name another column'
    )
  twice = lambda name: f'{path} has two columns {name!r}'
  return places(header, (*required, *optional), twice)


def places(header, names, twice: Callable[[str], str]):
  """Returns those of `names` that a header has, as pairs of name and place.

  Raises:
    errors.InputError: `twice` says that the header has a name twice.
  """
  wanted = [name for name in names if name in header]
  for name in wanted:
    if header.count(name) > 1:
      raise errors.InputError(f'{twice(name)}; rename one of the two')
  return [(name, header.index(name)) for name in wanted]


def as_text(values, where: str, start: int) -> list[str]:
  """Returns an arrow array of text, whole numbers or bool as text."""
  import pyarrow as pa

  if pa.types.is_dictionary(values.type):
    _check_text(values, where)
    values = values.dictionary_decode()
  kind = values.type
  if not (
    pa.types.is_integer(kind)
    or pa.types.is_floating(kind)
    or pa.types.is_boolean(kind)
    or pa.types.is_string(kind)
    or pa.types.is_large_string(kind)
  ):
    raise errors.InputError(
      f'{where} is {kind}; expected text or whole numbers: write it so'
    )
  if values.null_count:
    row = values.is_null().to_pylist().index(True)
    raise errors.InputError(
      f'{where}, row {start + row + 1} has no value; fill it in, or leave out'
      ' the row'
    )
  if pa.types.is_floating(kind):
    values = pa.array(_whole(values.to_pylist(), where, start), pa.int64())
  return values.cast(pa.large_string()).to_pylist()


def _check_text(values, where: str) -> None:
  """Refuses an arrow dictionary whose text does not fit the memory."""
  import pyarrow as pa
  import pyarrow.compute as pc

  if pa.types.is_string(values.type.value_type):
    lengths = pc.cast(pc.binary_length(values.dictionary), pa.int64())
    whole = pc.sum(lengths.take(values.indices)).as_py() or 0
    what = f'{where}: the text of {len(values):,} rows'
    memory.require(2 * whole, what, 'give shorter names')


def _whole(values: list[float], where: str, start: int) -> list[int]:
  for row, value in enumerate(values, start + 1):
    if not (abs(value) < MOST_WHOLE and value.is_integer()):
      raise errors.InputError(
        f'{where}, row {row} is {value}; expected text or a whole number: write it'
        ' so, or name another column'
      )
  return list(map(int, values))
