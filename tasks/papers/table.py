"""Published tables and figures. PAPER.csv has their rows at each scale."""

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
# A cell of a `Formula` without a printed number.
NONE = '–'
# The client learning rate divided by 1 - server momentum (FedVC, fig. 8).
EFFECTIVE_RATE = 'effective rate'
EFFECTIVE = 'client_learning_rate', 'server_momentum'
_SEEDS = (0, 1, 2)  # The default seeds.
# A value of `Claim.over`: the claim compares shares of rows with good scores.
REGION = 'region'
# The end of the description of runs whose settings we changed.
REDESIGNED = '. We changed these settings after a first measurement'


class Number(NamedTuple):
  """A number of a table: a value with its standard deviation, or a bound."""

  value: float  # An int if the paper prints no decimals.
  std: float | None = None  # None: unknown.
  is_bound: bool = False  # Whether `value` is only a lower bound of the number.

  @classmethod
  def read(cls, value: str, std: str = '', bound: str = '') -> 'Number | None':
    """Parses cells of a CSV; None if `value` is empty. Raises ValueError for invalid text."""
    if not value:
      return None
    digits = value.replace(',', '')
    number = int(digits) if digits.isdigit() else float(digits)
    return cls(number, float(std) if std else None, bool(bound))

  def __str__(self) -> str:
    """Returns the number as papers print it: '51.7 ± 0.4', '>200'."""
    std = '' if self.std is None else f' ± {self.std}'
    return f'{">" * self.is_bound}{self.value}{std}'


class Row(NamedTuple):
  """One experiment of a table."""

  task: str  # A task with the paper's data, or with procedural data of the same sizes.
  algorithm: str
  # Published results by name (`tasks.papers.names`); None: the number is unknown here.
  published: Mapping[str, Number | None]
  changes: Mapping[str, Any] = {}  # Settings that differ from the task's and algorithm's defaults.


class Claim(NamedTuple):
  """A statement of the paper: one row of a table scores higher than another row.

  `high` and `low` select rows by algorithm and settings, such as 'fedavg concentration=100.0'.
  'fedavg|fedprox' selects rows of both algorithms, and 'task=NAME' rows of that task. The claim
  is about all pairs of a `high` and a `low` row with the same task and equal other settings.
  """

  says: str  # The statement, and its place in the paper.
  metric: str
  high: str
  low: str
  # The number of points by which `high` must exceed `low`. -2: `high` may be 2 points lower.
  least: float = 0.0
  # The name of an algorithm: compare the gains of both rows over the row of this algorithm.
  # REGION: `high` and `low` select grids of rows. Compare the grids' shares of good scores.
  over: str = ''
  times: float = 1.0  # A factor on the low value; with 2, `high` must exceed twice the low value.

  @property
  def algorithms(self) -> set[str]:
    """The algorithms that the claim names."""
    sides = self.high, self.low, self.over
    return {n for words in sides for n in words.partition(' ')[0].split('|')}

  def pairs(self, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Returns the indices of the high and the low row of each pair."""
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
  """Whether a row has the algorithm and the settings that `words` name."""
  names, *settings = words.split()
  own = {f'{n}={v}' for n, v in {'task': row.task, **row.changes}.items()}
  return row.algorithm in names.split('|') and own.issuperset(settings)


class Form(NamedTuple):
  """The runs of a result at one scale."""

  what: str = ''  # What differs from the paper, such as data and size; '' at the paper's size.
  rows: tuple[Row, ...] = ()  # Experiments with all settings and the paper's numbers.
  claims: tuple[Claim, ...] = ()  # Claims about these rows.
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
  notes: str = ''  # Sentences on doubts about the numbers, and on differences from the paper.
  # Runs by scale. 'small' takes minutes on procedural data. 'real' takes hours on small real
  # data and needs no GPU. 'paper' has the paper's data and settings.
  forms: Mapping[str, Form] = dataclasses.field(default_factory=dict)

  @property
  def name(self) -> str:
    """The name on a command line, such as 'fedss/table1' or 'fedvc/fig10'."""
    return f'{self.paper.lower()}/{self.table}'

  @property
  def table(self) -> str:
    """The name without the paper: 'table1'."""
    return _table(self.number)

  @property
  def title(self) -> str:
    return f'{self.paper}, {self.number}'

  def form(self, scale: str) -> Form:
    """Returns the form at a scale; an empty form if there is none."""
    return self.forms.get(scale, Form())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram(Result):
  """A figure without measurements, so there is nothing to reproduce."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula(Result):
  """A table that follows from formulas. Its cells are in formulas.csv, and tests compute them.

  The column 'equal' compares each printed number with the computed number: 'yes', 'no', or 'of
  rounded'. The last means that the number follows only from the paper's rounded inputs.
  """

  @property
  def cells(self) -> list[list[str]]:
    """The rows of the table, the heading first."""
    path = pathlib.Path(__file__).with_name('formulas.csv')
    with open(path, newline='', encoding='utf-8') as file:
      return [cells for name, *cells in csv.reader(file) if name == self.name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Result):
  """A result with its own measurement, instead of a formula or the scores of runs."""

  # The function of `launch.reproduction.studies` that measures it.
  measure: str
  # Tasks whose data the study reads, with their options, by scale; {}: it reads no data.
  tasks: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
  algorithm: str = 'fedavg'  # The algorithm whose hyper-parameters the study uses.
  flags: tuple[str, ...] = ('data_dir',)  # Flags that the study accepts besides --task.
  # Whether --task may name any task whose examples keep all labels.
  takes_sets: bool = False
  # A table, then algorithms. The study uses these algorithms' runs with the fewest negatives.
  runs_of: tuple[str, ...] = ()
  # Bounds of the study's values at the small scale, by the name of the value.
  expected: Mapping[str, tuple[float, float]]
  # Bounds at the paper's scale; {}: the bounds in `expected`.
  published: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
  needs: str = ''  # Data needed at the paper's size, in words; '': the study has one size.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperTable(Result):
  """A published table or figure of trained models; `forms` has the rows."""

  at_rounds: int | None = None  # The round at which scores are taken; None: the last round.
  curves: tuple[str, ...] = ()  # The scores to draw; (): the headline metrics.
  over: str = 'rounds'  # The x axis: rounds, batches, bytes, seconds or EFFECTIVE_RATE.
  is_relative: bool = False  # Whether to draw scores relative to the row of `relative_to`.
  relative_to: str = 'centralized'  # The algorithm of `reference`.
  # Algorithms whose printed scores are those of the best seed.
  best_seed: tuple[str, ...] = ()
  # Whether printed values without a standard deviation are from one seed, or vary widely.
  is_unsure: bool = False
  # Settings that were tuned. Among rows that differ only in these settings, the best row counts.
  # All these rows have the same published number.
  best_over: tuple[str, ...] = ()

  @property
  def rows(self) -> tuple[Row, ...]:
    """The rows of the paper, in the paper's order."""
    return self.form('paper').rows

  def summary(self, task: str) -> str:
    """Summarizes the results on a task: 'top-1 %: fedss 51.7 to 56.0, posonly 18.7'."""
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
    """Returns the row of algorithm `relative_to` to which `row` is compared, or None."""
    return beside(row, rows, self.relative_to)


def beside(row: Row, rows: Sequence[Row], algorithm: str) -> Row | None:
  """Returns the row of `algorithm` to which `row` is compared, or None.

  Both rows have the same task. `row` has all changes of the returned row that apply to the
  algorithm of `row`, except the number of rounds.
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

  `of`: tables whose rows a figure draws, with a panel for each task.
  `task`, `algorithms`: draw only rows of this task and these algorithms.
  `what`: describes the runs at the small scale; '': there are none.
  `small`: tables whose rows run at the small scale, with changed settings for each table.
    Default: the first table, with the changes `shared`.
  `real`: describes the runs at the real scale; '': there are none.
  `seeds`: the paper's seeds.
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
  """Returns a result's own claims, and claims about `tables`, whose rows the result draws.

  A claim about a table is left out if it does not concern `rows`.
  """
  paper, found = name.partition('/')[0], []
  known = {name, *(f'{paper}/{table}' for table in tables)}
  for line in lines_of('claims'):
    if line['table'] in known and line['scale'] in ('', scale):
      numbers = {'least': float(line['least'] or 0), 'times': float(line['times'] or 1)}
      claim = Claim(**{n: line[n] for n in Claim._fields} | numbers)
      is_own = line['table'] == name
      if is_own or (has_metric(claim.metric, rows) and claim.pairs(rows)):
        found.append(claim)
  return tuple(found)


def has_metric(name: str, rows: Sequence[Row]) -> bool:
  """Whether any row has a result with the metric of `name`, at any budget or target."""
  metric = names.parse(name).metric
  return any(names.parse(n).metric == metric for r in rows for n in r.published)


def rows(
  paper: str, table: str, scale: str = 'paper', shared: Mapping[str, Any] = {}
) -> tuple[Row, ...]:
  """Returns a table's rows of PAPER.csv, with the settings of `shared` that apply to each.

  A line with NAME=VALUE|VALUE is a grid: it gives a row for each combination of values. All these
  rows have the published numbers of the line.
  """
  found: dict[str, Row] = {}
  for line in lines_of(paper):
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
def lines_of(paper: str) -> list[dict[str, str]]:
  """Returns the lines of PAPER.csv."""
  path = pathlib.Path(__file__).parent / f'{paper}.csv'
  with open(path, newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def changes(text: str) -> dict[str, Any]:
  """Parses NAME=VALUE;NAME=VALUE."""
  pairs = (each.partition('=') for each in text.split(';') if each)
  return {name: _value(value) for name, _, value in pairs}


def text_of(values: Mapping[str, Any]) -> str:
  """Writes the text that `changes` parses."""
  return ';'.join(f'{n}={str(v).lower() if isinstance(v, bool) else v}' for n, v in values.items())


def _value(text: str) -> Any:
  """Parses a bool or a number; returns any other text as it is."""
  try:
    return json.loads(text)
  except ValueError:
    return text


def without(changes: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
  """Returns `changes` without the settings `names`."""
  return {n: value for n, value in changes.items() if n not in names}


def applying(changes: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
  """Returns `changes` without the hyper-parameters that `algorithm` does not have."""
  return {
    name: value
    for name, value in changes.items()
    if name not in algorithms.HYPERPARAMETERS or name in algorithms.get(algorithm).names
  }


def differing(row: Row, rows: Sequence[Row]) -> set[str]:
  """Returns the settings, except rounds, that differ among rows of the same task and algorithm."""
  alike = [other for other in rows if (other.task, other.algorithm) == (row.task, row.algorithm)]
  names_ = {name for other in alike for name in other.changes} - {'rounds'}
  return {n for n in names_ if any(x.changes.get(n) != alike[0].changes.get(n) for x in alike)}


def own_changes(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
  """Returns a row's changes, except rounds, that other rows of its algorithm do not share."""
  names_ = differing(row, rows)
  return {name: value for name, value in row.changes.items() if name in names_}


def labels(rows: Sequence[Row]) -> list[str]:
  """Returns a name for each row, such as 'fedss negatives=5', with the task if tasks differ."""
  several, found = len({row.task for row in rows}) > 1, []
  for row in rows:
    settings = [f'{n}={v}' for n, v in own_changes(row, rows).items()]
    found.append(' '.join([*[row.task] * several, row.algorithm, *settings]))
  return found
