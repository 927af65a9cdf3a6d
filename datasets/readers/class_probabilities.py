"""Reads class probabilities from a table: FedIR's target distribution.

The table (`datasets.readers.tables`) has the columns `class,probability` or `class,weight`
and a row for each class. Classes without a row have probability 0. The reader divides the
values by their sum. The column `class` has class names or the numbers from 0. If all entries
of the column are class names, the reader treats them as names, even if they are numbers.
"""

import os
from collections.abc import Sequence

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import tables
from tff_xc import errors

_CLASS, _VALUES = 'class', ('probability', 'weight')


def read(
  path: str | os.PathLike, num_classes: int, class_names: Sequence[str] | None = None
) -> np.ndarray:
  """Returns the probabilities of the n classes, float64 [n], with sum 1.

  The table may have `class_names` [n] in place of the numbers from 0 to n - 1. Raises
  `errors.InputError` if the table is wrong. The message names the file and the wrong line.
  """
  values = [name for name in tables.header(path) if name in _VALUES]
  if len(values) != 1:
    raise errors.InputError(
      f'{path}: expected the columns class,probability or class,weight: give such a file'
    )
  rows = [
    (batch.where(row), examples_lib.nfc(name), str(batch.columns[values[0]][row]))
    for batch in tables.batches(path, [_CLASS, *values])
    for row, name in enumerate(batch.texts(_CLASS))
  ]
  places = {examples_lib.nfc(tables.plain(n)): i for i, n in enumerate(class_names or ())}
  if not all(name in places for _, name, _ in rows):
    places = {str(i): i for i in range(num_classes)}
  found, seen = np.zeros(num_classes), set()
  for where, name, text in rows:
    label = places.get(name, places.get(name.lstrip('0') or '0') if name else None)
    try:
      value = float(text)
    except ValueError:
      value = -1.0
    if label is None or label in seen or not 0 <= value < np.inf:
      raise errors.InputError(
        f'{where}: {name[:20]!r} has {text[:20]!r}; expected each class once, a name of the data'
        f' or a number from 0 to {num_classes - 1}, with a finite number of at least 0: mend it'
      )
    seen.add(label)
    found[label] = value
  with np.errstate(over='ignore'):
    total = found.sum()
  if not 0 < total < np.inf:
    raise errors.InputError(
      f'{path}: the probabilities have the sum {total}; expected a finite number'
      ' above 0: give a class that occurs'
    )
  return found / total
