"""Reads JSON files of any size, one value at a time, with ijson. A file may be in a zip."""

import pathlib
from collections.abc import Iterator

from datasets.readers import zipped
from tff_xc import errors


def values(path: pathlib.Path, prefix: str, get_it: str, pairs: bool = False) -> Iterator:
  """Yields the values at an ijson prefix, such as `item` for an array, or `images.item`.

  If `pairs` is true, yields the keys and values of the object at the prefix. Raises
  `errors.InputError` if the file is not JSON. The error message ends with `get_it`, which says
  how to get a good file.
  """
  import ijson

  parse = ijson.kvitems if pairs else ijson.items
  with zipped.open_bytes(path) as file:
    try:
      yield from parse(file, prefix, use_float=True)
    except (ijson.JSONError, UnicodeDecodeError, *zipped.DAMAGE) as e:
      why = ' '.join(str(e).split())[:100]
      raise errors.InputError(
        f'{path} is no JSON that can be read ({why}): it is cut short, damaged or another file;'
        f' {get_it}'
      ) from e
