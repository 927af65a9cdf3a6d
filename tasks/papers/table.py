"""The form of a published table."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tff_xc.measure import catalog
from tff_xc.measure import targets


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
    published: results by metric, or by target such as 'top1:0.7', whose results
      are numbers of rounds; empty if the number is not known here.
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
      f'{heading(metric)}: {value}'
      if ':' in metric
      else f'{heading(metric)} {value} %'
      for metric, value in self.published.items()
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
    """Returns the results on a task by the metric that its rows name first.

    An algorithm with several rows has the range of their means: 'top-1 %: fedss
    51.7 to 56.0, posonly 18.7'.
    """
    rows = [row for row in self.rows if row.task == task and row.published]
    metric = next(iter(rows[0].published))
    values: dict[str, list[Published]] = {}
    for row in rows:
      if metric in row.published:
        value = row.published[metric]._replace(std=None)
        values.setdefault(row.algorithm, []).append(value)
    parts = [
      f'{algorithm} {min(found)}'
      + (f' to {max(found)}' if len(set(found)) > 1 else '')
      for algorithm, found in values.items()
    ]
    unit = '' if ':' in metric else ' %'
    return f'{heading(metric)}{unit}: {", ".join(parts)}'


def heading(metric: str) -> str:
  """Returns the heading of a metric, or of a target such as 'top1:0.7'."""
  if ':' in metric:
    return targets.parse_one(metric).heading
  return catalog.SCORES[metric].heading
