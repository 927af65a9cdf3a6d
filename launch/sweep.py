"""Trains an algorithm at every point of a grid, with several seeds.

  python -m launch.sweep --task=glyphs --algorithm=fedss \\
    --grid=client_learning_rate:0.01,0.1,1 [--grid=NAME:VALUE,...] \\
    [--seeds=0,1,2] [--output=DIR] [--jobs=N] [--metric=top1] \\
    [any flag of launch.train]

Every run is a run directory OUTPUT/NAME=VALUE_.../seedS of launch.train. All
settings are checked before the first run starts. The same command goes on with a
sweep that stopped: finished runs are kept, an unfinished one resumes. A run that
fails, such as one that diverges, is reported and the sweep goes on. At the end
it prints a table, mean ± sample std over seeds, the best marked with '*', and
writes sweep.md, sweep.csv and sweep.png.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from absl import flags

from launch import app
from launch import compare
from launch import settings
from launch.sweeps import plan
from launch.sweeps import training
from tasks import registry as tasks
from tff_xc import errors
from tff_xc import wording
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import run_files
from tff_xc.report import text_table


def sweep(
  runs: Sequence[plan.Run],
  given: Mapping[str, Any],
  output: pathlib.Path,
  jobs: int,
  metric: str | None,
) -> str:
  """Trains what is not finished; returns the table, and writes the files."""
  failures = training.train(runs, given, output, jobs)
  table = write(runs, failures, output, metric)
  first = runs[0].config
  return f'task {first["task"]}, {first["algorithm"]}\n{table}'


def write(
  runs: Sequence[plan.Run],
  failures: Mapping[pathlib.Path, str],
  output: pathlib.Path,
  metric: str | None,
) -> str:
  """Writes the files of a sweep; returns the table as text.

  A row is a grid point, in the order of the grids, and '*' marks the best by
  `metric`; None: by validation, where the runs choose their rounds by it. A point has no values if one of its seeds failed, as a mean over the
  other seeds would favour it. `failures` has why a run failed, by its directory.
  """
  from tff_xc.report import curves
  from tff_xc.report import methods
  from tff_xc.report import tables

  training.check_data(runs)
  by = runs[0].config.get('best_by', '')
  if by.endswith(catalog.VALIDATION):
    metric = metric or by
  points: dict[str, list[plan.Run]] = {}
  for run in runs:
    points.setdefault(run.point, []).append(run)
  table = _table(points, failures, metric)
  measured = tables.measured(table)
  metric = metric or next(iter([*measured, *catalog.SCORES]))
  column = tables.column(metric)
  heading = column.heading if ':' in metric else catalog.SCORES[metric].heading
  values = table.reindex(columns=[f'{column.key}_mean', f'{column.key}_std'])
  best, notes = None, []
  if metric not in measured:
    notes.append(
      f'no row is marked: no grid point has a value of {metric}; they'
      f' have {", ".join(measured) or "no metric"}'
    )
  elif values.iloc[:, 0].notna().any():
    best = tables.ranking(table, metric)[0]
    notes.append(f'* the best by {heading}')
  notes += [f'{run.point} seed {run.seed} failed: {failures[run.folder]}'
            for run in runs if run.folder in failures]  # fmt: skip
  is_best = [place == best for place in range(len(table))]
  marked = table.assign(
    algorithm=table['algorithm'].where(
      [not found for found in is_best], table['algorithm'] + ' *'
    )
  )
  grid = [point[0].values for point in points.values()]
  cells = {name: [point[name] for point in grid] for name in grid[0]}
  cells['best'] = is_best
  cells['failed_seeds'] = [
    ' '.join(str(run.seed) for run in point if run.folder in failures)
    for point in points.values()
  ]
  csv = table.copy()
  for place, (name, found) in enumerate(cells.items(), 2):
    csv.insert(place, name, found)
  algorithm = runs[0].config['algorithm']
  most = {run.config['rounds'] for run in runs}
  rounds = ('up to ' if len(most) > 1 else '') + wording.count(
    max(most), 'round'
  )
  written = compare.write_files(
    output / 'sweep',
    tables.to_markdown(marked) + ''.join(f'\n{note}\n' for note in notes),
    tables.to_csv(csv),
    curves.sweep_figure(
      grid,
      values.to_numpy().tolist(),
      heading,
      ':' not in metric and catalog.SCORES[metric].unit == 'fraction',
      algorithm,
      f'{methods.title(algorithm)} on {runs[0].config["task"]}, {rounds}',
    ),
  )
  width = text_table.terminal_width()
  text = tables.to_text(marked, width, metric, 'sweep.csv')
  return text + ''.join(f'{note}\n' for note in notes) + written


def _table(points, failures, metric):
  """Returns a row for each point, without values where a seed failed."""
  from tff_xc.report import tables

  done = [
    run
    for point in points.values()
    for run in point
    if not any(each.folder in failures for each in point)
  ]
  if not done:
    raise errors.InputError(
      'no grid point has finished with all its seeds; the first failure:'
      f' {next(iter(failures.values()))}'
    )
  config = done[0].config
  targets = [*targets_lib.parse(config['target'])]
  if metric and ':' in metric:
    targets.append(targets_lib.parse_one(metric))
  read = [run_files.read_run(run.folder) for run in done]
  frame = tables.collect(read, [run.point for run in done])
  found = tables.of_methods(frame, tables.all_columns(targets))
  table = found.set_index('algorithm').reindex(list(points)).reset_index()
  table['algorithm'] = [f'{config["algorithm"]} {name}' for name in points]
  table['seeds'] = [
    ' '.join(map(str, sorted(r.seed for r in p if r.folder not in failures)))
    for p in points.values()
  ]
  texts = [name for name in table if name.endswith('_by_seed')]
  table[texts] = table[texts].fillna('')
  return table


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  values = flags.FLAGS
  task, algorithm, given = settings.given()
  if not values.grid:
    raise errors.InputError(
      '--grid is missing, such as --grid=client_learning_rate:0.01,0.1'
    )
  metric = values.metric and compare.check_metric(values.metric)
  measured = tasks.get(task).metrics
  if metric and metric.split(':')[0] not in measured:
    raise errors.InputError(
      f'--metric={metric}: {task} measures {", ".join(measured)}'
    )
  output = pathlib.Path(values.output or f'runs/sweep_{task}_{algorithm}')
  points = plan.points(values.grid, settings.parameters())
  seeds = plan.seeds(values.seeds)
  runs = plan.runs(task, algorithm, given, points, seeds, output)
  settings.use_cache_dir()
  settings.use_picture_format()
  print(sweep(runs, given, output, values.jobs, metric), end='')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  settings.define_experiment_flags(without=('seed',))
  flags.DEFINE_multi_string(
    'grid',
    [],
    'NAME:VALUE,VALUE,...: a flag of launch.train and its values; repeat it for'
    ' the product of several grids',
  )
  flags.DEFINE_string('seeds', '0', 'seeds of every grid point, such as 0,1,2')
  flags.DEFINE_string(
    'output', None, 'directory of the sweep; default runs/sweep_TASK_ALGORITHM'
  )
  settings.define_jobs_flag()
  settings.define_picture_flag()
  flags.DEFINE_string(
    'metric',
    None,
    'what decides the best: a metric, or a target such as top1:0.7, of which'
    ' fewer rounds are better; default: the score of validation examples by which the'
    ' runs choose a round, else the first score',
  )
  app.run(main, __doc__, settings.narrow_help)
