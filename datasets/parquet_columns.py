"""Parquet files and their columns as text; `datasets.tables` reads them in batches."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from tff_xc import errors

# Larger floats need not be the number that was meant.
MOST_WHOLE = 2.0**53


@contextlib.contextmanager
def open_file(path) -> Iterator:
  """Opens a `pyarrow.parquet.ParquetFile`; raises InputError if it is none."""
  import pyarrow as pa
  import pyarrow.parquet

  try:
    with pyarrow.parquet.ParquetFile(path) as file:
      yield file
  except (OSError, pa.ArrowException) as e:
    reason = ' '.join(str(e).split())[:200]
    raise errors.InputError(
      f'{path} is no Parquet file that can be read ({reason}); write it again'
    ) from e


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


def _whole(values: list[float], where: str, start: int) -> list[int]:
  for row, value in enumerate(values, start + 1):
    if not (abs(value) < MOST_WHOLE and value.is_integer()):
      raise errors.InputError(
        f'{where}, row {row} is {value}; expected text or a whole number: write it'
        ' so, or name another column'
      )
  return list(map(int, values))
