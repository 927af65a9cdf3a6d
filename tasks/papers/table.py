"""The form of a published table.

Its results have names:
  top1                 a score at the end, or at the best round
  top1@rounds:1000     a score at a budget of `tff_xc.measure.budgets`
  top1:0.7             rounds to a target of `tff_xc.measure.targets`
  relative_top1:0.1    rounds to a part of the score of the table's centralised row
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.measure import targets

_RELATIVE = 'relative_'


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
    published: results by name, see above; empty if the number is not known here.
    changes: hyper-parameters, options and settings that differ from the
      defaults of this task and algorithm, by name.
  """

  task: str
  algorithm: str
  published: Mapping[str, Published]
  changes: Mapping[str, Any] = {}

  def results(self) -> str:
    """Returns the results for people: 'top-1 51.7 ± 0.4 %'."""
    return ', '.join(
      f'{heading(name)}: {value}'
      if is_rounds(name)
      else f'{heading(name)} {value} %'
      for name, value in self.published.items()
    )


@dataclasses.dataclass(frozen=True)
class PaperTable:
  """A published table.

  Attributes:
    paper: its short name.
    number: 'Table 1'.
    source: where to find the paper.
    caption: what the table compares.
    rows: its experiments, in the paper's order.
    notes: doubts about the numbers, and what differs here; sentences.
  """

  paper: str
  number: str
  source: str
  caption: str
  rows: tuple[Row, ...]
  notes: str = ''

  @property
  def name(self) -> str:
    """The table's name on a command line, such as 'fedss/table1'."""
    return f'{self.paper}/{self.number}'.lower().replace(' ', '')

  @property
  def title(self) -> str:
    return f'{self.paper}, {self.number}'

  def summary(self, task: str) -> str:
    """Returns the results on a task by the name that its rows have first.

    An algorithm with several rows has the range of their means: 'top-1 %: fedss
    51.7 to 56.0, posonly 18.7'.
    """
    rows = [row for row in self.rows if row.task == task and row.published]
    name = next(iter(rows[0].published))
    values: dict[str, list[Published]] = {}
    for row in rows:
      if name in row.published:
        value = row.published[name]._replace(std=None)
        values.setdefault(row.algorithm, []).append(value)
    parts = [
      f'{algorithm} {min(found)}'
      + (f' to {max(found)}' if len(set(found)) > 1 else '')
      for algorithm, found in values.items()
    ]
    return f'{heading_with_unit(name)}: {", ".join(parts)}'

  def reference(self, row: Row) -> Row | None:
    """Returns the centralised row to which results of a row are relative.

    It has the row's task and those of the row's changes that it has at all.
    """
    return next(
      (
        other
        for other in self.rows
        if (other.task, other.algorithm) == (row.task, 'centralized')
        and other.changes.items() <= row.changes.items()
      ),
      None,
    )


class Parts(NamedTuple):
  """A result's name in parts.

  Attributes:
    score: its name in `catalog.SCORES`.
    budget: at which the score is taken; None: at the end.
    target: to which rounds are counted, or None.
    relative: the part of the centralised score to which rounds are counted, or
      None.
  """

  score: str
  budget: budgets.Budget | None = None
  target: targets.Target | None = None
  relative: float | None = None


def parse(name: str) -> Parts:
  """Returns the parts of a result's name."""
  if '@' in name:
    score, _, budget = name.rpartition('@')
    if score in catalog.SCORES:
      return Parts(score, budget=budgets.parse(budget)[0])
  if name.startswith(_RELATIVE):
    score, _, part = name.removeprefix(_RELATIVE).partition(':')
    return Parts(score, relative=float(part))
  if ':' in name:
    target = targets.parse_one(name)
    return Parts(target.metric, target=target)
  return Parts(name)


def is_rounds(name: str) -> bool:
  """Returns whether a result is a number of rounds; others are in percent."""
  found = parse(name)
  return found.target is not None or found.relative is not None


def heading(name: str) -> str:
  """Returns the heading of a result: 'top-1', 'rounds to top-1 70 %'."""
  found = parse(name)
  score = catalog.SCORES[found.score].heading
  if found.target:
    return found.target.heading
  if found.relative is not None:
    return f'rounds to relative {score} {100 * found.relative:.10g} %'
  return f'{score} {found.budget.heading}' if found.budget else score


def heading_with_unit(name: str) -> str:
  """Returns the heading, and percent if the result is in percent."""
  return heading(name) + ('' if is_rounds(name) else ' %')
