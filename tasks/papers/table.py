"""The forms of published tables and figures, and their rows, read from PAPER.csv."""

import csv
import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tasks.papers import names
from tff_xc.algorithms import registry as algorithms

SCALES = ('small', 'real', 'paper')
# A cell of formulas for which no number is printed.
NONE = '–'
# The clients' rate over 1 - the server's momentum (FedVC, fig. 8).
EFFECTIVE_RATE = 'effective rate'
EFFECTIVE = 'client_learning_rate', 'server_momentum'
_SEEDS = (0, 1, 2)  # Of a form, where the paper's has no others.
# Of a claim on the share of a grid's rows that are good.
REGION = 'region'
# Of small forms that were changed.
REDESIGNED = '; the form was changed after a first measurement'


class Number(NamedTuple):
  """A number of a table: a value with its standard deviation, or a bound."""

  value: float  # An int, if it has no decimals in print.
  std: float | None = None  # None: it is not known.
  is_bound: bool = False  # The number is above `value`, by how much is unknown.

  @classmethod
  def read(cls, value: str, std: str = '', bound: str = '') -> 'Number | None':
    """Reads the cells of a CSV; None without a value. ValueError for other texts."""
    if not value:
      return None
    digits = value.replace(',', '')
    number = int(digits) if digits.isdigit() else float(digits)
    return cls(number, float(std) if std else None, bool(bound))

  def __str__(self) -> str:
    """The number as papers print it: '51.7 ± 0.4', '>200'."""
    std = '' if self.std is None else f' ± {self.std}'
    return f'{">" * self.is_bound}{self.value}{std}'


class Row(NamedTuple):
  """One experiment of a table."""

  task: str  # With the paper's data, or with data of the same shape.
  algorithm: str
  # Results by name (`tasks.papers.names`); None if the number is not known here.
  published: Mapping[str, Number | None]
  changes: Mapping[str, Any] = {}  # Of the defaults of this task and algorithm.


class Claim(NamedTuple):
  """What the paper says of a table, besides its numbers: a row is above another.

  It is of all pairs of rows of one task that have these algorithms and settings, such as
  'fedavg concentration=100.0', and otherwise the same ones; 'fedavg|fedprox' are rows of
  either, and 'task=NAME' rows of that task.
  """

  says: str  # And where it stands.
  metric: str
  high: str
  low: str
  # Points that it must be above; negative: that it may be below.
  least: float = 0.0
  # An algorithm: of both rows, the gain over its row with the same settings. REGION: the
  # rows of each side are a grid, of which the share with good scores is compared.
  over: str = ''
  times: float = 1.0  # The low row counts so often: its double must be below with 2.

  @property
  def algorithms(self) -> set[str]:
    """The algorithms that it names."""
    sides = self.high, self.low, self.over
    return {n for words in sides for n in words.partition(' ')[0].split('|')}

  def pairs(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Returns the numbers of the rows above and below, for each pair."""
    named = {word.partition('=')[0] for word in f'{self.high} {self.low} rounds'.split()}
    high = [i for i, row in enumerate(rows) if _is_of(self.high, row)]
    low = [j for j, row in enumerate(rows) if _is_of(self.low, row)]
    found = []
    for i, j in itertools.product(high, low):
      above, below = rows[i], rows[j]
      shared = applying(above.changes, below.algorithm)
      others = applying(below.changes, above.algorithm)
      is_alike = without(shared, named) == without(others, named)
      if i != j and above.task == below.task and is_alike:
        found.append((i, j))
    return found


def _is_of(words: str, row: Row) -> bool:
  """Whether a row has the algorithm and the settings that a claim names."""
  names, *settings = words.split()
  own = {f'{n}={v}' for n, v in {'task': row.task, **row.changes}.items()}
  return row.algorithm in names.split('|') and own.issuperset(settings)


class Form(NamedTuple):
  """A result at one scale: what is measured, in a sentence, and a table's experiments."""

  what: str = ''  # Was made smaller, or is of other data; '' at the paper's size.
  rows: tuple[Row, ...] = ()  # With all settings; numbers are of the paper's row.
  claims: tuple[Claim, ...] = ()  # In the words of these rows.
  seeds: tuple[int, ...] = (0,)


def _table(number: str) -> str:
  return number.replace(' ', '').replace('.', '').lower()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """A published table or figure."""

  paper: str
  number: str  # 'Table 1' or 'Fig. 9'.
  source: str
  caption: str
  notes: str = ''  # Doubts about the numbers, and what differs here; sentences.
  # By scale. small: in minutes, on data that are always there; real: in hours, on real
  # data that are no larger than a computer without GPU can train on.
  forms: Mapping[str, Form] = dataclasses.field(default_factory=dict)

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

  def form(self, scale: str) -> Form:
    """Returns its form at a scale, an empty one if there is none."""
    return self.forms.get(scale, Form())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram(Result):
  """A figure without measurements; there is nothing to reproduce."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula(Result):
  """A table that follows from formulas, whose cells are in formulas.csv; tests compute them.

  The column 'equal' says of each printed number 'yes', 'no', or 'of rounded': computed
  from rounded numbers it has the printed digits.
  """

  @property
  def cells(self) -> list[list[str]]:
    """The rows of the table, its heading first."""
    path = pathlib.Path(__file__).with_name('formulas.csv')
    with open(path, newline='', encoding='utf-8') as file:
      return [cells for name, *cells in csv.reader(file) if name == self.name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Result):
  """A result with a measurement of its own, neither a formula nor plain runs."""

  # The function of `launch.reproduction.studies` that measures it.
  measure: str
  # The data that it reads: options by task, by scale; {}: none.
  tasks: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
  algorithm: str = 'fedavg'  # Whose hyper-parameters it takes.
  flags: tuple[str, ...] = ('data_dir',)  # That it can use, besides --task.
  # Whether --task may name any task whose examples keep all labels.
  takes_sets: bool = False
  # A table and algorithms, of whose runs it takes those with the fewest negatives.
  runs_of: tuple[str, ...] = ()
  # Bounds of what the small one shows, by the study's name of the value.
  expected: Mapping[str, tuple[float, float]]
  # Of the published values; {}: `expected` holds there too.
  published: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
  needs: str = ''  # At the paper's size, a sentence; '': it has one size.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperTable(Result):
  """A published table or figure of trained models; `forms` has their rows."""

  at_rounds: int | None = None  # After which scores are taken; None: the last.
  curves: tuple[str, ...] = ()  # Drawn scores; (): the headline metrics.
  over: str = 'rounds'  # Or batches, bytes, seconds; or EFFECTIVE_RATE.
  is_relative: bool = False  # Draws scores over that of the row `relative_to`.
  relative_to: str = 'centralized'  # The algorithm of `reference`.
  # Algorithms whose printed scores are those of the best seed.
  best_seed: tuple[str, ...] = ()
  # Whether its printed values without a deviation are of one seed, or have a large one.
  is_unsure: bool = False
  # Settings that were searched: of rows that differ in nothing else, with the number
  # of the best, the verdict is on the best, each result's own.
  best_over: tuple[str, ...] = ()

  @property
  def rows(self) -> tuple[Row, ...]:
    """The paper's rows, in its order."""
    return self.form('paper').rows

  def summary(self, task: str) -> str:
    """Returns results on a task: 'top-1 %: fedss 51.7 to 56.0, posonly 18.7'."""
    rows = [row for row in self.rows if row.task == task]
    name = next(iter(rows[0].published))
    values: dict[str, list[Number]] = {}
    for row in rows:
      if printed := row.published.get(name):
        values.setdefault(row.algorithm, []).append(printed._replace(std=None))
    parts = []
    for algorithm, found in values.items():
      ends = dict.fromkeys(map(str, (min(found), max(found))))
      parts.append(f'{algorithm} {" to ".join(ends)}')
    return f'{names.heading(name)}{names.unit(name)}: {", ".join(parts)}'

  def reference(self, row: Row, rows: Sequence[Row]) -> Row | None:
    """Returns the row of `relative_to` to which a row's results relate."""
    return beside(row, rows, self.relative_to)


def beside(row: Row, rows: Sequence[Row], algorithm: str) -> Row | None:
  """Returns the row of an algorithm to which a row is compared, None if none is there.

  It has the row's task and, of the row's changes, those that it has at all; how long it
  trains is its own.
  """
  for other in rows:
    shared = without(applying(other.changes, row.algorithm), ('rounds',))
    is_alike = (other.task, other.algorithm) == (row.task, algorithm)
    if is_alike and shared.items() <= row.changes.items():
      return other
  return None


def of_csv(
  *,
  of: str = '',
  task: str = '',
  what: str = '',
  small: Mapping[str, Mapping[str, Any]] = {},
  real: str = '',
  shared: Mapping[str, Any] = {},
  algorithms: Sequence[str] = (),
  seeds: tuple[int, ...] = _SEEDS,
  **words: Any,
) -> PaperTable:
  """Returns a table or figure with rows of PAPER.csv, and claims of claims.csv.

  `of` are the tables whose rows a figure draws, a panel for each task, `task` that of the
  rows, and `algorithms` theirs; `what` tells of a small form, whose rows are those of the
  tables `small`, each with its changes (default: the first, with `shared`), and `real` of
  a form on real data. `seeds` are the paper's.
  """
  paper, own = words['paper'].lower(), _table(words['number'])
  tables, forms = of.split() or [own], {}
  for scale, text, changes in (
    ('small', what, small or {tables[0]: shared}),
    ('real', real, {tables[0]: {}}),
    ('paper', '', {each: {} for each in tables}),
  ):
    if text or scale == 'paper':
      found = tuple(
        row
        for table, settings in changes.items()
        for row in rows(paper, table, scale, settings)
        if (not algorithms or row.algorithm in algorithms)
        and (not task or scale != 'paper' or row.task == task)
      )
      given = _claims(f'{paper}/{own}', tables, scale, found)
      forms[scale] = Form(text, found, given, seeds if scale == 'paper' else _SEEDS)
  return PaperTable(**words, forms=forms)


def _claims(name: str, tables: Sequence[str], scale: str, rows: Sequence[Row]) -> tuple[Claim, ...]:
  """Returns a result's claims, and those of other tables that are of its rows."""
  paper, found = name.partition('/')[0], []
  known = {name, *(f'{paper}/{table}' for table in tables)}
  for line in _lines('claims'):
    if line['table'] in known and line['scale'] in ('', scale):
      numbers = {'least': float(line['least'] or 0), 'times': float(line['times'] or 1)}
      claim = Claim(**{n: line[n] for n in Claim._fields} | numbers)
      is_own = line['table'] == name
      if is_own or (has_metric(claim.metric, rows) and claim.pairs(rows)):
        found.append(claim)
  return tuple(found)


def has_metric(name: str, rows: Sequence[Row]) -> bool:
  """Whether rows have results of a result's metric, at whatever budget or target."""
  metric = names.parse(name).metric
  return any(names.parse(n).metric == metric for r in rows for n in r.published)


def rows(
  paper: str, table: str, scale: str = 'paper', shared: Mapping[str, Any] = {}
) -> tuple[Row, ...]:
  """Returns the rows of PAPER.csv; `shared` applies to algorithms that take it.

  A line of NAME=VALUE|VALUE is a grid: a row for each combination, with its numbers.
  """
  found: dict[str, Row] = {}
  for line in _lines(paper):
    if (line['table'], line['scale']) != (table, scale):
      continue
    if line['row'] not in found:
      own = applying(shared, line['algorithm']) | changes(line['changes'])
      found[line['row']] = Row(line['task'], line['algorithm'], {}, own)
    if name := line['metric']:
      if at := line['at']:
        name += f'{"@" if ":" in at else ":"}{at}'
      number = Number.read(line['published'], line['std'], line['bound'])
      found[line['row']].published[name] = number
  grids = []
  for row in found.values():
    values = [
      [*map(_value, v.split('|'))] if isinstance(v, str) else [v] for v in row.changes.values()
    ]
    for each in itertools.product(*values):
      grids.append(row._replace(changes=dict(zip(row.changes, each, strict=True))))
  return tuple(grids)


@functools.cache
def _lines(paper: str) -> list[dict[str, str]]:
  path = pathlib.Path(__file__).parent / f'{paper}.csv'
  with open(path, newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def changes(text: str) -> dict[str, Any]:
  """Returns the values of NAME=VALUE;NAME=VALUE."""
  pairs = (each.partition('=') for each in text.split(';') if each)
  return {name: _value(value) for name, _, value in pairs}


def text_of(values: Mapping[str, Any]) -> str:
  """Returns what `changes` reads."""
  return ';'.join(f'{n}={str(v).lower() if isinstance(v, bool) else v}' for n, v in values.items())


def _value(text: str) -> Any:
  """Returns a bool, a number that prints as it was written, or the text."""
  try:
    return json.loads(text)
  except ValueError:
    return text


def without(changes: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
  """Returns changes without the settings of these names."""
  return {n: value for n, value in changes.items() if n not in names}


def applying(changes: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
  """Returns changes without the hyper-parameters that an algorithm lacks."""
  return {
    name: value
    for name, value in changes.items()
    if name not in algorithms.HYPERPARAMETERS or name in algorithms.get(algorithm).names
  }


def differing(row: Row, rows: Sequence[Row]) -> set[str]:
  """Returns the settings, but for how long they train, in which a row's kind differs."""
  alike = [other for other in rows if (other.task, other.algorithm) == (row.task, row.algorithm)]
  names_ = {name for other in alike for name in other.changes} - {'rounds'}
  return {n for n in names_ if any(x.changes.get(n) != alike[0].changes.get(n) for x in alike)}


def own_changes(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
  """Returns what tells a row from others of its algorithm, but how long it trains."""
  names_ = differing(row, rows)
  return {name: value for name, value in row.changes.items() if name in names_}


def labels(rows: Sequence[Row]) -> list[str]:
  """Returns a name for each row: 'fedss negatives=5', the task where it differs."""
  several, found = len({row.task for row in rows}) > 1, []
  for row in rows:
    settings = [f'{n}={v}' for n, v in own_changes(row, rows).items()]
    found.append(' '.join([*[row.task] * several, row.algorithm, *settings]))
  return found
