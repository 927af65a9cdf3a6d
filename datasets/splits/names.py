"""The order of names, of clients and of classes, and when two are one name."""

import re
import unicodedata
from collections.abc import Iterable

_NUMBER = re.compile('0|[1-9][0-9]*')


def in_order(names: Iterable[str]) -> list[str]:
  """Returns names sorted; if all are whole numbers, as numbers."""
  names = list(names)
  if all(map(_NUMBER.fullmatch, names)):
    # Of numbers without leading zeros, the longer one is larger.
    return sorted(names, key=lambda name: (len(name), name))
  return sorted(names)


def joined(name: str) -> str:
  """Returns what is equal of an id or a class in two files, Unicode's form C.

  macOS gives files names in form D, in which an accent follows its letter.
  """
  return unicodedata.normalize('NFC', name)
