"""The outcome of a table or figure of trained models, from its finished runs."""

import csv
import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

from launch.reproduction import bands
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import runs as runs_lib
from launch.sweeps import plan
from launch.sweeps import training
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

CSV = 'result.csv'
_COLUMNS = (
  *('row', 'task', 'algorithm', 'metric', 'unit'),
  *('published_mean', 'published_std', 'published_is_bound'),
  *('measured_mean', 'measured_std', 'in_band', 'seeds', 'rounds'),
)
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
  """Returns what finished runs say of a table, draws them, and writes a CSV.

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
  groups = [_group(found, group) for group in runs]
  folder = outcome_lib.folder(output, found.name)
  _write_values(folder, rows, groups, scale == 'paper')
  done = [group for group in groups if group]
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
    tables = (_scores(rows, groups, scale),)
    return outcome_lib.Outcome(
      **outcome, verdict=verdict, why=why, tables=tables
    )
  checked = _checked(small.expected, rows, groups) if small else ()
  verdict, why = _as_expected(checked) if small else _judged(rows, groups)
  why = '; '.join([why, *missing])
  return outcome_lib.Outcome(
    **outcome,
    verdict=verdict,
    why=why,
    tables=(_scores(rows, groups, scale), _costs(rows, groups)),
    checked=checked,
    pictures=_draw(found, groups, folder),
    seconds=sum(_seconds(run) for group in _different(done) for run in group),
  )


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


def measured(group: groups_lib.Group, metric: str) -> columns.Value | None:
  """Returns a score in percent, or rounds to a target, of all seeds.

  The score is that of the best round where a run chose one, else the last.

  Args:
    group: the runs.
    metric: a score, or a target such as 'top1:0.7'.
  """
  if ':' in metric:
    return columns.rounds_to(group, targets_lib.parse_one(metric))
  scores = [
    r.summary.get('best_round') or r.summary['final'] for r in group.runs
  ]
  if any(score.get(metric) is None for score in scores):
    return None
  factor = 100 if catalog.SCORES[metric].unit == 'fraction' else 1
  return columns.Value(
    *columns.mean_and_std([factor * score[metric] for score in scores])
  )


def _metrics(rows: Sequence[table_lib.Row]) -> list[str]:
  return list(dict.fromkeys(name for row in rows for name in row.published))


def _shown(value: columns.Value | None) -> str:
  if value is None:
    return _NONE
  is_rounds = isinstance(value, columns.RoundsTo)
  return str(value) if is_rounds else columns.with_std(1)(value)


def _scores(rows, groups, scale) -> outcome_lib.Cells:
  """Returns measured beside published values, with differences at full scale."""
  heading, lines = [''], [[label] for label in table_lib.labels(rows)]
  for metric in _metrics(rows):
    unit = '' if ':' in metric else ' %'
    heading += [f'{table_lib.heading(metric)}{unit}', 'paper']
    heading += ['difference'] if scale == 'paper' else []
    for line, row, group in zip(lines, rows, groups, strict=True):
      value = group and measured(group, metric)
      published = row.published.get(metric)
      line += [_shown(value), str(published or _NONE)]
      if scale == 'paper':
        pair = value and published and _pair(row, metric, value)
        line.append(pair.difference if pair else _NONE)
  return outcome_lib.Cells('', tuple(heading), tuple(map(tuple, lines)))


def _pair(row, metric, value) -> bands.Pair:
  published = row.published[metric]
  return bands.Pair(row.task, metric, published, value.mean, value.std)


def _write_values(where: pathlib.Path, rows, groups, is_judged: bool) -> None:
  """Writes result.csv: a line for each row and metric.

  Scores are in percent, and rounds to a target that a seed missed are 'inf'. Cells
  without a value are empty, `in_band` too at the small scale, where values are not
  compared with the published ones.
  """
  lines = [
    _values(label, row, group, metric, is_judged)
    for row, label, group in zip(
      rows, table_lib.labels(rows), groups, strict=True
    )
    for metric in _metrics(rows)
  ]
  path = where / CSV
  with (
    outcome_lib.writing(where),
    run_files.replacing(path) as temporary,
    open(temporary, 'w', newline='', encoding='utf-8') as file,
  ):
    csv.writer(file, lineterminator='\n').writerows([_COLUMNS, *lines])


def _values(label, row, group, metric, is_judged) -> tuple:
  published = row.published.get(metric)
  value = group and measured(group, metric)
  in_band = ''
  if is_judged and published and value:
    in_band = 'yes' if _pair(row, metric, value).in_band else 'no'
  return (
    *(label, row.task, row.algorithm, metric),
    'rounds' if ':' in metric else '%',
    *((published.mean, published.std) if published else ('', '')),
    ('yes' if published.is_bound else 'no') if published else '',
    *((value.mean, value.std) if value else ('', '')),
    in_band,
    *((len(group.runs), _rounds(group)) if group else ('', '')),
  )


def _rounds(group: groups_lib.Group) -> int:
  """Returns the rounds of a row's runs; of the longest, if some stopped early."""
  return max(run.summary['rounds'] for run in group.runs)


def _judged(rows, groups):
  pairs, missing = [], 0
  for row, group in zip(rows, groups, strict=True):
    for metric in filter(row.published.get, row.published):
      value = group and measured(group, metric)
      if value:
        pairs.append(_pair(row, metric, value))
      else:
        missing += 1
  return bands.judged(pairs, missing)


def _as_expected(checked: Sequence[outcome_lib.Checked]):
  """Returns the verdict on a small table, and why."""
  unmeasured = [each for each in checked if each.measured == _NONE]
  if unmeasured:
    why = f'{len(unmeasured)} of {len(checked)} expectations wait for runs'
    return outcome_lib.Verdict.NOT_RUN, why
  return outcome_lib.judged(checked)


def _checked(
  expected: Sequence[result.Expected], rows, groups
) -> tuple[outcome_lib.Checked, ...]:
  of = dict(zip(table_lib.labels(rows), groups, strict=True))
  return tuple(_check(each, of) for each in expected)


def _check(
  each: result.Expected, of: Mapping[str, groups_lib.Group | None]
) -> outcome_lib.Checked:
  """Returns whether an expectation holds of the groups with these labels."""
  unit = '' if ':' in each.metric else ' points' if each.than else ' %'
  what = f'{table_lib.heading(each.metric)} of {each.of}'
  what += f' less that of {each.than}' if each.than else ''
  says = f'{what}: {each.bounds}{unit}'
  values = [
    of[label] and measured(of[label], each.metric)
    for label in filter(None, (each.of, each.than))
  ]
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


def _costs(rows, groups) -> outcome_lib.Cells:
  """Returns seeds, best round, all clients' bytes down to it, and seconds."""
  lines = []
  for label, group in zip(table_lib.labels(rows), groups, strict=True):
    lines.append((label, *(_cost(group) if group else [_NONE] * 4)))
  return outcome_lib.Cells('Cost', _COSTS, tuple(lines))


def _cost(group: groups_lib.Group) -> list[str]:
  mean = lambda found: columns.Value(*columns.mean_and_std(list(found)))
  summaries = [run.summary for run in group.runs]
  seconds = mean(s['seconds_per_round_median'] for s in summaries)
  best = [summary.get('best_round') for summary in summaries]
  shown = [_NONE, _NONE]
  if all(best):
    sent = mean(each['bytes_down'] for each in best).mean
    shown = [
      columns.with_std(1)(mean(each['round'] for each in best)),
      units.human_bytes(sent),
    ]
  return [str(len(group.runs)), *shown, f'{seconds.mean:.3g}']


def _different(groups) -> list[list[run_files.Run]]:
  """Returns the runs of each group, those that several rows share once."""
  return list({g.runs[0].path: list(g.runs) for g in groups}.values())


def _seconds(run: run_files.Run) -> float:
  return float(run.metrics['seconds'].sum())


def _draw(found, groups, where: pathlib.Path) -> tuple[str, ...]:
  """Draws a picture for each task; returns the names of the files."""
  names = []
  tasks = dict.fromkeys(g.runs[0].task for g in groups if g)
  for task in tasks:
    shown = {
      group.runs[0].path: group
      for group in groups
      if group and group.runs[0].task == task
    }
    reference = next(
      (g for g in shown.values() if g.algorithm == found.relative_to), None
    )
    figure = compare_curves.compare_figure(
      [*shown.values()], found.curves, found.over, reference
    )
    name = 'result.png' if len(tasks) == 1 else f'result_{task}.png'
    where.mkdir(parents=True, exist_ok=True)
    pictures.save(figure, where / name)
    names.append(name)
  return tuple(names)
