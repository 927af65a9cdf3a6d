"""The form of a published table."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tff_xc.measure import catalog


class Published(NamedTuple):
  """A mean as printed, in percent, and its std; None if the paper has none."""

  mean: float
  std: float | None = None

  def __str__(self) -> str:
    return f'{self.mean}' + (f' ± {self.std}' if self.std else '')


def read(printed: str) -> list[Published | None]:
  """Returns values as the paper prints them, '51.7±0.4 – 18.7': None for –."""
  return [
    None if value == '–' else Published(*map(float, value.split('±')))
    for value in printed.split()
  ]


class Row(NamedTuple):
  """One experiment of a table.

  Attributes:
    task: the task with the paper's data, or with data of the same shape.
    algorithm: the paper's algorithm, or its baseline.
    published: results by metric; empty if the number is not known here.
    changes: hyper-parameters and options that differ from the defaults of this
      task and algorithm, by name.
  """

  task: str
  algorithm: str
  published: Mapping[str, Published]
  changes: Mapping[str, Any] = {}

  def results(self) -> str:
    """Returns the results for people: 'top-1 51.7 ± 0.4 %'."""
    return ', '.join(
      f'{catalog.SCORES[metric].heading} {value} %'
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
    means: dict[str, list[float]] = {}
    for row in rows:
      if metric in row.published:
        found = means.setdefault(row.algorithm, [])
        found.append(row.published[metric].mean)
    parts = [
      f'{algorithm} {min(found)}'
      + (f' to {max(found)}' if len(set(found)) > 1 else '')
      for algorithm, found in means.items()
    ]
    return f'{catalog.SCORES[metric].heading} %: {", ".join(parts)}'
