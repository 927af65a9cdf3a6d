"""The form of a published table or figure of trained models."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tasks.papers import names
from tasks.papers import result
from tff_xc.algorithms import registry as algorithms


class Published(NamedTuple):
  """A published mean.

  Attributes:
    mean: as printed: in percent, or a number of rounds.
    std: None if the paper has none.
    is_bound: whether the value is above `mean`, which the paper prints as '>200'.
  """

  mean: float
  std: float | None = None
  is_bound: bool = False

  def __str__(self) -> str:
    text = f'{self.mean}' + (f' ± {self.std}' if self.std else '')
    return f'>{text}' if self.is_bound else text


def read(printed: str) -> list[Published | None]:
  """Returns values as printed, '51.7±0.4 – 18.7 >200': None for –."""
  return [_read_one(value) for value in printed.split()]


def _read_one(value: str) -> Published | None:
  if value == '–':
    return None
  if value.startswith('>'):
    return Published(_number(value[1:]), is_bound=True)
  return Published(*map(_number, value.split('±')))


def _number(text: str) -> float:
  """Returns a number that prints as it was printed."""
  return int(text) if text.isdigit() else float(text)


class Row(NamedTuple):
  """One experiment of a table.

  Attributes:
    task: the task with the paper's data, or with data of the same shape.
    algorithm: the paper's algorithm, or its baseline.
    published: results by name (`tasks.papers.names`); None if the number is not
      known here.
    changes: hyper-parameters, options and settings that differ from the
      defaults of this task and algorithm, by name.
  """

  task: str
  algorithm: str
  published: Mapping[str, Published | None]
  changes: Mapping[str, Any] = {}

  @property
  def is_relative(self) -> bool:
    """Whether results are relative to those of `PaperTable.reference`."""
    return any(names.parse(n).relative is not None for n in self.published)

  def results(self) -> str:
    """Returns the results for people: 'top-1 51.7 ± 0.4 %'."""
    return ', '.join(
      f'{names.heading(name)}{" " if names.unit(name) else ": "}{value}{names.unit(name)}'
      for name, value in self.published.items()
      if value
    )


class Small(NamedTuple):
  """The same experiments in minutes, on data that are always there.

  Attributes:
    what: what was made smaller, in a sentence.
    rows: the experiments, all settings in their changes; `published` is of the
      paper's row.
    expected: what they are to show.
    seeds: of each row.
  """

  what: str
  rows: tuple[Row, ...]
  expected: tuple[result.Expected, ...]
  seeds: tuple[int, ...] = (0,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperTable(result.Result):
  """A published table or figure of trained models.

  Attributes:
    rows: its experiments, in the paper's order.
    small: the same in minutes; None: it has no small form.
    seeds: of each row, as in the paper.
    shape: what the rows are to show at the paper's size, where the paper prints no
      numbers; (): it prints some.
    at_rounds: the rounds after which scores are taken; None: the last.
    curves: the scores that its picture draws; (): the headline metrics.
    over: what they are drawn over, see `compare_curves.AXES`.
    is_relative: whether its picture shows scores over that of the centralised
      row.
  """

  rows: tuple[Row, ...]
  small: Small | None = None
  seeds: tuple[int, ...] = (0, 1, 2)
  shape: tuple[result.Expected, ...] = ()
  at_rounds: int | None = None
  curves: tuple[str, ...] = ()
  over: str = 'rounds'
  is_relative: bool = False

  def summary(self, task: str) -> str:
    """Returns the results on a task by the name that its rows have first.

    An algorithm with several rows has the range of their means: 'top-1 %: fedss
    51.7 to 56.0, posonly 18.7'.
    """
    rows = [row for row in self.rows if row.task == task]
    name = next(iter(rows[0].published))
    values: dict[str, list[Published]] = {}
    for row in rows:
      if value := row.published.get(name):
        value = value._replace(std=None)
        values.setdefault(row.algorithm, []).append(value)
    parts = [
      f'{algorithm} {min(found)}'
      + (f' to {max(found)}' if len(set(found)) > 1 else '')
      for algorithm, found in values.items()
    ]
    return f'{names.heading(name)}{names.unit(name)}: {", ".join(parts)}'

  def reference(self, row: Row, rows: Sequence[Row]) -> Row | None:
    """Returns the centralised row of `rows` to which a row's results relate.

    It has the row's task and, of the row's changes, those that it has at all,
    but for settings that only it takes.
    """
    for other in rows:
      if (other.task, other.algorithm) != (row.task, 'centralized'):
        continue
      shared = applying(other.changes, row.algorithm)
      if shared.items() <= row.changes.items():
        return other
    return None


def applying(changes: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
  """Returns changes without the hyper-parameters that an algorithm lacks."""
  taken = algorithms.get(algorithm).names
  return {
    name: value
    for name, value in changes.items()
    if name not in algorithms.HYPERPARAMETERS or name in taken
  }


def shrunk(
  rows: Sequence[Row], task: str, shared: Mapping[str, Any]
) -> tuple[Row, ...]:
  """Returns rows on a small task, beside the same published numbers.

  Args:
    rows: the paper's.
    task: that has no files.
    shared: changes of all rows, which theirs replace. Hyper-parameters apply to
      the algorithms that take them.
  """
  found = []
  for row in rows:
    changes = {**applying(shared, row.algorithm), **row.changes}
    found.append(Row(task, row.algorithm, row.published, changes))
  return tuple(found)


def own_changes(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
  """Returns the changes in which a row differs from others of its algorithm.

  How long it trains is none of them: rows that need more rounds are no other method.
  """
  alike = [
    other
    for other in rows
    if (other.task, other.algorithm) == (row.task, row.algorithm)
  ]
  return {
    name: value
    for name, value in row.changes.items()
    if name != 'rounds'
    and any(other.changes.get(name) != value for other in alike)
  }


def labels(rows: Sequence[Row]) -> list[str]:
  """Returns a name for each row: 'fedss negatives=5', the task where it differs."""
  several = len({row.task for row in rows}) > 1
  return [
    ' '.join(
      [
        *([row.task] if several else []),
        row.algorithm,
        *(f'{n}={v}' for n, v in own_changes(row, rows).items()),
      ]
    )
    for row in rows
  ]
