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

  def write(failures):
    from launch.sweeps import results

    return results.write(runs, failures, output, metric)

  table = training.train(runs, given, output, jobs, write)
  return (
    f'task {first["task"]}, {first["algorithm"]}\n{table}'
    f'written to {output}: sweep.md, sweep.csv, sweep.png\n'
  )


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
  settings.define_jobs_flag()
  flags.DEFINE_string(
    'metric',
    None,
    'what decides the best: a metric, or a target such as top1:0.7, of which'
    ' fewer rounds are better; default: the first score',
  )
  app.run(main, __doc__)
