"""Shows results in a terminal, as Markdown, and in OUTPUT/report.html.

The HTML page has all results, with the pictures in their folders, and needs no network. It has
no date, so equal results give equal bytes.
"""

import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from launch.reproduction import judge, lines as lines_lib
from tasks.papers import names, registry, table as table_lib
from tff_xc import errors, files, wording
from tff_xc.report import text_table

Line = lines_lib.Line
Measured = lines_lib.Measured
_NONE = table_lib.NONE
_SIZES = {'small': 'small', 'real': 'on real data', 'paper': "at the paper's size"}
_BESIDE = 2  # A table with more metrics has a row for each metric, instead of columns.
_LONG = 24  # The HTML page collapses tables with more rows.
_WHY = 110  # The number of characters of a reason in the overview.
_VERDICTS = judge.Verdict
# The mark and the meaning of each verdict.
_MEANINGS = {
  _VERDICTS.REPRODUCED: ('✓', 'every value is the published one, and no pair of rows disagrees'),
  _VERDICTS.SHAPE: (
    '≈',
    'no pair of rows disagrees with the published order, most pairs agree, and all claims in'
    " the paper's text agree; for a study, all expected values hold",
  ),
  _VERDICTS.NOT: (
    '✗',
    "a pair of rows or a claim disagrees, or a study's value is outside its bounds; at the paper's"
    ' size, also if a table without pairs and claims has a value that is not the published one',
  ),
  _VERDICTS.UNDECIDED: (
    '?',
    'nothing disagrees, but too little agrees: differences are within two standard errors, or'
    f' fewer than {judge.SEEDS} seeds were run',
  ),
  _VERDICTS.NOT_RUN: ('○', 'something is missing, or runs have not finished'),
  _VERDICTS.FORMULA: (
    '=',
    'sizes, volumes or settings that follow from a formula or a list; nothing is'
    ' trained, and the reason says how many of the published values the formula gives',
  ),
  _VERDICTS.NOTHING: ('–', 'a diagram, without values'),
}
_EQUAL = (
  f'A value equals the published one if they differ by at most {judge.POINTS:g} percentage points'
  f' ({100 * judge.SHARE:g} % for rounds and counts) or two standard deviations of'
  ' either. A pair has a published order if its values differ by more than that. It agrees'
  ' or disagrees if the means differ by more than two standard errors. Rows that draw the'
  ' same clients are compared seed by seed.'
)


class Cells(NamedTuple):
  """A table of text: its title ('' for the main table of a result), heading and rows."""

  title: str
  heading: Sequence[str]
  rows: Sequence[Sequence[str]]


def tables(measured: Measured) -> list[Cells]:
  """Returns the tables of a result in this order: values, costs, comparisons of rows."""
  found = measured.found
  if isinstance(found, table_lib.Formula):
    heading, *rows = found.cells
    return [Cells('', heading, rows)]
  lines = [line for line in measured.lines if line.metric]
  if not lines:
    return []
  if isinstance(found, table_lib.Study):
    return _of_study(found, lines, measured.scale)
  made = [_of_results(lines, measured.scale)]
  if costs := [line for line in lines if line.metric in judge.COSTS]:
    made.append(_costs(costs))
  if orders := judge.judge(measured).orders:
    heading = 'order', 'published', 'here', 'told'
    made.append(Cells('Orders', heading, [order[:4] for order in orders]))
  return made


def to_text(measured: Measured) -> str:
  """Returns a result as text for a terminal, which ends in a newline."""
  width = text_table.terminal_width()
  blocks = [textwrap.fill(measured.about, width) + '\n']
  for title, heading, rows in tables(measured):
    columns = [''.join(column) for column in zip(*rows, strict=True)]
    words = [i for i, text in enumerate(columns) if re.search(r'[^\W\d_]', text)]
    shown = text_table.to_text([heading, *rows], {0, *words}, width)
    blocks.append(f'{title}\n{shown}' if title else shown)
  verdict, why, _ = judge.judge(measured)
  told = textwrap.fill(f'{verdict}: {why}', width)
  return '\n'.join([*blocks, f'{told}\n'])


def to_markdown(measured: Measured, is_short: bool = False) -> str:
  """Returns the tables and the verdict of a result, which end in a newline.

  With `is_short`, costs and comparisons of rows are left out.
  """
  blocks = []
  for title, heading, rows in tables(measured):
    if not (title and is_short):
      table = text_table.to_markdown([heading, *rows])
      blocks.append(f'**{title}**\n\n{table}' if title else table)
  verdict, why, _ = judge.judge(measured)
  return '\n'.join([*blocks, f'**{verdict}**: {why}.\n'])


def write_text(measured: Measured, where: pathlib.Path) -> None:
  """Writes a result as Markdown into the folder of its pictures."""
  parts = [measured.about, to_markdown(measured)]
  for path in sorted(where.glob('*.png')):
    parts.append(f'![{measured.found.title}]({path.name})')
  parts += [f'`{each}`' for each in measured.commands]
  text = '\n\n'.join(part.rstrip('\n') for part in parts) + '\n'
  with files.replacing(where / lines_lib.TEXT) as temporary:
    temporary.write_text(text, encoding='utf-8')


def counted(verdicts: Sequence[judge.Verdict]) -> str:
  """Counts verdicts: '3 reproduced, 1 not run'."""
  return ', '.join(
    f'{verdicts.count(verdict)} {verdict}' for verdict in _VERDICTS if verdict in verdicts
  )


def _of_study(found: table_lib.Study, lines: Sequence[Line], scale: str) -> list[Cells]:
  """Returns a table of measurements by row and metric, and a table of values with bounds."""
  is_several = len({line.task for line in lines}) > 1
  cells, values = {}, []
  for line in lines:
    row = f'{line.task}: {line.row}' if is_several else line.row
    here = _number(line.measured.value) if line.measured else line.note
    if line.metric != lines_lib.VALUE:
      std = line.measured.std
      cells[row, line.metric] = [here if std is None else f'{here} ± {std:.2g}']
      continue
    printed = f'{line.published.value:,}' if line.published else ''
    wanted = holds = _NONE
    if within := judge.bound_of(found, scale, line):
      wanted = _bounds(*within)
    if line.measured:
      printed = f'{printed} {line.note}'.strip()
    if within and line.measured:
      holds = 'yes' if judge.is_within(within, line) else 'no'
    values.append([row, printed or _NONE, here, wanted, holds])
  made = []
  if cells:
    made.append(_wide(cells, {metric: [metric] for _, metric in cells}))
  if values:
    heading = ['', 'published', 'here', 'expected', 'holds']
    columns = zip(heading, *values, strict=True)
    kept = [column for column in columns if {*column[1:]} != {_NONE}]
    heading, *rows = zip(*kept, strict=True)
    made.append(Cells('', heading, rows))
  return made


def _of_results(lines: Sequence[Line], scale: str) -> Cells:
  """Returns a table of measured and published values.

  At the paper's scale, the table also has their differences. Up to `_BESIDE` metrics have
  columns of their own; with more metrics, each metric of a row has its own line.
  """
  best, main = judge.best_seeds(lines), judge.main_lines(lines)
  headings = {
    line.metric: f'{names.heading(line.metric)}{names.unit(line.metric)}' for line in main
  }
  more = ['paper', 'difference'] if scale == 'paper' else ['paper']
  cells = {}
  for line in main:
    seed = best.get((line.row, line.metric))
    here = _mean(line) + ('' if seed is None else f', best {seed:.1f}')
    all_ = [here, str(line.published or _NONE), _difference(line, seed)]
    cells[line.row, line.metric] = all_[: 1 + len(more)]
  if len(headings) <= _BESIDE:
    return _wide(cells, {m: [text, *more] for m, text in headings.items()})
  rows = [[row, headings[m], *values] for (row, m), values in cells.items()]
  return Cells('', ['', 'result', 'here', *more], rows)


def _wide(
  cells: Mapping[tuple[str, str], Sequence[str]], headings: Mapping[str, Sequence[str]]
) -> Cells:
  """Returns a table with a row for each row and columns for each metric.

  The keys of `cells` are (row, metric). `headings` has the headings of a metric's columns.
  """
  rows: dict[str, list[str]] = {row: [row] for row, _ in cells}
  for row, shown in rows.items():
    for metric, columns in headings.items():
      shown += cells.get((row, metric), [_NONE] * len(columns))
  return Cells('', ['', *itertools.chain(*headings.values())], [*rows.values()])


def _bounds(least: float, most: float) -> str:
  """Formats bounds: 'at least 10', '5 to 7', 'exactly 1,262'."""
  low, high = (f'{v:,.10g}' for v in (least, most))
  if least == most:
    return f'exactly {low}'
  if most == math.inf:
    return f'at least {low}'
  return f'at most {high}' if least == -math.inf else f'{low} to {high}'


def _number(value: float) -> str:
  """Formats a number: '1,262', '3,743.2', '0.2865'."""
  if abs(value) < 1e3:
    return f'{value:.4g}'
  return f'{value:,.10g}' if value == round(value) else f'{value:,.1f}'


def _mean(line: Line) -> str:
  """Formats a measured result: '50.0 ± 3.0', '>60', '–'."""
  here, digits = line.measured, names.digits(line.metric)
  if not here:
    return _NONE
  if here.is_bound:
    return f'>{here.value:.10g}'
  if here.std is None and names.parse(line.metric).is_rounds:
    return f'{here.value:.0f}'
  std = '' if here.std is None else f' ± {here.std:.{digits}f}'
  return f'{round(here.value, digits) + 0.0:.{digits}f}{std}'


def _difference(line: Line, best: float | None) -> str:
  """Formats the difference from the published value, as '-9.0 *'; '*' marks unequal values."""
  here, printed = line.measured, line.published
  if not (here and printed):
    return _NONE
  mark = '' if judge.is_equal(line, best) else ' *'
  if here.is_bound or printed.is_bound:
    return mark.strip() or _NONE
  digits = names.digits(line.metric)
  apart = (here.value if best is None else best) - printed.value
  return f'{round(apart, digits) + 0.0:+.{digits}f}{mark}'


def _costs(lines: Sequence[Line]) -> Cells:
  """Returns a table of seeds, best round, bytes sent to clients until then, and seconds."""
  cells = {(x.row, 'seeds'): [str(x.seeds or _NONE)] for x in lines}
  for line in lines:
    shown = _mean(line)
    if line.measured and line.metric == names.SENT:
      shown = wording.human_bytes(line.measured.value)
    elif line.measured and line.metric == names.SECONDS:
      shown = f'{line.measured.value:.3g}'
    cells[line.row, line.metric] = [shown]
  headings = {
    'seeds': ['seeds'],
    names.BEST_ROUND: ['best round'],
    names.SENT: ['sent down'],
    names.SECONDS: ['s / round'],
  }
  _, [_, *heading], rows = _wide(cells, headings)
  return Cells('Cost', ['runs', *heading], rows)


def write(output: pathlib.Path, scale: str) -> pathlib.Path:
  """Writes the page of all results at a scale; returns its path."""
  import jinja2  # jinja2 is imported late, so that flags are checked before.

  shown = [_shown(output, found, scale) for found in registry.RESULTS.values()]
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  papers = []
  for name, group in itertools.groupby(shown, lambda each: each['paper']):
    results = [*group]
    papers.append((name, results, counted([x['verdict'] for x in results])))
  counts = [each['verdict'] for each in shown]
  text = environment.get_template('page.html.j2').render(
    papers=papers,
    total=len(shown),
    verdicts=[
      (verdict, mark, counts.count(verdict), meaning)
      for verdict, (mark, meaning) in _MEANINGS.items()
    ],
    equal=_EQUAL,
  )
  path = output / lines_lib.PAGE
  with files.folder(output), files.replacing(path) as temporary:
    temporary.write_text(text, encoding='utf-8')
  return path


def _shown(output: pathlib.Path, found: table_lib.Result, scale: str) -> dict[str, Any]:
  """Returns the values that the page shows for a result."""
  measured, problems = Measured(found, scale), []
  try:
    measured = lines_lib.read(output, found, scale)
  except errors.InputError as e:
    problems.append(str(e))
  verdict, why, _ = judge.judge(measured)
  folder = output / found.name
  # A formula has no lines. The program writes the text of a formula when the user requests the
  # formula, and the page shows formulas that have a text.
  is_shown = bool(measured.lines)
  if isinstance(found, table_lib.Formula):
    is_shown = (folder / lines_lib.TEXT).is_file()
    if not is_shown:
      verdict, why = _VERDICTS.NOT_RUN, 'it has not been measured here'
  written = lines_lib.path_of(output, found.name), folder / lines_lib.TEXT
  return {
    'id': found.name.replace('/', '-'),
    'paper': found.paper,
    'found': found,
    'verdict': verdict,
    'mark': _MEANINGS[verdict][0],
    'why': why,
    'short_why': textwrap.shorten(why, _WHY, placeholder=' …'),
    'what': measured.form.what if measured.lines else '',
    'size': _SIZES[scale] if measured.is_measured else '',
    'cost': wording.human_duration(measured.seconds) if measured.seconds else '',
    'tables': _html_tables(measured) if is_shown else [],
    'pictures': [
      path.relative_to(output).as_posix()
      for path in (sorted(folder.glob('*.png')) if is_shown else ())
    ],
    'problems': problems,
    'commands': measured.commands,
    'revision': ', '.join(measured.distinct('revision')),
    'processor': ', '.join(measured.distinct('processor')),
    'files': [path.relative_to(output).as_posix() for path in written if path.is_file()],
  }


def _html_tables(measured: Measured) -> list[dict[str, Any]]:
  """Returns the tables of a result. Costs, comparisons and long tables are collapsed."""
  made = []
  for place, cells in enumerate(tables(measured), 1):
    columns = zip(*cells.rows, strict=True)
    is_number = re.compile(r'[<>+-]?\d|–$').match
    marked = any(cell.endswith('*') for row in cells.rows for cell in row[1:])
    made.append(
      {
        'id': f'{measured.found.name.replace("/", "-")}-{place}',
        'caption': cells.title or 'Measured beside published',
        'heading': cells.heading,
        'rows': cells.rows,
        'numbers': [all(map(is_number, column)) for column in columns],
        'is_folded': len(cells.rows) > _LONG or bool(cells.title),
        'note': '* another value than the published one' if marked else '',
      }
    )
  return made
