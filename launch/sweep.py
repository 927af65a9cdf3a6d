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
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from absl import flags

from launch import app
from launch import compare
from launch import settings
from launch.sweeps import plan
from tasks import registry as tasks
from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.experiment import lock
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.report import run_files
from tff_xc.report import units


def is_finished(run: plan.Run) -> bool:
  """Whether a run has all its rounds.

  Raises:
    errors.InputError: its directory holds another run.
  """
  same_run.check_config(run.folder, run.config)
  summary = run_files.read_summary(run.folder)
  return bool(summary) and summary['rounds'] >= run.config['rounds']


def arguments_of(
  run: plan.Run, given: Mapping[str, Any], threads: int | None
) -> list[str]:
  """Returns Python's arguments that train a run.

  Args:
    run: the run.
    given: the settings of all runs.
    threads: for `--client_threads`, unless it is given; None: its default.
  """
  changes = {**given, **run.values, 'seed': run.seed}
  if threads is not None:
    changes.setdefault('client_threads', threads)
  return [
    *('-m', 'launch.train', f'--run_dir={run.folder}'),
    *(f'--{name}={run.config[name]}' for name in ('task', 'algorithm')),
    *(f'--{name}={value}' for name, value in changes.items()),
  ]


class _Report:
  """Prints a line for every run that has ended, and keeps the failures."""

  def __init__(self, total: int, finished: int):
    self.failures: dict[pathlib.Path, str] = {}
    self._total, self._ended, self._seconds = total, finished, []

  def ended(self, child, jobs: int) -> None:
    """Takes a `children.Child` that has ended, of `jobs` side by side."""
    self._ended += 1
    run = child.run
    if child.error:
      self.failures[run.folder] = child.error
      what = f'failed: {child.error}'
    else:
      self._seconds.append(child.seconds)
      what = f'{_score(run)}, {units.human_duration(child.seconds)}'
    done = f'finished {self._ended} of {self._total}'
    left = self._total - self._ended
    if left and self._seconds:
      turns = -(-left // jobs)
      seconds = turns * statistics.median(self._seconds)
      done += f', about {units.human_duration(seconds)} left'
    print(f'{done}: {run.point} seed {run.seed}: {what}', flush=True)


def _score(run: plan.Run) -> str:
  """Returns the final value of the headline metric, for people."""
  final = run_files.read_summary(run.folder)['final']
  for name in tasks.get(run.config['task']).metrics:
    if final.get(name) is not None:
      metric = catalog.SCORES[name]
      if metric.unit == 'fraction':
        return f'{metric.heading} {100 * final[name]:.1f} %'
      return f'{metric.heading} {final[name]:.4f}'
  return 'no score'


def sweep(
  runs: Sequence[plan.Run],
  given: Mapping[str, Any],
  output: pathlib.Path,
  jobs: int,
  metric: str | None,
) -> str:
  """Trains what is not finished; returns the table, and writes the files.

  Args:
    runs: from `plan.runs`.
    given: the settings of all runs.
    output: the directory of the sweep.
    jobs: runs side by side; 0: as many as fit the memory.
    metric: the score, or the name of the target, to mark the best by.

  Raises:
    errors.InputError: another process runs in `output`, a directory holds
      another run, runs are on different data, the task's data are missing, or
      no run succeeded.
    KeyboardInterrupt: after SIGINT or SIGTERM; no run is left running.
  """
  first = runs[0].config
  waiting = [run for run in runs if not is_finished(run)]
  if waiting:
    from launch.sweeps import children

    children.check_data(first['task'], first['data_dir'])
  from launch.sweeps import results

  with lock.lock(output, 'output'):
    results.check_data(runs)
    failures = _train(runs, waiting, given, output, jobs)
    table = results.write(runs, failures, output, metric)
  return (
    f'task {first["task"]}, {first["algorithm"]}\n{table}'
    f'written to {output}: sweep.md, sweep.csv, sweep.png\n'
  )


def _train(runs, waiting, given, output, jobs) -> Mapping[pathlib.Path, str]:
  """Trains the runs that are waiting; returns why runs failed, by directory."""
  finished = len(runs) - len(waiting)
  print(
    f'{len(runs)} runs in {output}, {finished} of them finished', flush=True
  )
  report = _Report(len(runs), finished)
  if not waiting:
    return report.failures
  from launch.sweeps import children
  from launch.sweeps import results

  def ended(child, side_by_side):
    report.ended(child, side_by_side)
    results.check_data(runs)  # A wrong --data_dir ends the sweep early.

  try:
    children.run_all(
      waiting,
      lambda run, side_by_side: arguments_of(
        run, given, children.threads(side_by_side)
      ),
      jobs,
      ended,
    )
  except KeyboardInterrupt:
    print('stopped; the same command goes on from here', flush=True)
    raise
  return report.failures


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
  flags.DEFINE_integer(
    'jobs',
    0,
    'runs side by side; default: the first run runs alone, then as many as there'
    ' are cores and as fit the memory',
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_string(
    'metric',
    None,
    'what decides the best: a metric, or a target such as top1:0.7, of which'
    ' fewer rounds are better; default: the first score',
  )
  app.run(main, __doc__)
