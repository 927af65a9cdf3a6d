"""The rows of a published table with their finished runs, and what these measured."""

import csv
import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from launch.reproduction import bands
from launch.reproduction import outcome as outcome_lib
from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import names
from tasks.papers import table as table_lib
from tff_xc.measure import best_round
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import columns
from tff_xc.report import groups as groups_lib
from tff_xc.report import run_files

CSV = 'result.csv'
_MEDIAN = 'seconds_per_round_median'
_IN_BAND = {True: 'yes', False: 'no', None: ''}
_COLUMNS = (
  *('row', 'task', 'algorithm', 'metric', 'unit'),
  *('published_mean', 'published_std', 'published_is_bound'),
  *('measured_mean', 'measured_std', 'in_band', 'seeds', 'rounds'),
)


class Line(NamedTuple):
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
    least, mean = possible(value)
    return bands.Pair(self.row.task, name, published, mean, value.std, least)


def of_table(found, rows, runs) -> list[Line]:
  groups = [_group(found, group) for group in runs]
  labels = table_lib.labels(rows)
  wholes = [found.reference(row, rows) for row in rows]
  # By identity: rows cannot be compared by value alone where they share runs.
  of = {id(row): group for row, group in zip(rows, groups, strict=True)}
  return [
    Line(label, row, group, whole and of[id(whole)])
    for label, row, group, whole in zip(
      labels, rows, groups, wholes, strict=True
    )
  ]


def _group(found, runs: Sequence[plan.Run]) -> groups_lib.Group | None:
  """Returns a row's runs as they are after the table's rounds; None: unfinished."""
  if not all(training.is_finished(run) for run in runs):
    return None
  read = [_whole(run_files.read_run(run.folder)) for run in runs]
  by = runs[0].config['best_by']
  if found.at_rounds:
    by = ''
    read = [
      run_files.first_rounds(run, min(found.at_rounds, run.config['rounds']))
      for run in read
    ]
  read = [_chosen(run, by) for run in read]
  return groups_lib.Group(
    runs[0].name, runs[0].config['algorithm'], tuple(read)
  )


def _chosen(run: run_files.Run, by: str) -> run_files.Run:
  """Returns a run with its best round by a score, without one if that is ''.

  A command with another --best_by may have trained it.
  """
  best = run.summary.get('best_round') or {}
  if best.get('by', '') == by:
    return run
  scores = [name for name in catalog.SCORES if name in run.metrics]
  chosen = best_round.Choice(by if by in scores else '')
  best = chosen.summary(run.metrics, scores)
  return dataclasses.replace(run, summary=run.summary | {'best_round': best})


def _whole(run: run_files.Run) -> run_files.Run:
  """Returns a finished run, after a look for what tables take from it.

  Raises:
    errors.DamageError: something is missing.
  """
  done = run.metrics['round'].max()  # nan without rows.
  if 'seconds' not in run.metrics or done != run.summary['rounds']:
    raise run_files.damaged(
      run.path / run_files.METRICS,
      f'expected {run.summary["rounds"]} rounds with seconds',
    )
  numbers = {_MEDIAN: run.summary.get(_MEDIAN)}
  if (best := run.summary.get('best_round')) is not None:
    numbers |= {name: best.get(name) for name in ('round', 'bytes_down')}
  for name, value in numbers.items():
    if value is None:
      raise run_files.damaged(
        run.path / run_files.SUMMARY, f'expected a number of "{name}"'
      )
  return run


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
  return of_seeds([factor * value for value in found])


def _last(run: run_files.Run, metric: str) -> float | None:
  """Returns a number of one run at its end, or at its best round."""
  best = run.summary.get('best_round')
  if metric == names.BEST_ROUND:
    return best and best['round']
  if metric == names.SECONDS:
    return run.summary[_MEDIAN]
  if metric in catalog.SCORES:
    return (best or run.summary['final']).get(metric)
  last = run.metrics[metric].iloc[-1] if metric in run.metrics else math.nan
  # Such as the support vectors of a class that was not drawn in this round.
  return None if math.isnan(last) else float(last)


def possible(value: columns.Value) -> tuple[float, float]:
  """Returns the bounds of a mean; rounds to a target may be more than were run."""
  if math.isfinite(value.mean):
    return value.mean, value.mean
  reached = [
    value.rounds + 1 if rounds is None else rounds for rounds in value.by_seed
  ]
  return sum(reached) / len(reached), math.inf


def of_seeds(found: Sequence[float]) -> columns.Value:
  return columns.Value(*columns.mean_and_std(found))


def write_csv(
  where: pathlib.Path, lines: Sequence[Line], is_judged: bool
) -> None:
  """Writes result.csv: a line for each row and result.

  Scores are in percent, and rounds to a target that a seed missed are 'inf'. Cells
  without a value are empty.

  Args:
    where: the directory of the result.
    lines: from `of_table`.
    is_judged: whether values are compared with the published ones; `in_band` is
      empty at the small scale, and where a run is too short to tell.

  Raises:
    errors.InputError: it cannot be written.
  """
  cells = [
    _cells(line, name, is_judged)
    for line in lines
    for name in line.row.published
  ]
  with (
    outcome_lib.writing(where),
    run_files.replacing(where / CSV) as temporary,
    open(temporary, 'w', newline='', encoding='utf-8') as file,
  ):
    csv.writer(file, lineterminator='\n').writerows([_COLUMNS, *cells])


def _cells(line: Line, name: str, is_judged: bool) -> tuple:
  published, value = line.row.published.get(name), line.value(name)
  pair = line.pair(name) if is_judged else None
  runs = line.group.runs if line.group else ()
  return (
    *(line.label, line.row.task, line.row.algorithm, name),
    '%' if names.unit(name) else 'number',
    *((published.mean, published.std) if published else ('', '')),
    ('yes' if published.is_bound else 'no') if published else '',
    *((value.mean, value.std) if value else ('', '')),
    _IN_BAND[pair and pair.in_band],
    len(runs) or '',
    # The longest, if some stopped early.
    max((run.summary['rounds'] for run in runs), default=''),
  )
