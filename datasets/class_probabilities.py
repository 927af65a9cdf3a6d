"""Probabilities of classes in a table: FedIR's target distribution.

A table (`datasets.tables`) with the columns `class,probability` or `class,weight`
and a row for each class. Classes without a row have probability 0; the rest is
divided by the sum. A class is a number from 0. Of data that name their classes it is
a name: if all rows have names of the data, these count, even where they are numbers.
"""

import os
from collections.abc import Sequence

import numpy as np

from datasets import tables, zip_members
from tff_xc import errors

_CLASS, _VALUES = 'class', ('probability', 'weight')


def read(
  path: str | os.PathLike, num_classes: int, class_names: Sequence[str] | None = None
) -> np.ndarray:
  """Returns float64 [n], at least 0, with sum 1.

  `class_names` [n] may stand for the numbers from 0 to n - 1. Raises
  `errors.InputError`, which names the file and the line that is wrong.
  """
  if not zip_members.is_file(path):
    raise errors.InputError(f'{path} is no file; give one with the columns class,probability')
  header = tables.header(path)
  values = [name for name in header if name in _VALUES]
  if header.count(_CLASS) != 1 or len(values) != 1:
    raise errors.InputError(
      f'{path}, line 1 is {",".join(header)[:80]!r}; expected the columns'
      ' class,probability or class,weight: give such a file'
    )
  rows = [
    (batch.where(row), name, str(batch.raw[values[0]][row]))
    for batch in tables.batches(path, [_CLASS], raw=values)
    for row, name in enumerate(batch.columns[_CLASS])
  ]
  named = {tables.plain(n): i for i, n in enumerate(class_names or ())}
  by_name = all(name in named for _, name, _ in rows)
  numbers = {str(i): i for i in range(num_classes)}
  found, seen = np.zeros(num_classes), {}
  for where, name, value in rows:
    label = named[name] if by_name else numbers.get(name.lstrip('0') or '0')
    if label is None or not name:
      others = ', or in all lines a name of the data, such as '
      others += repr(next(iter(named), ''))
      raise errors.InputError(
        f'{where}: class is {name[:20]!r}; expected a number from 0 to'
        f' {num_classes - 1}{others if named else ""}: mend it'
      )
    if label in seen:
      raise errors.InputError(
        f'{where}: class {name} is in {seen[label]} already; give each class once'
      )
    seen[label] = where
    try:
      found[label] = float(value)
    except ValueError:
      found[label] = np.nan
    if not 0 <= found[label] < np.inf:
      raise errors.InputError(
        f'{where}: the probability is {value[:20]!r}; expected a finite number of'
        ' at least 0: mend it'
      )
  with np.errstate(over='ignore'):
    total = found.sum()
  if not 0 < total < np.inf:
    raise errors.InputError(
      f'{path}: the probabilities have the sum {total}; expected a finite number'
      ' above 0: give a class that occurs'
    )
  return found / total
