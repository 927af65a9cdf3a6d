"""The outcome of a table or figure of trained models, from its finished runs."""

import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

from launch.reproduction import bands
from launch.reproduction import lines as lines_lib
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import runs as runs_lib
from launch.sweeps import plan
from tasks.papers import names
from tasks.papers import result
from tasks.papers import table as table_lib
from tff_xc import wording
from tff_xc.report import columns
from tff_xc.report import compare_curves
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures
from tff_xc.report import run_files

_NONE = '–'
# Results that fit beside each other.
_BESIDE = 2
_COSTS = ('runs', 'seeds', 'best round', 'sent down', 's / round')


def conclude(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  runs: Sequence[Sequence[plan.Run]],
  output: pathlib.Path,
  scale: str,
  missing: Sequence[str] = (),
) -> outcome_lib.Outcome:
  """Returns what finished runs say of a table, and draws them.

  A row counts if all its seeds have finished, as a mean over some would pass for
  one over all.

  Args:
    found: the table.
    rows: of the table, at this scale.
    runs: from `runs.plan_runs`.
    output: the directory of all tables.
    scale: of `outcome.SCALES`.
    missing: why runs are missing, sentences.

  Raises:
    errors.InputError: the CSV cannot be written.
  """
  lines = lines_lib.of_table(found, rows, runs)
  folder = outcome_lib.folder(output, found.name)
  done = [line for line in lines if line.group]
  small = found.small if scale == 'small' else None
  expected = small.expected if small else found.shape
  outcome = {
    'name': found.name,
    'scale': scale,
    'what': small.what if small else runs_lib.changed(rows, runs),
    'runs': tuple(
      str(run.folder.relative_to(output)) for group in runs for run in group
      if run_files.is_run(run.folder)
    ),
  }  # fmt: skip
  if not done:
    why = '; '.join(missing) or 'none of its experiments has finished'
    verdict = outcome_lib.Verdict.NOT_RUN
    tables = (_scores(lines, scale),)
    return outcome_lib.Outcome(
      **outcome, verdict=verdict, why=why, tables=tables
    )
  lines_lib.write_csv(folder, lines, scale == 'paper')
  checked = _checked(expected, lines, rows if small else found.rows)
  verdict, why = (
    _as_expected(checked, lines) if small or expected else _judged(lines)
  )
  return outcome_lib.Outcome(
    **outcome,
    verdict=verdict,
    version=_revisions(done),
    why='; '.join([why, *missing]),
    tables=(_scores(lines, scale), _costs(lines)),
    checked=checked,
    pictures=_draw(found, lines, folder),
    seconds=sum(map(_seconds, _different(lines))),
  )


def _shown(value: columns.Value | None) -> str:
  if value is None:
    return _NONE
  is_rounds = isinstance(value, columns.RoundsTo)
  return str(value) if is_rounds else columns.with_std(1)(value)


def _scores(lines: Sequence[lines_lib.Line], scale: str) -> outcome_lib.Cells:
  """Returns measured beside published values, with differences at full scale.

  Few results stand beside each other, and many below each other.
  """
  results = list(dict.fromkeys(n for line in lines for n in line.row.published))
  more = ('difference',) if scale == 'paper' else ()
  if len(results) > _BESIDE:
    return outcome_lib.Cells(
      '',
      ('', 'result', 'here', 'paper', *more),
      tuple(
        (line.label, _heading(name), *_values(line, name, bool(more)))
        for line in lines
        for name in results
        if name in line.row.published
      ),
    )
  heading = [
    cell for name in results for cell in (_heading(name), 'paper', *more)
  ]
  cells = (
    (
      line.label,
      *(cell for name in results for cell in _values(line, name, bool(more))),
    )
    for line in lines
  )
  return outcome_lib.Cells('', ('', *heading), tuple(cells))


def _heading(name: str) -> str:
  return f'{names.heading(name)}{names.unit(name)}'


def _values(
  line: lines_lib.Line, name: str, is_judged: bool
) -> tuple[str, ...]:
  """Returns a result, the published one, and perhaps their difference."""
  published, pair = line.row.published.get(name), line.pair(name)
  shown = _shown(line.value(name)), str(published or _NONE)
  return (*shown, pair.difference if pair else _NONE) if is_judged else shown


def _pairs(lines: Sequence[lines_lib.Line]) -> list[bands.Pair | None]:
  """Returns each published value with the measured one, None without that.

  A row that a table prints twice counts once.
  """
  of = {line.label: line for line in lines}
  return [
    line.pair(name)
    for line in of.values()
    for name in filter(line.row.published.get, line.row.published)
  ]


def _judged(lines: Sequence[lines_lib.Line]):
  found = _pairs(lines)
  unprinted = sum(
    published is None
    for line in lines
    for published in line.row.published.values()
  )
  return bands.judged(
    [pair for pair in found if pair], found.count(None), unprinted
  )


def _as_expected(
  checked: Sequence[outcome_lib.Checked], lines: Sequence[lines_lib.Line]
):
  """Returns the verdict on a small table, and why.

  One that does not hold decides, whatever the missing runs will measure. What was
  expected may leave out what the paper shows: most pairs of rows that have a
  published order, and tell of it, must be in it as well.
  """
  if not checked:
    why = 'nothing is expected of the rows that flags left'
    return outcome_lib.Verdict.NOT_RUN, why
  measured = [each for each in checked if each.measured != _NONE]
  if len(measured) == len(checked):
    verdict, why = outcome_lib.judged(checked)
    order = bands.order([pair for pair in _pairs(lines) if pair])
    if not order.total:
      return verdict, why
    if order.broken and order.broken >= order.kept:
      return outcome_lib.Verdict.NOT, f'{why}; only {order}'
    return verdict, f'{why}; {order}'
  waiting = len(checked) - len(measured)
  why = f'{waiting} of {len(checked)} expectations wait for runs'
  if all(each.holds is not False for each in measured):
    return outcome_lib.Verdict.NOT_RUN, why
  verdict, broken = outcome_lib.judged(measured)
  return verdict, f'{broken}; {why}'


def _checked(
  expected: Sequence[result.Expected],
  lines: Sequence[lines_lib.Line],
  rows: Sequence[table_lib.Row],
) -> tuple[outcome_lib.Checked, ...]:
  """Returns what is expected of the lines that flags have left.

  Args:
    expected: by the labels of all rows, which are longer than those of some.
    lines: of some of the rows.
    rows: all, at this scale.
  """
  labels = table_lib.labels(rows)
  names = {id(row): label for row, label in zip(rows, labels, strict=True)}
  of = {names[id(line.row)]: line for line in lines}
  asked = [each for each in expected if {each.of, each.than} <= {*of, ''}]
  return tuple(check(each, of) for each in asked)


def check(
  each: result.Expected, of: Mapping[str, lines_lib.Line]
) -> outcome_lib.Checked:
  """Returns whether an expectation holds.

  A target that a run did not reach may have needed any number of further rounds.

  Args:
    each: the expectation.
    of: the table's lines by label.
  """
  unit = names.unit(each.metric)
  bounds = f'{each.bounds}{unit}'
  if each.than:
    compared = each.compared(' points' if unit else '')
    bounds = f'{compared} that of {each.than}'
  says = f'{names.heading(each.metric)} of {each.of}: {bounds}'
  labels = filter(None, (each.of, each.than))
  values = [_bounds(of[label], each.metric) for label in labels]
  if None in values:
    return outcome_lib.Checked(says, _NONE, None)
  low, high = values[0]
  if each.than:
    least, most = values[1]
    low, high = low - most, high - least
  measured = _between(low, high, '+' if each.than else '')
  holds = [each.holds(low), each.holds(high)]
  apart = low > each.most or high < each.least
  decided = all(holds) or apart
  return outcome_lib.Checked(
    says,
    measured,
    all(holds) if decided else None,
    each.is_reversed(low) and each.is_reversed(high),
  )


def _bounds(line: lines_lib.Line, name: str) -> tuple[float, float] | None:
  """Returns the bounds of a result's mean, None without a value.

  The best round may be a later one where it is the last that was run.
  """
  value = line.value(name)
  if value is None:
    return None
  low, high = lines_lib.possible(value)
  if name == names.BEST_ROUND:
    runs = [run.summary for run in line.group.runs]
    if any(run['best_round']['round'] >= run['rounds'] for run in runs):
      high = math.inf
  return low, high


def _between(low: float, high: float, sign: str) -> str:
  """Returns what is known of a value for people: '+1.2', 'at most -5.0'."""
  if low == high:
    return f'{low:{sign}.1f}'
  if math.isfinite(low):
    return f'at least {low:{sign}.1f}'
  return f'at most {high:{sign}.1f}' if math.isfinite(high) else 'unknown'


def _costs(lines: Sequence[lines_lib.Line]) -> outcome_lib.Cells:
  """Returns seeds, best round, all clients' bytes down to it, and seconds."""
  cells = (
    (line.label, *(_cost(line.group) if line.group else [_NONE] * 4))
    for line in lines
  )
  return outcome_lib.Cells('Cost', _COSTS, tuple(cells))


def _cost(group: groups_lib.Group) -> list[str]:
  best = [run.summary.get('best_round') for run in group.runs]
  shown = [_NONE, _NONE]
  if all(best):
    sent = lines_lib.of_seeds([each['bytes_down'] for each in best]).mean
    rounds = lines_lib.of_seeds([each['round'] for each in best])
    shown = [columns.with_std(1)(rounds), wording.human_bytes(sent)]
  seconds = lines_lib.measured(group, names.SECONDS).mean
  return [str(len(group.runs)), *shown, f'{seconds:.3g}']


def _different(lines: Sequence[lines_lib.Line]) -> list[run_files.Run]:
  """Returns the finished runs, those that several rows share once."""
  runs = (run for line in lines if line.group for run in line.group.runs)
  return list({run.path: run for run in runs}.values())


def _revisions(lines: Sequence[lines_lib.Line]) -> str:
  """Returns the revisions of this package that trained, in the order of the rows."""
  found = (run.config.get('git_revision') for run in _different(lines))
  return ', '.join(dict.fromkeys(filter(None, found)))


def _seconds(run: run_files.Run) -> float:
  return float(run.metrics['seconds'].sum())


def _draw(found, lines, where: pathlib.Path) -> tuple[str, ...]:
  """Draws a picture for each task; returns the names of the files."""
  made = []
  tasks = dict.fromkeys(line.row.task for line in lines if line.group)
  for task in tasks:
    of_task = [line for line in lines if line.group and line.row.task == task]
    shown = {line.group.runs[0].path: line.group for line in of_task}
    reference = next(
      (line.reference for line in of_task if line.reference), None
    )
    figure = compare_curves.compare_figure(
      [*shown.values()],
      found.curves,
      found.over,
      reference if found.is_relative else None,
    )
    made.append('result.png' if len(tasks) == 1 else f'result_{task}.png')
    where.mkdir(parents=True, exist_ok=True)
    pictures.save(figure, where / made[-1])
  return tuple(made)
