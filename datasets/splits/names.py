"""The order of names: of clients, and of classes."""

import re
from collections.abc import Iterable

_NUMBER = re.compile('0|[1-9][0-9]*')


def in_order(names: Iterable[str]) -> list[str]:
  """Returns names sorted; if all are whole numbers, as numbers."""
  names = list(names)
  if all(map(_NUMBER.fullmatch, names)):
    # Of numbers without leading zeros, the longer one is larger.
    return sorted(names, key=lambda name: (len(name), name))
  return sorted(names)
