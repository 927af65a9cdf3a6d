"""Reads and writes measured results, which are in the files OUTPUT/PAPER.csv.

A row of a table has a line for each of its results, and a line for each of its costs. The cells
are texts, such as '>60' if a run missed a target, '51.7±0.4' for a published number, and
'0:51.5 1:49.3' for values by seed. The fields of `Line` are numbers. Writing a table at a scale
replaces all its lines at this scale.
"""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.papers import names, registry, table as table_lib
from tff_xc import errors, files, wording

Number = table_lib.Number
COLUMNS = (
  'table',
  'scale',
  'row',
  'task',
  'algorithm',
  'changes',
  'metric',
  'published',
  'mean',
  'std',
  'by_seed',
  'seeds',
  'rounds',
  'revision',
  'processor',
  'command',
  'note',
)
TEXT = 'result.md'
PAGE = 'report.html'
# `Line.metric` of a study's value that is judged by bounds, expected or published.
VALUE = 'value'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
  """A result of a row or a cost of a row, such as seconds. Unknown fields are '' or 0."""

  table: str = ''
  scale: str = ''
  row: str = ''
  task: str = ''
  algorithm: str = ''
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  metric: str = ''  # '': the line only has a note that says what is missing.
  published: Number | None = None
  measured: Number | None = None  # The mean over the seeds.
  by_seed: Mapping[int, Number] = dataclasses.field(default_factory=dict)
  seeds: int = 0
  rounds: int = 0
  revision: str = ''
  processor: str = ''
  command: str = ''
  note: str = ''


@dataclasses.dataclass(frozen=True)
class Measured:
  """The measurements of a result at a scale. Without measurements, there are no lines."""

  found: table_lib.Result
  scale: str
  lines: Sequence[Line] = ()

  @property
  def is_measured(self) -> bool:
    """Whether any value was measured."""
    return any(line.measured for line in self.lines)

  @property
  def form(self) -> table_lib.Form:
    """The form of the result at this scale: its rows, seeds and claims."""
    return self.found.form(self.scale)

  @property
  def commands(self) -> list[str]:
    """The commands that measured the lines, or the command that would measure them."""
    return self.distinct('command') or [command(self.found.name, self.scale)]

  def distinct(self, name: str) -> list[str]:
    """Returns the distinct texts of a column that are not empty."""
    return [*filter(None, dict.fromkeys(getattr(x, name) for x in self.lines))]

  @property
  def seconds(self) -> float:
    """The approximate total time of all runs."""
    return sum(
      line.measured.value * line.seeds * line.rounds
      for line in self.lines
      if line.metric == names.SECONDS and line.measured
    )

  @property
  def about(self) -> str:
    """A paragraph that describes the result and the differences from the paper."""
    found = self.found
    sentences = f'{found.title}, {found.source}', found.caption, self.form.what
    text = ' '.join(f'{s.rstrip(".")}.' for s in sentences if s)
    return f'{text} {found.notes}'.strip()

  def write(self, output: pathlib.Path) -> None:
    """Replaces the lines of the result at this scale in its file.

    The lines of a file have the order of the paper's results.
    """
    path = path_of(output, self.found.name)
    own = self.found.table, self.scale
    kept = [x for x in read_all(path) if (x.table, x.scale) != own]
    order = {name: place for place, name in enumerate(registry.KNOWN)}
    lines = sorted(
      [*kept, *self.lines],
      key=lambda x: (order.get(f'{path.stem}/{x.table}', len(order)), x.scale),
    )
    with files.folder(output), files.csv_rows(path) as file:
      csv.writer(file).writerows([COLUMNS, *map(_cells, lines)])


def command(name: str, scale: str) -> str:
  """Returns the command that measures a result, without further flags."""
  return f'python -m launch.reproduce {name} --scale={scale}'


def path_of(output: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of the CSV that has the result with this name."""
  return output / f'{name.partition("/")[0]}.csv'


def read(output: pathlib.Path, found: table_lib.Result, scale: str) -> Measured:
  """Returns the measurements of a result."""
  kept = read_all(path_of(output, found.name))
  return Measured(found, scale, [x for x in kept if (x.table, x.scale) == (found.table, scale)])


def read_all(path: pathlib.Path) -> list[Line]:
  """Reads a paper's CSV; [] if it does not exist. Refuses files of other programs."""
  if not path.exists():
    return []
  try:
    heading, *rows = csv.reader(io.StringIO(files.read_text(path)))
    if tuple(heading) != COLUMNS:
      raise ValueError('it has other columns')
    return [*map(_line, rows)]
  except (OSError, ValueError, LookupError, csv.Error, errors.InputError) as e:
    raise errors.DamageError(
      f'{path} cannot be read ({e}): it is damaged, or was not written by this version of'
      ' launch.reproduce; move it, or name another --output'
    ) from e


def _line(cells: Sequence[str]) -> Line:
  """Parses a line from its cells. Damaged cells raise various exceptions."""
  of = dict(zip(COLUMNS, map(wording.shown, cells), strict=True))
  value, _, std = of['published'].partition('±')
  pairs = (pair.split(':') for pair in of['by_seed'].split())
  values = {
    'changes': table_lib.changes(of['changes']),
    'published': _number(value, std),
    'measured': _number(of.pop('mean'), of.pop('std')),
    'by_seed': {int(seed): _number(value) for seed, value in pairs},
    'seeds': int(of['seeds'] or 0),
    'rounds': int(of['rounds'] or 0),
  }
  return Line(**of | values)


def _number(value: str, std: str = '') -> Number | None:
  """Parses a number such as '>60'."""
  return Number.read(value.removeprefix('>'), std, value[:1] == '>')


def _cells(line: Line) -> list[str]:
  """Returns the cells that `_line` parses."""
  printed, measured = line.published, line.measured
  mean = std = ''
  if measured:
    mean = f'>{measured.value:.10g}' if measured.is_bound else measured.value
    std = '' if measured.std is None else measured.std
  by_seed = [f'{seed}:{">" * n.is_bound}{n.value:.10g}' for seed, n in line.by_seed.items()]
  values = dataclasses.asdict(line) | {
    'changes': table_lib.text_of(line.changes),
    'published': str(printed).replace(' ', '') if printed else '',
    'mean': mean,
    'std': std,
    'by_seed': ' '.join(by_seed),
    'seeds': line.seeds or '',
    'rounds': line.rounds or '',
  }
  # Notes may have line breaks, and names of files may have any characters.
  cells = [str(values[name]).replace('\n', ' ') for name in COLUMNS]
  return [*map(wording.shown, cells)]


def refuse_others(output: pathlib.Path, found: Sequence[str]) -> None:
  """Refuses to replace files that this program did not write."""
  for path in [output / PAGE, *(output / name / TEXT for name in found)]:
    with files.writing(path, 'name another --output'):
      if path.is_file() and b'launch.reproduce' not in path.read_bytes():
        raise errors.InputError(
          f'{path} was not written by this program and is not overwritten; name another --output'
        )
  for path in {path_of(output, name) for name in found}:
    read_all(path)
