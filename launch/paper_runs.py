"""Runs a published table of scores on one task, and prints both side by side."""

import pathlib
import textwrap
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch import compare
from launch.sweeps import plan
from launch.sweeps import training
from tasks import experiment
from tasks.papers import table as table_lib
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import run_files
from tff_xc.report import text_table
from tff_xc.report import units

_NONE = '–'
_MANY = 4  # Results of a table that are too wide for a terminal side by side.
# Settings that change no result.
_UNSEEN = (
  'checkpoint_every',
  'client_threads',
  'data_dir',
  'device',
  'runtime',
)
_COSTS = ('best round', 'sent down', 's / round')


def rows_of(
  table: table_lib.PaperTable, task: str | None, algorithm: str | None
) -> list[table_lib.Row]:
  """Returns the rows of a table on a task, of one algorithm or of all.

  Raises:
    errors.InputError: the table has none, or several tasks and none is named.
  """
  known = list(dict.fromkeys(row.task for row in table.rows))
  if task is None and len(known) == 1:
    [task] = known
  if task not in known:
    given = f'--task={task}' if task else '--task is missing'
    raise errors.InputError(
      f'{given}: {table.name} has results on {", ".join(known)}'
    )
  rows = [row for row in table.rows if row.task == task]
  found = [row for row in rows if algorithm in (None, row.algorithm)]
  if not found:
    names = dict.fromkeys(row.algorithm for row in rows)
    raise errors.InputError(
      f'--algorithm={algorithm}: {table.name} has, on {task}, {", ".join(names)}'
    )
  return found


def plan_runs(
  rows: Sequence[table_lib.Row],
  given: Mapping[str, Any],
  seeds: Sequence[int],
  output: pathlib.Path,
) -> list[list[plan.Run]]:
  """Returns each row's runs, a run for each seed.

  Args:
    rows: from `rows_of`.
    given: settings, by name, that replace those of the rows. Hyper-parameters
      apply to the algorithms that take them.
    seeds: of each row.
    output: the directory of all runs.

  Raises:
    errors.InputError: a setting is out of bounds, applies to no row, or is what
      rows differ in.
  """
  entries = [algorithms.get(row.algorithm) for row in rows]
  taken = {name for entry in entries for name in entry.names}
  for name in given:
    if name in algorithms.HYPERPARAMETERS and name not in taken:
      raise errors.InputError(
        f'--{name} is a hyper-parameter of none of these algorithms:'
        f' {", ".join(dict.fromkeys(entry.name for entry in entries))}'
      )
  for name in {n for row in rows for n in _own_changes(row, rows)} & set(given):
    raise errors.InputError(
      f'--{name} is what rows of this table differ in; leave it out'
    )
  names, found = _names(rows), []
  for row, entry, name in zip(rows, entries, names, strict=True):
    own = {
      n: v
      for n, v in given.items()
      if n not in algorithms.HYPERPARAMETERS or n in entry.names
    }
    values = {**row.changes, **own}
    folder = output / '_'.join(
      filter(None, [row.algorithm, plan.folder_name(_own_changes(row, rows))])
    )
    found.append(
      [
        plan.Run(
          values,
          experiment.resolve(row.task, row.algorithm, {**values, 'seed': seed}),
          folder / f'seed{seed}',
          name,
        )
        for seed in seeds
      ]
    )
  return found


def _own_changes(row, rows) -> dict[str, Any]:
  """Returns the changes in which a row differs from others of its algorithm."""
  alike = [other for other in rows if other.algorithm == row.algorithm]
  return {
    name: value
    for name, value in row.changes.items()
    if any(other.changes.get(name) != value for other in alike)
  }


def _names(rows) -> list[str]:
  return [
    ' '.join(
      [row.algorithm, *(f'{n}={v}' for n, v in _own_changes(row, rows).items())]
    )
    for row in rows
  ]


def run(
  table: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  runs: Sequence[Sequence[plan.Run]],
  output: pathlib.Path,
  jobs: int,
) -> str:
  """Trains what is not finished; returns the table beside the published one.

  Writes compare.md, compare.csv and compare.png of all runs to `output`.

  Args:
    table: the published table.
    rows: from `rows_of`.
    runs: from `plan_runs`.
    output: the directory of all runs.
    jobs: runs side by side; 0: as many as fit the memory.

  Raises:
    errors.InputError: as `training.train`, or no experiment finished with
      all its seeds.
  """

  def write(failures):
    # A mean over some of the seeds would pass for one over all.
    failed = lambda group: any(run.folder in failures for run in group)
    done = [[] if failed(group) else group for group in runs]
    folders = [run.folder for group in done for run in group]
    if not folders:
      raise errors.InputError(
        'no experiment has finished with all its seeds; the first failure:'
        f' {next(iter(failures.values()))}'
      )
    compare.compare(folders, output)
    told = [f'{folder} failed: {why}\n' for folder, why in failures.items()]
    return ''.join([_text(table, rows, done, _changed(rows, runs)), *told])

  # Rows with equal settings share their runs.
  different = {run.folder: run for group in runs for run in group}
  text = training.train([*different.values()], {}, output, jobs, write)
  return text + f'written to {output}: compare.md, compare.csv, compare.png\n'


def _changed(rows, runs) -> str:
  """Returns what flags changed of the table's settings, as a sentence."""
  found = {
    f'--{name}={value}': None
    for row, group in zip(rows, runs, strict=True)
    for name, value in group[0].values.items()
    if row.changes.get(name) != value and name not in _UNSEEN
  }
  return f' Changed here: {", ".join(found)}.' if found else ''


def _text(table, rows, runs, changed) -> str:
  """Returns the scores beside the published ones, and what the runs cost."""
  results = list(dict.fromkeys(name for row in rows for name in row.published))
  scores, costs = [['algorithm']], [['algorithm', 'seeds', *_COSTS]]
  for result in results:
    scores[0] += [table_lib.heading_with_unit(result), 'paper']
  for row, name, group in zip(rows, _names(rows), runs, strict=True):
    scores.append([name])
    whole = table.reference(row)
    reference = runs[rows.index(whole)] if whole in rows else []
    for result in results:
      published = row.published.get(result)
      shown = _measured(group, result, reference)
      scores[-1] += [shown, str(published or _NONE)]
    costs.append([name, str(len(group)), *_costs(group)])
  width = text_table.terminal_width()
  about = f'{table.title}, task {rows[0].task}. {table.caption}.{changed}'
  # Cells on the left are wrapped, which many results need.
  left = (0,) if len(results) < _MANY else range(len(scores[0]))
  return '\n'.join(
    [
      textwrap.fill(about, width) + '\n',
      text_table.to_text(scores, left, width),
      text_table.to_text(costs, (0,), width),
    ]
  )


def _measured(
  group: Sequence[plan.Run], result: str, reference: Sequence[plan.Run]
) -> str:
  """Returns mean ± std over seeds, of the best round where one was chosen.

  Args:
    group: finished runs of a row, or none.
    result: its name, see `tasks.papers.table`.
    reference: finished runs to whose score a result may be relative, or none.
  """
  from tff_xc.report import columns
  from tff_xc.report import groups

  parts = table_lib.parse(result)
  if not group or (parts.relative is not None and not reference):
    return _NONE
  read = lambda runs: groups.Group(
    '', '', tuple(run_files.read_run(run.folder) for run in runs)
  )
  found, value = read(group), None
  show = columns.with_std(
    1, 100 if catalog.SCORES[parts.score].unit == 'fraction' else 1
  )
  if table_lib.is_rounds(result):
    target = parts.target or targets_lib.Target(
      parts.score,
      parts.relative * columns.whole(read(reference), parts.score),
    )
    value, show = columns.rounds_to(found, target), str
  elif parts.budget:
    value = columns.at_budget(parts.budget, parts.score).of(found)
  else:
    scores = [r.summary['best_round'] or r.summary['final'] for r in found.runs]
    if all(score.get(parts.score) is not None for score in scores):
      each = [score[parts.score] for score in scores]
      value = columns.Value(*columns.mean_and_std(each))
  return _NONE if value is None else show(value)


def _costs(group: Sequence[plan.Run]) -> list[str]:
  """Returns the best round, all clients' bytes down to it, and seconds."""
  from tff_xc.report import columns

  if not group:
    return [_NONE] * len(_COSTS)
  mean = lambda found: columns.Value(*columns.mean_and_std(list(found)))
  summaries = [run_files.read_summary(run.folder) for run in group]
  seconds = mean(s['seconds_per_round_median'] for s in summaries)
  best = [summary['best_round'] for summary in summaries]
  shown = [_NONE, _NONE]
  if all(best):
    sent = mean(each['bytes_down'] for each in best).mean
    shown = [
      columns.with_std(1)(mean(each['round'] for each in best)),
      units.human_bytes(sent),
    ]
  return [*shown, f'{seconds.mean:.3g}']
