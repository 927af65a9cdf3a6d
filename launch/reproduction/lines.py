"""Measured results as numbers, and their files, OUTPUT/PAPER.csv.

A file has a line for each result of each row of a table, and one for each of its
costs. Numbers are as people read them: '>60' if a seed missed a target, '51.7±0.4'
published, '0:51.5 1:49.3' for each seed. `Line` has them as numbers. The lines of a
table and scale are replaced together.
"""

import contextlib
import csv
import dataclasses
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
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
# The metric of a study's values, of which something is expected or published.
VALUE = 'value'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
  """A result of a row, or one of its costs; '' and 0 where nothing is known."""

  table: str = ''
  scale: str = ''
  row: str = ''
  task: str = ''
  algorithm: str = ''
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  metric: str = ''  # '': the line only says, in its note, what is missing.
  published: Number | None = None
  measured: Number | None = None  # The mean over the seeds.
  by_seed: Mapping[int, Number] = dataclasses.field(default_factory=dict)
  seeds: int = 0
  rounds: int = 0
  revision: str = ''
  processor: str = ''
  command: str = ''
  note: str = ''

  @property
  def published_text(self) -> str:
    """The published number, for people."""
    return self.published.shown if self.published else table_lib.NONE


@dataclasses.dataclass(frozen=True)
class Measured:
  """What was measured of a result at a scale; without lines if nothing was."""

  found: table_lib.Result
  scale: str
  lines: Sequence[Line] = ()

  @property
  def is_measured(self) -> bool:
    """Whether there is a value, if only of a part."""
    return any(line.measured for line in self.lines)

  @property
  def usual_command(self) -> str:
    """The command without further flags."""
    return command(self.found.name, self.scale)

  @property
  def commands(self) -> list[str]:
    """The commands that measured the lines, or the one that will."""
    return self.distinct('command') or [self.usual_command]

  def distinct(self, name: str) -> list[str]:
    """Returns the different texts of a column, without ''."""
    return [*filter(None, dict.fromkeys(getattr(x, name) for x in self.lines))]

  @property
  def seconds(self) -> float:
    """About what the runs took, one after another."""
    return sum(
      line.measured.value * line.seeds * line.rounds
      for line in self.lines
      if line.metric == names.SECONDS and line.measured
    )

  @property
  def what(self) -> str:
    """What is smaller, or of other data, at this scale, a sentence, or ''."""
    form = None if self.scale == 'paper' else self.form
    return form.what if isinstance(form, table_lib.Form) else form or ''

  @property
  def form(self) -> Any:
    """The form of a table, or the sentence of a study, at this scale; None: none."""
    if isinstance(self.found, table_lib.PaperTable):
      return self.found.form(self.scale)
    return getattr(self.found, self.scale, None)

  @property
  def about(self) -> str:
    """What the result is, and what is different here, a paragraph."""
    found = self.found
    sentences = f'{found.title}, {found.source}', found.caption, self.what
    text = ' '.join(f'{s.rstrip(".")}.' for s in sentences if s)
    return f'{text} {found.notes}'.strip()

  def write(self, output: pathlib.Path) -> None:
    """Replaces the lines of the result at this scale, in the papers' order."""
    path, order = path_of(output, self.found.name), [*registry.KNOWN]

    def place(line: Line):
      name = f'{path.stem}/{line.table}'
      where = order.index(name) if name in order else len(order)
      return where, line.scale

    own = self.found.table, self.scale
    kept = [x for x in read_all(path) if (x.table, x.scale) != own]
    with writing(output), files.csv_rows(path) as file:
      rows = csv.writer(file)
      rows.writerow(COLUMNS)
      rows.writerows(map(_cells, sorted([*kept, *self.lines], key=place)))


def command(name: str, scale: str) -> str:
  """Returns the command that measures a result, without further flags."""
  return f'python -m launch.reproduce {name} --scale={scale}'


def path_of(output: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the CSV that has a result, by its name."""
  return output / f'{name.partition("/")[0]}.csv'


def read(output: pathlib.Path, found: table_lib.Result, scale: str) -> Measured:
  """Returns what was measured of a result."""
  path = path_of(output, found.name)
  own = [line for line in read_all(path) if (line.table, line.scale) == (found.table, scale)]
  if isinstance(found, table_lib.PaperTable):
    for line in own:
      if line.metric and not names.is_known(line.metric):
        raise _damaged(path, f'{found.table} has a result {line.metric!r}')
  return Measured(found, scale, own)


def read_all(path: pathlib.Path) -> list[Line]:
  """Reads a paper's CSV, none if it is not there; refuses another program's file."""
  try:
    if not path.exists():
      return []
    rows = [*csv.reader(io.StringIO(files.read_text(path)))]
  except (OSError, ValueError, csv.Error) as e:
    raise errors.DamageError(f'{path} cannot be read ({e}); move it') from e
  if not rows or tuple(rows[0]) != COLUMNS:
    raise errors.DamageError(
      f'{path} was not written by this version of launch.reproduce and is not'
      ' overwritten; move it, or name another --output'
    )
  found = []
  for number, cells in enumerate(rows[1:], 2):
    try:
      found.append(_line(cells))
    except ValueError as e:
      raise _damaged(path, f'line {number}') from e
  return found


def _damaged(path: pathlib.Path, what: str) -> errors.DamageError:
  return errors.DamageError(
    f'{path} is damaged ({what}); delete it, and run launch.reproduce again'
  )


def _line(cells: Sequence[str]) -> Line:
  """Returns a line of its cells; ValueError if they are damaged."""
  if any(cell != wording.shown(cell) for cell in cells):
    raise ValueError('a cell has characters that nobody sees')
  of = dict(zip(COLUMNS, cells, strict=True))
  measured, std = Number.read(of.pop('mean')), of.pop('std')
  if measured:
    measured = measured._replace(std=float(std) if std else None, text='')
  pairs = (pair.split(':') for pair in of['by_seed'].split())
  values = {
    'published': Number.read(of['published']),
    'changes': table_lib.changes(of['changes']),
    'by_seed': {int(seed): Number.read(value) for seed, value in pairs},
    'seeds': int(of['seeds'] or 0),
    'rounds': int(of['rounds'] or 0),
  }
  return Line(measured=measured, **{**of, **values})


def _cells(line: Line) -> list[str]:
  """Returns what `_line` reads."""
  mean, measured = '', line.measured
  if measured:
    mean = f'>{measured.value:.10g}' if measured.is_bound else measured.value
  by_seed = [
    f'{seed}:{">" * each.is_bound}{each.value:.10g}' for seed, each in line.by_seed.items()
  ]
  values = dataclasses.asdict(line) | {
    'changes': table_lib.text_of(line.changes),
    'published': line.published.text if line.published else '',
    'mean': mean,
    'std': '' if measured is None or measured.std is None else measured.std,
    'by_seed': ' '.join(by_seed),
    'seeds': line.seeds or '',
    'rounds': line.rounds or '',
  }
  # Reasons may have line breaks, and names of files anything.
  cells = [str(values[name]).replace('\n', ' ') for name in COLUMNS]
  return [*map(wording.shown, cells)]


@contextlib.contextmanager
def writing(where: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes and yields a directory, and names it if the block cannot write to it."""
  with files.writing(where, 'name another --output'):
    where.mkdir(parents=True, exist_ok=True)
    yield where


def refuse_others(output: pathlib.Path, found: Sequence[str]) -> None:
  """Refuses files that these results would replace and that are not of this program."""
  try:
    for path in [output / PAGE, *(output / name / TEXT for name in found)]:
      if path.is_file() and b'launch.reproduce' not in path.read_bytes():
        raise errors.InputError(
          f'{path} was not written by this program and is not overwritten; name another --output'
        )
    for path in {path_of(output, name) for name in found}:
      read_all(path)
  except OSError as e:
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}); name another --output'
    ) from e
