"""JSON files of any size, one value at a time (ijson); also in a zip."""

import pathlib
from collections.abc import Iterator
from typing import Any

from datasets import zip_members
from tff_xc import errors


def items(path: pathlib.Path, prefix: str, get_it: str) -> Iterator[Any]:
  """Yields the values at a prefix such as `item`, of an array, or `images.item`.

  Raises `errors.InputError` where the file is no JSON; `get_it` says how to get a good
  one.
  """
  import ijson

  return _values(path, ijson.items, prefix, get_it)


def pairs(path: pathlib.Path, key: str, get_it: str) -> Iterator[tuple[str, Any]]:
  """Yields the keys and values of the object of a key; errors are those of `items`."""
  import ijson

  return _values(path, ijson.kvitems, key, get_it)


def _values(path: pathlib.Path, parse, prefix: str, get_it: str) -> Iterator:
  import ijson

  with zip_members.open_bytes(path) as file:
    values, nothing = parse(file, prefix, use_float=True), object()
    while True:
      try:
        value = next(values, nothing)
      except (ijson.JSONError, UnicodeDecodeError, *zip_members.DAMAGE) as e:
        why = ' '.join(str(e).split())[:100]
        raise errors.InputError(
          f'{path} is no JSON that can be read ({why}): it is cut short, damaged or'
          f' another file; {get_it}'
        ) from e
      if value is nothing:
        return
      yield value
