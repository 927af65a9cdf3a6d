"""Trains runs that are planned, each in a process of its own, and reports them."""

import json
import pathlib
import statistics
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.sweeps import plan
from tasks import registry as tasks
from tff_xc import errors
from tff_xc import lock
from tff_xc import wording
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.report import run_files


def is_finished(run: plan.Run) -> bool:
  """Whether a run is finished; refuses a directory that holds another run."""
  same_run.check_config(run.folder, run.config)
  summary = run_files.read_summary(run.folder)
  return run_files.is_finished(run.config, summary)


def check_data(runs: Sequence[plan.Run]) -> None:
  """Refuses runs that were trained on different data; some may not have begun.

  Options may change the data of procedural tasks, so that only runs of equal
  options must have equal data.
  """
  first: dict[str, tuple[plan.Run, Mapping]] = {}
  for run in runs:
    if not run_files.is_run(run.folder):
      continue
    config = run_files.read_config(run.folder / run_files.CONFIG)
    options = json.dumps(config.get('options'), sort_keys=True)
    data = config.get('data', {})
    other, expected = first.setdefault(options, (run, data))
    if told := same_run.differences(expected, data):
      raise errors.InputError(
        f'{other.folder} and {run.folder} are runs on different data: {told};'
        " move one of them away and train it again with the other's --data_dir,"
        ' or choose another --output'
      )


def arguments_of(
  run: plan.Run, given: Mapping[str, Any], threads: int | None
) -> list[str]:
  """Returns Python's arguments that train a run.

  `given` are the settings of all runs, `threads` is for `--client_threads`, unless
  it is given; None: its default.
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
      seconds = -(-left // jobs) * statistics.median(self._seconds)
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
  from launch.sweeps import children

  first = runs[0].config
  waiting = [run for run in runs if not is_finished(run)]
  if waiting:
    children.check_data(first['task'], first['data_dir'])
  with lock.lock(output, 'output'):
    check_data(runs)
    finished = len(runs) - len(waiting)
    number = wording.count(len(runs), 'run')
    print(f'{number} in {output}, {finished} of them finished', flush=True)
    report = _Report(len(runs), finished)

    def ended(child, side_by_side):
      report.ended(child, side_by_side)
      check_data(runs)  # A wrong --data_dir ends the sweep early.

    def arguments(run, side_by_side):
      return arguments_of(run, given, children.threads(side_by_side))

    try:
      if waiting:
        children.run_all(waiting, arguments, jobs, ended)
    except KeyboardInterrupt:
      print('stopped; the same command goes on from here', flush=True)
      raise
    return write(report.failures)
