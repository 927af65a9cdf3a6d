"""Trains runs that are planned, each in a process of its own, and reports them."""

import pathlib
import statistics
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.sweeps import plan
from tasks import registry as tasks
from tff_xc import lock
from tff_xc import wording
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.report import run_files


def is_finished(run: plan.Run) -> bool:
  """Whether a run is finished: `run_files.is_finished`.

  Raises:
    errors.InputError: its directory holds another run.
  """
  same_run.check_config(run.folder, run.config)
  summary = run_files.read_summary(run.folder)
  return run_files.is_finished(run.config, summary)


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
      what = f'{_score(run)}, {wording.human_duration(child.seconds)}'
    done = f'finished {self._ended} of {self._total}'
    left = self._total - self._ended
    if left and self._seconds:
      turns = -(-left // jobs)
      seconds = turns * statistics.median(self._seconds)
      done += f', about {wording.human_duration(seconds)} left'
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


def train(
  runs: Sequence[plan.Run],
  given: Mapping[str, Any],
  output: pathlib.Path,
  jobs: int,
  write: Callable[[Mapping[pathlib.Path, str]], str],
) -> str:
  """Trains what is not finished, and returns what `write` does.

  Args:
    runs: all runs, of one task.
    given: the settings of all runs.
    output: the directory of the runs.
    jobs: runs side by side; 0: as many as fit the memory.
    write: called at the end with why runs failed, by directory.

  Raises:
    errors.InputError: another process runs in `output`, a directory holds
      another run, runs are on different data, or the task's data are missing.
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
    return write(_train(runs, waiting, given, output, jobs))


def _train(runs, waiting, given, output, jobs) -> Mapping[pathlib.Path, str]:
  """Trains the runs that are waiting; returns why runs failed, by directory."""
  finished = len(runs) - len(waiting)
  number = wording.count(len(runs), 'run')
  print(f'{number} in {output}, {finished} of them finished', flush=True)
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
