"""Measured results: OUTPUT/PAPER.csv, and the text that shows them.

A file has a line for each result of each row of a table, and one for each of its
costs. Numbers are as people read them: '>60' of a target that a seed missed, '51.7±0.4'
published, '0:51.5 1:49.3' each seed's. The lines of a table and scale are replaced
together.
"""

import contextlib
import csv
import dataclasses
import functools
import io
import math
import pathlib
import textwrap
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from launch.reproduction import judge
from tasks.papers import names
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc import errors
from tff_xc import files
from tff_xc import wording
from tff_xc.report import text_table

if TYPE_CHECKING:
  import pandas as pd

COLUMNS = (
  *('table', 'scale', 'row', 'task', 'algorithm', 'changes', 'metric'),
  *('published', 'mean', 'std', 'by_seed', 'seeds', 'rounds', 'revision'),
  *('processor', 'command', 'note'),
)
TEXT = 'result.md'
# What reads numbers, or raises ValueError; each may be empty.
_READ = {
  **dict.fromkeys(('std', 'seeds', 'rounds'), lambda text: float(text or 0)),
  'mean': lambda text: float(text.removeprefix('>') or 0),  # Or '>60'.
  'by_seed': judge.values_by_seed,
}
# The metric of a study's values, of which something is expected or published.
VALUE = 'value'
_NONE = table_lib.NONE
_BESIDE = 2  # Results that fit beside each other.


class Cells(NamedTuple):
  """A table of text: its title, '' for the result's own; heading; rows of cells."""

  title: str
  heading: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Measured:
  """What was measured of a result at a scale: its lines, without any if nothing was."""

  found: table_lib.Result
  scale: str
  lines: 'pd.DataFrame'

  @functools.cached_property
  def judged(self) -> judge.Judged:
    """The verdict, its reason and the orders behind it."""
    return judge.judge(self.found, self.lines, self.scale)

  @property
  def is_measured(self) -> bool:
    """Whether there is a value, if only of a part."""
    return bool((self.lines['mean'] != '').any())

  @property
  def usual_command(self) -> str:
    """The command without further flags."""
    return command(self.found.name, self.scale)

  @property
  def commands(self) -> list[str]:
    """The commands that measured the lines, or the one that will."""
    found = [*filter(None, dict.fromkeys(self.lines['command']))]
    return found or [self.usual_command]

  @property
  def seconds(self) -> float:
    """About what the runs took, one after another."""
    is_time = self.lines['metric'] == names.SECONDS
    of = self.lines[is_time & (self.lines['mean'] != '')]
    each = of[['mean', 'seeds', 'rounds']].astype(float)
    return float(each.prod(axis=1).sum())

  @property
  def what(self) -> str:
    """What is smaller, or of other data, at this scale, a sentence, or ''."""
    if self.scale == 'paper':
      return ''
    form = getattr(self.found, self.scale, None)
    return form.what if isinstance(form, table_lib.Form) else form or ''

  @property
  def about(self) -> str:
    """What the result is, and what is different here, a paragraph."""
    found = self.found
    sentences = f'{found.title}, {found.source}', found.caption, self.what
    text = ' '.join(f'{s.rstrip(".")}.' for s in sentences if s)
    return f'{text} {found.notes}'.strip()

  def tables(self) -> list[Cells]:
    """Returns the result's tables, its own first: results, costs, orders."""
    if isinstance(self.found, table_lib.Formula):
      return [Cells('', self.found.heading, self.found.rows)]
    # Lines without a metric only say what is missing.
    lines = self.lines[self.lines['metric'] != '']
    if lines.empty:
      return []
    if isinstance(self.found, table_lib.Study):
      return _of_study(self.found, lines, self.scale)
    made = [_of_results(lines, self.scale)]
    costs = lines[lines['metric'].isin(judge.COSTS)]
    made += [_costs(costs)] if len(costs) else []
    if orders := self.judged.orders:
      cells = tuple((o.says, o.published, o.here, o.told) for o in orders)
      heading = 'order', 'published', 'here', 'told'
      made.append(Cells('Orders', heading, cells))
    return made

  def to_text(self) -> str:
    """Returns the result for a terminal, ending in a newline."""
    width = text_table.terminal_width()
    blocks = [textwrap.fill(self.about, width) + '\n']
    for title, heading, rows in self.tables():
      words = [
        i
        for i, cells in enumerate(zip(*rows, strict=True))
        if any(char.isalpha() for cell in cells for char in cell)
      ]
      shown = text_table.to_text([heading, *rows], {0, *words}, width)
      blocks.append(f'{title}\n{shown}' if title else shown)
    verdict, why, _ = self.judged
    told = textwrap.fill(f'{verdict}: {why}', width)
    return '\n'.join([*blocks, f'{told}\n'])

  def to_markdown(self, is_short: bool = False) -> str:
    """Returns tables and verdict, in short without costs and orders, with a newline."""
    blocks = []
    for title, heading, rows in self.tables():
      if not (title and is_short):
        table = text_table.to_markdown([heading, *rows])
        blocks.append(f'**{title}**\n\n{table}' if title else table)
    verdict, why, _ = self.judged
    return '\n'.join([*blocks, f'**{verdict}**: {why}.\n'])

  def write(self, output: pathlib.Path) -> None:
    """Replaces the lines of the result at this scale, in the papers' order."""
    import pandas as pd

    path = path_of(output, self.found.name)
    kept = read_all(path)
    is_own = kept['table'] == self.found.table
    kept = kept[~is_own | (kept['scale'] != self.scale)]
    order = {each: i for i, each in enumerate(registry.RESULTS)}
    place = lambda table: order.get(f'{path.stem}/{table}', len(order))
    merged = pd.concat([kept, self.lines]).sort_values('scale', kind='stable')
    merged = merged.sort_values(
      'table', kind='stable', key=lambda tables: tables.map(place)
    )
    with writing(output), files.replacing(path) as temporary:
      merged.to_csv(temporary, index=False, lineterminator='\n')

  def write_text(self, where: pathlib.Path) -> None:
    """Writes the result as Markdown beside its pictures."""
    pictures = [p.name for p in sorted(where.glob('*.png'))]
    parts = [self.about, self.to_markdown()]
    parts += [f'![{self.found.title}]({name})' for name in pictures]
    parts += [f'`{each}`' for each in self.commands]
    text = '\n\n'.join(part.rstrip('\n') for part in parts) + '\n'
    with files.replacing(where / TEXT) as temporary:
      temporary.write_text(text, encoding='utf-8')


def frame(lines: Sequence[Mapping[str, Any]] = ()) -> 'pd.DataFrame':
  """Returns lines with all columns as text."""
  import pandas as pd  # Late: flags are checked first.

  # Reasons may have line breaks, and names of files anything.
  text = lambda value: wording.shown(str(value).replace('\n', ' '))
  filled = [{n: text(line.get(n, '')) for n in COLUMNS} for line in lines]
  return pd.DataFrame(filled, columns=COLUMNS, dtype=str)


def command(name: str, scale: str) -> str:
  """Returns the command that measures a result, without further flags."""
  return f'python -m launch.reproduce {name} --scale={scale}'


def path_of(output: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the CSV that has a result, by its name."""
  return output / f'{name.partition("/")[0]}.csv'


def read_all(path: pathlib.Path) -> 'pd.DataFrame':
  """Reads a paper's CSV."""
  return frame([dict(zip(COLUMNS, line, strict=True)) for line in _lines(path)])


def _lines(path: pathlib.Path) -> list[list[str]]:
  """Returns the lines of a paper's CSV, none if it is not there; refuses another's."""
  try:
    if not path.exists():
      return []
    lines = list(csv.reader(io.StringIO(files.read_text(path))))
  except (OSError, ValueError, csv.Error) as e:
    raise errors.DamageError(f'{path} cannot be read ({e}); move it') from e
  if not lines or tuple(lines[0]) != COLUMNS:
    raise errors.DamageError(
      f'{path} was not written by this version of launch.reproduce and is not'
      ' overwritten; move it, or name another --output'
    )
  for number, line in enumerate(lines[1:], 2):
    cells = dict(zip(COLUMNS, line, strict=False))
    if (
      len(line) != len(COLUMNS)
      or any(c != wording.shown(c) for c in line)
      or not all(_can(read, cells[name]) for name, read in _READ.items())
    ):
      raise errors.DamageError(
        f'{path} is damaged (line {number}); delete it, and run launch.reproduce'
        ' again'
      )
  return lines[1:]


def _can(read: Callable[[str], Any], text: str) -> bool:
  try:
    read(text)
  except ValueError:
    return False
  return True


def read(output: pathlib.Path, found: table_lib.Result, scale: str) -> Measured:
  """Returns what was measured of a result."""
  path = path_of(output, found.name)
  lines = read_all(path)
  is_own = (lines['table'] == found.table) & (lines['scale'] == scale)
  lines = lines[is_own].reset_index(drop=True)
  is_table = isinstance(found, table_lib.PaperTable)
  for name in lines['metric'].unique() if is_table else ():
    if name and not names.is_known(name):  # A row without a result has none.
      raise errors.DamageError(
        f'{path} is damaged ({found.table} has a result {name!r}); delete it, and'
        ' run launch.reproduce again'
      )
  return Measured(found, scale, lines)


@contextlib.contextmanager
def writing(where: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes and yields a directory, and names it if the block cannot write to it."""
  with files.writing(where, 'name another --output'):
    where.mkdir(parents=True, exist_ok=True)
    yield where


def refuse_others(output: pathlib.Path, found: Sequence[str]) -> None:
  """Refuses files that these results would replace and that are not of this program."""
  try:
    texts = [output / 'report.html']
    texts += [output / name / TEXT for name in found]
    for path in texts:
      if path.is_file() and b'launch.reproduce' not in path.read_bytes():
        raise errors.InputError(
          f'{path} was not written by this program and is not overwritten; name'
          ' another --output'
        )
    for path in {path_of(output, name) for name in found}:
      _lines(path)
  except OSError as e:
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}); name another --output'
    ) from e


def _of_study(found, lines, scale: str) -> list[Cells]:
  """Returns what was measured by row and metric, and values beside their bounds."""
  if lines['task'].nunique() > 1:
    lines = lines.assign(row=lines['task'] + ': ' + lines['row'])
  made, grid = [], lines[lines['metric'] != VALUE]
  if len(grid):
    cells = [
      _number(float(line.mean))
      + (f' ± {float(line.std):.2g}' if line.std else '')
      for line in grid.itertuples()
    ]
    shown = grid.assign(cell=cells, heading=grid['metric'])
    made.append(_wide(shown, {'': 'cell'}))
  values = judge.numbers(lines[lines['metric'] == VALUE])
  bounds = judge.bounds(found, scale)
  cells = []
  for line in values.itertuples():
    limits, is_there = judge.bound_of(bounds, line), line.mean != ''
    printed = f'{line.published} {line.note if is_there else ""}'.strip()
    holds = _NONE
    if limits and is_there:
      holds = 'yes' if limits[0] <= line.m <= limits[1] else 'no'
    wanted = table_lib.bounds(*limits) if limits else _NONE
    here = _number(line.m) if is_there else line.note
    cells.append((line.row, printed or _NONE, here, wanted, holds))
  if cells:
    heading = ('', 'published', 'here', 'expected', 'holds')
    columns = zip(heading, *cells, strict=True)
    kept = [column for column in columns if set(column[1:]) != {_NONE}]
    heading, *rows = zip(*kept, strict=True)
    made.append(Cells('', heading, tuple(rows)))
  return made


def _wide(lines: 'pd.DataFrame', columns: Mapping[str, str]) -> Cells:
  """Returns a row for each row of lines, and these columns for each metric.

  `columns` are by their heading, '' for the metric's `heading`.
  """
  metrics = [*dict.fromkeys(lines['metric'])]
  headings = dict(zip(lines['metric'], lines['heading'], strict=True))
  pivot = lines.pivot(index='row', columns='metric', values=[*columns.values()])
  pivot = pivot.loc[[*dict.fromkeys(lines['row'])]].fillna(_NONE)
  kept = pivot[[(c, m) for m in metrics for c in columns.values()]]
  heading = [each or headings[m] for m in metrics for each in columns]
  rows = tuple((row, *cells) for row, *cells in kept.itertuples())
  return Cells('', ('', *heading), rows)


def _number(value: float) -> str:
  """Returns a number for people: '1,262', '3,743.2', '0.2865'."""
  if abs(value) < 1e3:
    return f'{value:.4g}'
  return f'{value:,.10g}' if value.is_integer() else f'{value:,.1f}'


def _mean(line) -> str:
  """Returns a measured result for people: '50.0 ± 3.0', '>60', '–'."""
  if not line.mean or line.mean.startswith('>'):
    return line.mean or _NONE
  value, std, digits = float(line.mean), '', names.digits(line.metric)
  if line.std:
    std = f' ± {float(line.std):.{digits}f}'
  elif names.parse(line.metric).is_rounds:
    return f'{value:.0f}'
  return f'{round(value, digits) + 0.0:.{digits}f}{std}'


def _mean_and_best(line) -> str:
  """Returns `_mean`, and the best seed's where the paper printed this: '50.0 ± 3.0,
  best 53.1'.
  """
  best = '' if math.isnan(line.best) else f', best {line.best:.1f}'
  return f'{_mean(line)}{best}'


def _of_results(lines: 'pd.DataFrame', scale: str) -> Cells:
  """Returns measured beside published values, with differences at full scale.

  Few results stand beside each other, and many below each other.
  """
  main = judge.numbers(judge.main_lines(lines))
  heading = lambda name: f'{names.heading(name)}{names.unit(name)}'
  shown = main.assign(
    heading=main['metric'].map(heading),
    here=[*map(_mean_and_best, main.itertuples())],
    paper=main['published'].str.replace('±', ' ± ').replace('', _NONE),
    difference=[*map(_difference, main.itertuples())],
  )
  more = ('difference',) if scale == 'paper' else ()
  if main['metric'].nunique() <= _BESIDE:
    return _wide(shown, {'': 'here', **{c: c for c in ('paper', *more)}})
  cells = shown[['row', 'heading', 'here', 'paper', *more]]
  rows = tuple(cells.itertuples(index=False, name=None))
  return Cells('', ('', 'result', 'here', 'paper', *more), rows)


def _difference(line) -> str:
  """Returns the difference for people: '+1.2', '-9.0 *', '*' for another value."""
  if math.isnan(line.p) or math.isnan(line.m):
    return _NONE
  mark = '' if judge.is_equal(line) else ' *'
  if line.is_bound or line.is_open:
    return mark.strip() or _NONE
  digits = names.digits(line.metric)
  apart = round(judge.as_printed(line) - line.p, digits)
  return f'{apart + 0.0:+.{digits}f}{mark}'


def _costs(lines: 'pd.DataFrame') -> Cells:
  """Returns seeds, best round, all clients' bytes down to it, and seconds."""
  of = {(line.row, line.metric): line for line in lines.itertuples()}
  show = {
    names.BEST_ROUND: _mean,
    names.SENT: lambda line: wording.human_bytes(float(line.mean)),
    names.SECONDS: lambda line: f'{float(line.mean):.3g}',
  }
  shown = {
    key: show[key[1]](line) for key, line in of.items() if line.mean != ''
  }
  seeds = dict(zip(lines['row'], lines['seeds'], strict=True))
  rows = tuple(
    (row, count or _NONE, *(shown.get((row, name), _NONE) for name in show))
    for row, count in seeds.items()
  )
  heading = ('runs', 'seeds', 'best round', 'sent down', 's / round')
  return Cells('Cost', heading, rows)


def counted(verdicts: Sequence[judge.Verdict]) -> str:
  """Returns the numbers of the verdicts: '3 reproduced, 1 not run'."""
  return ', '.join(
    f'{verdicts.count(verdict)} {verdict}'
    for verdict in judge.Verdict
    if verdict in verdicts
  )
