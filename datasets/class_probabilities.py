"""Probabilities of classes in a CSV file: FedIR's target distribution.

A header `class,probability` or `class,weight`, then a line for each class. Columns
may come in any order and beside others, fields may be quoted, and blank lines do
not count. Classes without a line have probability 0; the rest is divided by the
sum. A class is a number from 0. Of data that name their classes it is a name: if
all lines have names of the data, these count, even where they are numbers.
"""

import csv
import math
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from tff_xc import errors

_CLASS, _VALUES = 'class', ('probability', 'weight')


def read(
  path: str | os.PathLike,
  num_classes: int,
  class_names: Sequence[str] | None = None,
) -> np.ndarray:
  """Returns float64 [n], at least 0, with sum 1.

  Args:
    path: the file.
    num_classes: n; classes are numbers from 0 to n - 1.
    class_names: [n], which may stand for the numbers; None: the data have none.

  Raises:
    errors.InputError: naming the file and the line that is wrong.
  """
  found = np.zeros(num_classes)
  line_of = {}
  lines = list(_lines(pathlib.Path(path)))
  place = {name: i for i, name in enumerate(class_names or ())}
  by_name = bool(place) and all(name in place for _, name, _ in lines)
  for line, name, value in lines:
    where = f'{path}, line {line}'
    label = place[name] if by_name else _class(name, num_classes, place, where)
    if label in line_of:
      raise errors.InputError(
        f'{where}: class {name} is in line {line_of[label]} already; give each'
        ' class once'
      )
    found[label], line_of[label] = _number(value, where), line
  with np.errstate(over='ignore'):
    total = found.sum()
  if not 0 < total < math.inf:
    raise errors.InputError(
      f'{path}: the probabilities have the sum {total}; expected a finite number'
      ' above 0: give a class that occurs'
    )
  return found / total


def _class(name: str, num_classes: int, names, where: str) -> int:
  """Returns the class of a number from 0, beside the data's names for errors."""
  # int() may refuse longer numbers.
  if name.isdecimal() and len(name) < 20 and int(name) < num_classes:
    return int(name)
  others = ''
  if names:
    others = (
      f', or in all lines a name of the data, such as {next(iter(names))!r}'
    )
  raise errors.InputError(
    f'{where}: class is {name[:20]!r}; expected a number from 0 to'
    f' {num_classes - 1}{others}: mend it'
  )


def _number(value: str, where: str) -> float:
  try:
    number = float(value)
  except ValueError:
    number = math.nan
  if not 0 <= number < math.inf:
    raise errors.InputError(
      f'{where}: the probability is {value[:20]!r}; expected a finite number of at'
      ' least 0: mend it'
    )
  return number


def _lines(path: pathlib.Path) -> Iterator[tuple[int, str, str]]:
  """Yields (line number, class, probability) of every line after the header."""
  try:
    with path.open(newline='', encoding='utf-8-sig') as file:
      reader = csv.reader(file)
      header = [name.strip() for name in next(reader, [])]
      values = [name for name in header if name in _VALUES]
      if header.count(_CLASS) != 1 or len(values) != 1:
        raise errors.InputError(
          f'{path}, line 1 is {",".join(header)[:80]!r}; expected the columns'
          ' class,probability or class,weight: give such a file'
        )
      places = header.index(_CLASS), header.index(values[0])
      for row in filter(None, reader):
        if len(row) != len(header):
          raise errors.InputError(
            f'{path}, line {reader.line_num} has {len(row)} fields; expected'
            f' {len(header)}, as in line 1: mend the line'
          )
        yield reader.line_num, *(row[i].strip() for i in places)
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise errors.InputError(
      f'{path} cannot be read as CSV text ({e}); give a file class,probability'
    ) from e
