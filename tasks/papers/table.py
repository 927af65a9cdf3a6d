"""The forms of published tables and figures, and their rows, read from PAPER.csv."""

import csv
import dataclasses
import functools
import math
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tasks.papers import names
from tff_xc.algorithms import registry as algorithms

SCALES = ('paper', 'small')
# A cell of formulas for which no number is printed.
NONE = '–'
# Of small forms that were changed.
REDESIGNED = '; the form was changed after a first measurement'


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


class Row(NamedTuple):
  """One experiment of a table.

  Attributes:
    task: the task with the paper's data, or with data of the same shape.
    algorithm: the paper's algorithm, or its baseline.
    published: results by name (`tasks.papers.names`); None if the number is not
      known here.
    changes: settings that differ from the defaults of this task and algorithm.
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


class Claim(NamedTuple):
  """What the paper says of a table, besides its numbers: a row is above another.

  It is of all pairs of rows of one task that have these algorithms and settings and
  otherwise the same ones.

  Attributes:
    says: the claim, and where it stands.
    metric: the name of the result.
    high: the row above: 'fedss', 'fedavg concentration=100.0'.
    low: the row below.
    least: points that it must be above; negative: that it may be below.
  """

  says: str
  metric: str
  high: str
  low: str
  least: float = 0.0

  def pairs(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Returns the numbers of the rows above and below, for each pair."""
    high, low = _selected(self.high, rows), _selected(self.low, rows)
    named = {
      word.partition('=')[0]
      for each in (self.high, self.low)
      for word in each.split()[1:]
    }
    rest = lambda row, other: {
      name: value
      for name, value in row.changes.items()
      if name not in named and name in other.changes and name != 'rounds'
    }
    return [
      (i, j)
      for i in high
      for j in low
      if i != j
      and rows[i].task == rows[j].task
      and rest(rows[i], rows[j]) == rest(rows[j], rows[i])
    ]


def _selected(words: str, rows: Sequence[Row]) -> list[int]:
  algorithm, *settings = words.split()
  return [
    i
    for i, row in enumerate(rows)
    if row.algorithm == algorithm
    and {*settings} <= {f'{n}={v}' for n, v in row.changes.items()}
  ]


def _table(number: str) -> str:
  return number.replace(' ', '').replace('.', '').lower()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """A published table or figure.

  Attributes:
    paper: its short name.
    number: 'Table 1' or 'Fig. 9'.
    source: where to find the paper.
    caption: what it shows.
    notes: doubts about the numbers, and what differs here; sentences.
  """

  paper: str
  number: str
  source: str
  caption: str
  notes: str = ''

  @property
  def name(self) -> str:
    """Its name on a command line, such as 'fedss/table1' or 'fedvc/fig10'."""
    return f'{self.paper.lower()}/{self.table}'

  @property
  def table(self) -> str:
    """The name without the paper: 'table1'."""
    return _table(self.number)

  @property
  def title(self) -> str:
    return f'{self.paper}, {self.number}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram(Result):
  """A figure without measurements; there is nothing to reproduce."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula(Result):
  """A table that follows from formulas.

  Attributes:
    heading: of the columns; the one called 'equal' says of each printed number 'yes',
      'no', or 'of rounded': computed from rounded numbers it has the printed digits.
    rows: cells.
  """

  heading: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]

  @property
  def equal(self) -> tuple[str, ...]:
    """Returns the cells below 'equal' of printed numbers."""
    place = self.heading.index('equal')
    return tuple(row[place] for row in self.rows if row[place] != NONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Result):
  """A result with a measurement of its own, neither a formula nor plain runs.

  Attributes:
    module: of `launch.reproduction.studies`, which measures it.
    expected: bounds of what the small one shows, by the study's name of the value.
    published: bounds of the published values; {}: `expected` holds there too.
    small: what the small one measures, in a sentence.
    needs: what the measurement at the paper's size needs, in a sentence; '': it
      is too small to have a size of its own.
  """

  module: str
  small: str
  expected: Mapping[str, tuple[float, float]]
  published: Mapping[str, tuple[float, float]] = dataclasses.field(
    default_factory=dict
  )
  needs: str = ''


class Small(NamedTuple):
  """The same experiments in minutes, on data that are always there.

  Attributes:
    what: what was made smaller, in a sentence.
    rows: the experiments, all settings in their changes; `published` is of the
      paper's row.
    claims: of the paper's text, in the words of these rows.
    seeds: of each row.
  """

  what: str
  rows: tuple[Row, ...]
  claims: tuple[Claim, ...] = ()
  seeds: tuple[int, ...] = (0,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperTable(Result):
  """A published table or figure of trained models.

  Attributes:
    rows: its experiments, in the paper's order.
    small: the same in minutes; None: it has no small form.
    claims: what the paper's text says of it.
    seeds: of each row, as in the paper.
    at_rounds: the rounds after which scores are taken; None: the last.
    curves: the scores that its picture draws; (): the headline metrics.
    over: what they are drawn over: rounds, batches, bytes or seconds.
    is_relative: whether its picture shows scores over that of the centralised
      row.
  """

  rows: tuple[Row, ...]
  small: Small | None = None
  claims: tuple[Claim, ...] = ()
  seeds: tuple[int, ...] = (0, 1, 2)
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


def of_csv(
  *,
  of: str = '',
  task: str = '',
  what: str = '',
  small: str = '',
  shared: Mapping[str, Any] = {},
  claims: tuple[Claim, ...] = (),
  small_claims: tuple[Claim, ...] | None = None,
  **words: Any,
) -> PaperTable:
  """Returns a table or figure with rows of PAPER.csv.

  Args:
    of: the table whose rows a figure draws; '': its own.
    task: of the rows that it has; '': all.
    what: of its small form; '': it has none.
    small: the table whose small rows it has; '': those of `of`.
    shared: changes of all small rows, which theirs replace.
    claims: of the paper's text.
    small_claims: in the words of the small rows; None: the same.
    **words: further attributes of `PaperTable`.
  """
  paper, of = words['paper'].lower(), of or _table(words['number'])
  form = None
  if what:
    kept = claims if small_claims is None else small_claims
    form = Small(what, rows(paper, small or of, 'small', shared), kept)
  found = tuple(r for r in rows(paper, of) if task in ('', r.task))
  return PaperTable(**words, rows=found, small=form, claims=claims)


def rows(
  paper: str, table: str, scale: str = 'paper', shared: Mapping[str, Any] = {}
) -> tuple[Row, ...]:
  """Returns the rows of PAPER.csv.

  Hyper-parameters of the `shared` changes apply to the algorithms that take them.
  """
  found: dict[str, Row] = {}
  for line in _lines(paper):
    if (line['table'], line['scale']) != (table, scale):
      continue
    if line['row'] not in found:
      own = applying(shared, line['algorithm']) | changes(line['changes'])
      found[line['row']] = Row(line['task'], line['algorithm'], {}, own)
    if line['metric']:
      found[line['row']].published[_name(line)] = _published(line)
  return tuple(found.values())


@functools.cache
def _lines(paper: str) -> list[dict[str, str]]:
  path = pathlib.Path(__file__).parent / f'{paper}.csv'
  with open(path, newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def _name(line: Mapping[str, str]) -> str:
  if not line['at']:
    return line['metric']
  return f'{line["metric"]}{"@" if ":" in line["at"] else ":"}{line["at"]}'


def _published(line: Mapping[str, str]) -> Published | None:
  if not line['published']:
    return None
  std = _value(line['std']) if line['std'] else None
  return Published(_value(line['published']), std, line['bound'] == '>')


def changes(text: str) -> dict[str, Any]:
  """Returns the values of NAME=VALUE;NAME=VALUE."""
  pairs = (each.partition('=') for each in text.split(';') if each)
  return {name: _value(value) for name, _, value in pairs}


def text_of(values: Mapping[str, Any]) -> str:
  """Returns what `changes` reads."""
  return ';'.join(
    f'{n}={str(v).lower() if isinstance(v, bool) else v}'
    for n, v in values.items()
  )


def _value(text: str) -> Any:
  """Returns a bool, a number that prints as it was written, or the text."""
  if text in ('true', 'false'):
    return text == 'true'
  if text.isdigit():
    return int(text)
  return float(text) if re.match(r'[\d.]+(e-?\d+)?$', text) else text


def applying(changes: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
  """Returns changes without the hyper-parameters that an algorithm lacks."""
  taken = algorithms.get(algorithm).names
  return {
    name: value
    for name, value in changes.items()
    if name not in algorithms.HYPERPARAMETERS or name in taken
  }


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


def bounds(least: float, most: float) -> str:
  """Returns bounds for people: 'at least 10', '5 to 7', 'exactly 1,262'."""
  low, high = (f'{v:,.10g}' for v in (least, most))
  if least == most:
    return f'exactly {low}'
  if most == math.inf:
    return f'at least {low}'
  return f'at most {high}' if least == -math.inf else f'{low} to {high}'
