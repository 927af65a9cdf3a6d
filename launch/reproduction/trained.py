"""The outcome of a table or figure of trained models, from its finished runs."""

import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from launch.reproduction import bands
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import runs as runs_lib
from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import names
from tasks.papers import result
from tasks.papers import table as table_lib
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import columns
from tff_xc.report import compare_curves
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures
from tff_xc.report import run_files
from tff_xc.report import units

_NONE = '–'
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
  """
  lines = _lines(found, rows, runs)
  done = [line for line in lines if line.group]
  small = found.small if scale == 'small' else None
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
  checked = _checked(small.expected, lines) if small else ()
  verdict, why = outcome_lib.judged(checked) if small else _judged(lines)
  unmeasured = [each for each in checked if each.measured == _NONE]
  if unmeasured:
    verdict = outcome_lib.Verdict.NOT_RUN
    why = f'{len(unmeasured)} of {len(checked)} expectations wait for runs'
  return outcome_lib.Outcome(
    **outcome,
    verdict=verdict,
    why='; '.join([why, *missing]),
    tables=(_scores(lines, scale), _costs(lines)),
    checked=checked,
    pictures=_draw(found, lines, outcome_lib.folder(output, found.name)),
    seconds=sum(map(_seconds, _different(lines))),
  )


class _Line(NamedTuple):
  """A row with its finished runs.

  Attributes:
    label: of the row.
    row: of the table.
    group: its runs; None if one has not finished.
    reference: finished runs to whose score results may be relative, or None.
  """

  label: str
  row: table_lib.Row
  group: groups_lib.Group | None
  reference: groups_lib.Group | None

  def value(self, name: str) -> columns.Value | None:
    """Returns a result, see `measured`."""
    return self.group and measured(self.group, name, self.reference)

  def pair(self, name: str) -> bands.Pair | None:
    """Returns a result beside the published one; None without either."""
    published, value = self.row.published.get(name), self.value(name)
    if not published or not value:
      return None
    return bands.Pair(self.row.task, name, published, value.mean, value.std)


def _lines(found, rows, runs) -> list[_Line]:
  groups = [_group(found, group) for group in runs]
  labels = table_lib.labels(rows)
  wholes = [found.reference(row, rows) for row in rows]
  # By identity: rows cannot be compared by value alone where they share runs.
  of = {id(row): group for row, group in zip(rows, groups, strict=True)}
  return [
    _Line(label, row, group, whole and of[id(whole)])
    for label, row, group, whole in zip(
      labels, rows, groups, wholes, strict=True
    )
  ]


def _group(found, runs: Sequence[plan.Run]) -> groups_lib.Group | None:
  """Returns a row's runs as they are after the table's rounds; None: unfinished."""
  if not all(training.is_finished(run) for run in runs):
    return None
  read = [run_files.read_run(run.folder) for run in runs]
  if found.at_rounds:
    read = [
      run_files.first_rounds(run, min(found.at_rounds, run.config['rounds']))
      for run in read
    ]
  return groups_lib.Group(
    runs[0].name, runs[0].config['algorithm'], tuple(read)
  )


def measured(
  group: groups_lib.Group, name: str, reference: groups_lib.Group | None = None
) -> columns.Value | None:
  """Returns a result of finished runs over seeds, in percent or as a number.

  A score without a budget is that of the best round where a run chose one.

  Args:
    group: the runs.
    name: see `tasks.papers.names`.
    reference: the runs to whose score a result may be relative.

  Returns:
    None if a run lacks it.
  """
  parts = names.parse(name)
  if parts.relative is not None:
    if reference is None:
      return None
    part = parts.relative * columns.whole(reference, parts.metric)
    return columns.rounds_to(group, targets_lib.Target(parts.metric, part))
  if parts.target:
    return columns.rounds_to(group, parts.target)
  if parts.budget:
    value = columns.at_budget(parts.budget, parts.metric).of(group)
    found = value and [value.mean, value.std]
    return found and columns.Value(*(f and 100 * f for f in found))
  found = [_last(run, parts.metric) for run in group.runs]
  if None in found:
    return None
  factor = 100 if parts.is_percent else 1
  return _of_seeds([factor * value for value in found])


def _last(run: run_files.Run, metric: str) -> float | None:
  """Returns a number of one run at its end, or at its best round."""
  best = run.summary.get('best_round')
  if metric == names.BEST_ROUND:
    return best and best['round']
  if metric == names.SECONDS:
    return run.summary['seconds_per_round_median']
  if metric in catalog.SCORES:
    return (best or run.summary['final']).get(metric)
  return float(run.metrics[metric].iloc[-1]) if metric in run.metrics else None


def _of_seeds(found: Sequence[float]) -> columns.Value:
  return columns.Value(*columns.mean_and_std(found))


def _shown(value: columns.Value | None) -> str:
  if value is None:
    return _NONE
  is_rounds = isinstance(value, columns.RoundsTo)
  return str(value) if is_rounds else columns.with_std(1)(value)


def _scores(lines: Sequence[_Line], scale: str) -> outcome_lib.Cells:
  """Returns measured beside published values, with differences at full scale."""
  heading, cells = [''], [[line.label] for line in lines]
  for name in dict.fromkeys(n for line in lines for n in line.row.published):
    heading += [f'{names.heading(name)}{names.unit(name)}', 'paper']
    heading += ['difference'] if scale == 'paper' else []
    for line, shown in zip(lines, cells, strict=True):
      published = line.row.published.get(name)
      shown += [_shown(line.value(name)), str(published or _NONE)]
      if scale == 'paper':
        pair = line.pair(name)
        shown.append(pair.difference if pair else _NONE)
  return outcome_lib.Cells('', tuple(heading), tuple(map(tuple, cells)))


def _judged(lines: Sequence[_Line]):
  found = [
    line.pair(name)
    for line in lines
    for name in filter(line.row.published.get, line.row.published)
  ]
  return bands.judged([pair for pair in found if pair], found.count(None))


def _checked(
  expected: Sequence[result.Expected], lines: Sequence[_Line]
) -> tuple[outcome_lib.Checked, ...]:
  of = {line.label: line for line in lines}
  return tuple(_check(each, of) for each in expected)


def _check(
  each: result.Expected, of: Mapping[str, _Line]
) -> outcome_lib.Checked:
  """Returns whether an expectation holds of the lines with these labels."""
  unit = names.unit(each.metric)
  unit = ' points' if unit and each.than else unit
  what = f'{names.heading(each.metric)} of {each.of}'
  what += f' less that of {each.than}' if each.than else ''
  says = f'{what}: {each.bounds}{unit}'
  labels = filter(None, (each.of, each.than))
  values = [of[label].value(each.metric) for label in labels]
  if None in values:
    return outcome_lib.Checked(says, _NONE, False)
  means = [_finite(value) for value in values]
  value = means[0] - (means[1] if each.than else 0)
  sign = '+' if each.than else ''
  return outcome_lib.Checked(says, f'{value:{sign}.1f}', each.holds(value))


def _finite(value: columns.Value) -> float:
  """Returns a mean; of rounds to a target that a seed missed, one more than ran."""
  if math.isfinite(value.mean):
    return value.mean
  return value.rounds + 1.0


def _costs(lines: Sequence[_Line]) -> outcome_lib.Cells:
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
    sent = _of_seeds([each['bytes_down'] for each in best]).mean
    rounds = _of_seeds([each['round'] for each in best])
    shown = [columns.with_std(1)(rounds), units.human_bytes(sent)]
  seconds = measured(group, names.SECONDS).mean
  return [str(len(group.runs)), *shown, f'{seconds:.3g}']


def _different(lines: Sequence[_Line]) -> list[run_files.Run]:
  """Returns the finished runs, those that several rows share once."""
  runs = (run for line in lines if line.group for run in line.group.runs)
  return list({run.path: run for run in runs}.values())


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
