"""Trains an algorithm at every point of a grid, with several seeds.

  python -m launch.sweep --task=glyphs --algorithm=fedss \\
    --grid=client_learning_rate:0.01,0.1,1 [--grid=NAME:VALUE,...] \\
    [--seeds=0,1,2] [--output=DIR] [--jobs=N] [--metric=top1] \\
    [any flag of launch.train]

Every run has a run directory OUTPUT/NAME=VALUE_.../seedS, as launch.train writes it. The
command checks all settings before the first run starts. If a sweep stops, the same command
continues it: finished runs are kept, and unfinished runs resume. If a run fails or diverges,
the sweep reports the failure and continues. At the end, the command prints a table with the
mean ± sample standard deviation over seeds, and marks the best row with '*'. It writes
sweep.md, sweep.csv and sweep.png.
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from launch import app, compare, runs as runs_lib, settings
from tasks import configuration, registry as tasks
from tff_xc import errors, wording
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import hyperparameters as hp
from tff_xc.report import methods, run_files, tables, text_table


def points(
  grids: Sequence[str], parameters: Mapping[str, hp.Hyperparameter]
) -> list[dict[str, Any]]:
  """Returns the points of the product of grids NAME:VALUE,VALUE,...

  The last grid varies fastest.
  """
  found: dict[str, list] = {}
  for grid in grids:
    name, _, texts = grid.partition(':')
    try:
      if not texts:
        raise errors.InputError('expected NAME:VALUE,VALUE, such as client_learning_rate:0.01,0.1')
      if name in found:
        raise errors.InputError(f'{name} has a grid already')
      found[name] = _values(name, texts, parameters)
    except errors.InputError as e:
      raise errors.InputError(f'--grid={grid}: {e}') from e
  product = itertools.product(*found.values())
  return [dict(zip(found, values, strict=True)) for values in product]


def _values(name: str, texts: str, parameters) -> list:
  known = parameters.keys() - {'seed', *run_files.NOT_CONFIGURATION}
  if name not in known:
    raise errors.InputError(
      f'{name} is no setting that changes results{wording.meant(name, known)}; a sweep has one'
      ' task and one algorithm, whose hyper-parameters `python -m launch.list algorithms` lists;'
      ' seeds are given by --seeds'
    )
  values: dict[str, Any] = {}
  for text in texts.split(','):
    value = parameters[name].read(text.strip())
    shown = runs_lib.text_of(value)
    if shown in values:
      raise errors.InputError(f'it has {shown} twice')
    values[shown] = value
  return [*values.values()]


def plan(
  task: str,
  algorithm: str,
  given: Mapping[str, Any],
  grid_points: Sequence[Mapping[str, Any]],
  run_seeds: Sequence[int],
  output: pathlib.Path,
) -> list[runs_lib.Run]:
  """Returns all runs of a sweep. The seeds of a grid point follow each other."""
  found = []
  for values in grid_points:
    if both := set(values) & set(given):
      name = min(both)
      raise errors.InputError(f'--{name} is given, and has a --grid as well')
    for seed in run_seeds:
      changes = {**given, **values, 'seed': seed}
      config = configuration.resolve(task, algorithm, changes)
      configuration.check_private(config)
      folder = runs_lib.folder_of(output, values) / f'seed{seed}'
      found.append(runs_lib.Run(values, config, folder))
  return found


def sweep(
  runs: Sequence[runs_lib.Run],
  given: Mapping[str, Any],
  output: pathlib.Path,
  jobs: int,
  metric: str | None,
) -> str:
  """Trains unfinished runs and writes the files; returns the table."""
  failures = runs_lib.train(runs, given, output, jobs)
  table = write(runs, failures, output, metric)
  return f'task {runs[0].task}, {runs[0].config["algorithm"]}\n{table}'


def write(
  runs: Sequence[runs_lib.Run],
  failures: Mapping[pathlib.Path, str],
  output: pathlib.Path,
  metric: str | None,
) -> str:
  """Writes the files of a sweep; returns the table as text.

  Each grid point has a row, in the order of the grids. '*' marks the best row by `metric`. If
  `metric` is None, this is the validation score by which the runs choose a round, or else the
  task's main score. If one of the seeds of a point failed, the row has no values, because a mean
  over the other seeds could be too good. `failures` has the reasons for failures by run directory.
  """
  from tff_xc.report import curves

  runs_lib.check_data(runs)
  config = runs[0].config
  points: dict[str, list[runs_lib.Run]] = {}
  for run in runs:
    points.setdefault(run.point, []).append(run)
  table = _table(points, failures, metric)
  found = tables.measured(table)
  main = [name for name in tasks.get(config['task']).metrics if name in found]
  measured = [*dict.fromkeys([*main, *found])]
  by = config.get('best_by')
  chosen = [by] if by in measured and by in catalog.FOR_CHOOSING else []
  metric = metric or next(iter([*chosen, *measured, *catalog.SCORES]))
  column = tables.column(metric)
  score = catalog.SCORES.get(metric)  # None: the metric is a target.
  heading = score.heading if score else column.heading
  best, notes = None, []
  if metric not in measured:
    notes.append(
      f'no row is marked: no grid point has a value of {metric}; they'
      f' have {", ".join(measured) or "no metric"}'
    )
  elif table[f'{column.key}_mean'].notna().any():
    best = tables.ranking(table, metric)[0]
    notes.append(f'* marks the best row by {heading}')
    if score and 'test' in score.needs:
      notes.append(
        'warning: the best of several test scores is too high; choose by a validation score'
        ' (--best_by), or by --client_test_fraction=0.1 --evaluate_clients=100'
        ' --best_by=client_top1_mean'
      )
  for run in runs:
    if why := failures.get(run.folder):
      notes.append(f'{run.point} seed {run.seed} failed: {why}')
  grid = [point[0].values for point in points.values()]
  columns = {name: [values[name] for values in grid] for name in grid[0]}
  columns['best'] = [place == best for place in range(len(table))]
  columns['failed_seeds'] = [
    ' '.join(str(run.seed) for run in point if run.folder in failures) for point in points.values()
  ]
  csv = table.copy()
  for place, (name, cells) in enumerate(columns.items(), 2):
    csv.insert(place, name, cells)
  if best is not None:
    table.loc[best, 'algorithm'] += ' *'
  most = {run.config['rounds'] for run in runs}
  rounds = wording.count(max(most), 'round')
  until = 'up to ' if len(most) > 1 else ''
  title = f'{methods.title(config["algorithm"])} on {config["task"]}, {until}{rounds}'
  scores = table.reindex(columns=[f'{column.key}_mean', f'{column.key}_std']).to_numpy()
  is_fraction = score is not None and score.unit == 'fraction'
  figure = curves.sweep_figure(
    grid, scores.tolist(), heading, is_fraction, config['algorithm'], title
  )
  markdown = tables.to_markdown(table) + ''.join(f'\n{n}\n' for n in notes)
  written = compare.write_files(output / 'sweep', markdown, tables.to_csv(csv), figure)
  text = tables.to_text(table, text_table.terminal_width(), metric, 'sweep.csv')
  return text + ''.join(f'{note}\n' for note in notes) + written


def _table(
  points: Mapping[str, Sequence[runs_lib.Run]],
  failures: Mapping[pathlib.Path, str],
  metric: str | None,
):
  """Returns a row for each grid point. The row has no values if a seed failed."""
  finished = {
    name: [run for run in point if run.folder not in failures] for name, point in points.items()
  }
  done = [run for name, point in points.items() if finished[name] == point for run in point]
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
  table['seeds'] = [' '.join(map(str, sorted(r.seed for r in of))) for of in finished.values()]
  texts = [name for name in table if name.endswith('_by_seed')]
  table[texts] = table[texts].fillna('')
  return table


def main(arguments) -> None:
  values = flags.FLAGS
  task, algorithm, given = settings.given()
  if not values.grid:
    raise errors.InputError('--grid is missing, such as --grid=client_learning_rate:0.01,0.1')
  metric = values.metric and compare.check_metric(values.metric)
  output = pathlib.Path(values.output or f'runs/sweep_{task}_{algorithm}')
  grid = points(values.grid, settings.parameters())
  seeds = runs_lib.seeds(values.seeds)
  runs = plan(task, algorithm, given, grid, seeds, output)
  config = runs[0].config
  measured = [*tasks.get(task).metrics, *configuration.more_metrics(config)]
  measured += catalog.OF_CLIENTS if config['evaluate_clients'] else ()
  if metric and metric.split(':')[0] not in measured:
    raise errors.InputError(f'--metric={metric}: {task} measures {", ".join(measured)}')
  print(sweep(runs, given, output, values.jobs, metric), end='')


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  settings.define_experiment_flags(without=('seed',))
  flags.DEFINE_multi_string(
    'grid',
    [],
    'flag of launch.train and the values to try, as NAME:VALUE,VALUE,... Repeat --grid to try all'
    ' combinations of several flags',
  )
  flags.DEFINE_string('seeds', '0', 'seeds of every grid point, such as 0,1,2')
  flags.DEFINE_string(
    'output', None, 'directory to write the sweep to; default: runs/sweep_TASK_ALGORITHM'
  )
  settings.define_jobs_flag()
  settings.define_picture_flag()
  flags.DEFINE_string(
    'metric',
    None,
    'score that decides which grid point is best; or a target such as top1:0.7, and then the grid'
    ' point that reaches the target in the fewest rounds is best. Default: the validation score'
    " by which the runs choose a round, otherwise the task's main score",
  )
  app.run(main, __doc__, settings.narrow_help, takes_arguments=False)
