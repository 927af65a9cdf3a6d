"""Trains planned runs, each in its own process, several at a time.

`launch.sweep` plans a run for each point of a grid, and `launch.reproduce` for each row of a
table.

If a run crashes, the other runs continue. When a run ends, its memory is free. Each child
process has its own process group, so Ctrl-C reaches only this process. This module then asks
the children to end, and gives them time. A second Ctrl-C, or killing this process, ends the
children at once.

A run that is interrupted between two rounds saves its state. Within a round, it cannot save
the state, because the round has overwritten it. The run then resumes from its last checkpoint.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tasks import registry as tasks
from tff_xc import errors, interrupts, lock, memory, wording
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.report import run_files

_ROOT = pathlib.Path(__file__).parents[1]
# The longest name of a run's directory. File systems allow 255 bytes, and the log's name is longer
# than the directory's name.
_LONGEST_NAME = 200
_POLL_SECONDS = 0.2
# A run may have to finish a round, an evaluation and a checkpoint before it ends.
_GRACE_SECONDS = 60.0
# Settings outside of the task's options that change the data.
_HELD_OUT = ('client_test_fraction', 'unseen_clients')
# The share of the free memory that parallel runs may use.
_MEMORY_SHARE = 0.8
# The child process executes this code, and then becomes the run, so no Python code runs between
# fork and exec. The code asks the system to kill the run when this process ends (1 is
# PR_SET_PDEATHSIG of <sys/prctl.h>). A killed run can resume.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
  os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep, or of a published table."""

  values: Mapping[str, Any]  # The settings of the grid point or of the table's row.
  config: Mapping[str, Any]  # The configuration from `configuration.resolve`.
  folder: pathlib.Path
  name: str = ''  # The printed name of the grid point or row; '': `values` are printed.

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def task(self) -> str:
    return self.config['task']

  @property
  def point(self) -> str:
    """The grid point as text: 'client_learning_rate=0.1 negatives=40'."""
    words = (f'{name}={text_of(value)}' for name, value in self.values.items())
    return self.name or ' '.join(words)


def text_of(value: bool | float | str) -> str:
  """Returns the value of a setting as it is written in a flag."""
  if isinstance(value, bool):
    return str(value).lower()
  return f'{value:.12g}' if isinstance(value, float) else str(value)


def folder_of(root: pathlib.Path, values: Mapping[str, Any], *first: str) -> pathlib.Path:
  """Returns the folder ROOT/FIRST_client_learning_rate=0.1_negatives=40.

  If a value has special characters, '-' replaces them, and the function appends a digest of the
  value. If the name is too long for file systems, the function cuts the name, and appends a digest
  of the whole name.
  """
  texts = {name: _of_value(text_of(value)) for name, value in values.items()}
  whole = '_'.join([*first, *(f'{name}={text}' for name, text in texts.items())])
  if len(whole) <= _LONGEST_NAME:
    return root / whole
  digest = _digest(whole)
  return root / f'{whole[: _LONGEST_NAME - len(digest) - 1]}_{digest}'


def _of_value(text: str) -> str:
  """Returns the text of a value without special characters; `_` becomes `-`."""
  plain = re.sub('[^A-Za-z0-9.+-]', '-', text)
  # Words such as fedaws_baseline1 need no digest. The files p_1.csv and p-1.csv do.
  same = text.replace('_', '-') if re.fullmatch(r'\w+', text) else text
  return plain if plain == same else f'{plain}-{_digest(text)}'


def _digest(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:12]


def seeds(text: str) -> list[int]:
  """Parses a text such as '0,1,2' into different seeds."""
  try:
    found = [int(part) for part in text.split(',')]
  except ValueError:
    found = []
  if not found or len(set(found)) < len(found):
    raise errors.InputError(f'--seeds={text}: expected different whole numbers, such as 0,1,2')
  return found


def train(
  runs: Sequence[Run], given: Mapping[str, Any], output: pathlib.Path, jobs: int
) -> dict[pathlib.Path, str]:
  """Trains the unfinished runs of a task; returns the reasons for failures, by folder."""
  waiting = [run for run in runs if not is_finished(run)]
  if waiting:
    check_files(runs[0].task, runs[0].config['data_dir'])
  with lock.lock(output, 'output'):
    check_data(runs)
    finished, total = len(runs) - len(waiting), wording.count(len(runs), 'run')
    print(f'{total} in {output}, {finished} of them finished', flush=True)
    failures, seconds = {}, []

    def arguments(run: Run, side_by_side: int) -> list[str]:
      return arguments_of(run, given, threads(side_by_side))

    try:
      with contextlib.closing(run_all(waiting, arguments, jobs)) as ended:
        for child, side_by_side in ended:
          finished, run = finished + 1, child.run
          if child.error:
            failures[run.folder] = child.error
            what = f'failed: {child.error}'
          else:
            seconds.append(child.seconds)
            what = f'{_score(run)}, {wording.human_duration(child.seconds)}'
          done, left = (f'finished {finished} of {len(runs)}', len(runs) - finished)
          if left and seconds:
            rest = -(-left // side_by_side) * statistics.median(seconds)
            done += f', about {wording.human_duration(rest)} left'
          print(f'{done}: {run.point} seed {run.seed}: {what}', flush=True)
          check_data(runs)  # A wrong --data_dir ends the sweep early.
    except KeyboardInterrupt:
      print('stopped; the same command goes on from here', flush=True)
      raise
  return failures


def is_finished(run: Run) -> bool:
  """Whether a run is finished. Refuses a directory that holds a different run."""
  same_run.check_config(run.folder, run.config)
  summary = run_files.read_summary(run.folder)
  return run_files.is_finished(run.config, summary)


def check_data(runs: Sequence[Run]) -> None:
  """Refuses runs that used different data although their task options are equal.

  Different task options, and different shares of held-out data, may change the data.
  """
  first: dict[str, tuple[Run, Mapping]] = {}
  for run in runs:
    if not run_files.is_run(run.folder):
      continue  # The run has not started yet.
    config = run_files.read_config(run.folder / run_files.CONFIG)
    settings = (config.get('options'), *(config.get(name) for name in _HELD_OUT))
    options = json.dumps(settings, sort_keys=True)
    data = config.get('data', {})
    other, expected = first.setdefault(options, (run, data))
    if told := same_run.differences(expected, data):
      raise errors.InputError(
        f'{other.folder} and {run.folder} are runs on different data: {told};'
        " move one of them away and train it again with the other's --data_dir,"
        ' or choose another --output'
      )


def check_files(task: str, data_dir: str) -> None:
  """Refuses a directory that does not have the data of the task."""
  if find := tasks.get(task).find:
    find(data_dir)


def arguments_of(run: Run, given: Mapping[str, Any], client_threads: int | None) -> list[str]:
  """Returns the arguments of Python that train a run. `given` has the settings of all runs."""
  changes = {**given, **run.values, 'seed': run.seed}
  if client_threads is not None:
    changes.setdefault('client_threads', client_threads)
  changes = {'task': run.task, 'algorithm': run.config['algorithm'], **changes}
  flags = [f'--{name}={value}' for name, value in changes.items()]
  return ['-m', 'launch.train', f'--run_dir={run.folder}', *flags]


def _score(run: Run) -> str:
  """Returns the final value of the headline metric as text."""
  final = run_files.read_summary(run.folder)['final']
  name = next((n for n in tasks.get(run.task).metrics if final.get(n) is not None), None)
  if name is None:
    return 'no score'
  metric, value = catalog.SCORES[name], final[name]
  is_share = metric.unit == 'fraction'
  return f'{metric.heading} ' + (f'{100 * value:.1f} %' if is_share else f'{value:.4f}')


class Child:
  """The process of one run. Its output goes to a log next to `run.folder`."""

  def __init__(self, run: Run, arguments: Sequence[str]):
    self.run = run
    self.error: str | None = None  # The reason for a failure, in one sentence.
    self.seconds = 0.0  # The duration of the run.
    self._log = run.folder.with_name(run.folder.name + '.log')
    self._log.parent.mkdir(parents=True, exist_ok=True)
    become = [sys.executable, '-I', '-S', '-c', _BECOME, str(os.getpid())]
    paths = [str(_ROOT), os.environ.get('PYTHONPATH')]
    with open(self._log, 'ab', opener=lock.regular) as log:
      self._log_start = log.tell()
      self._process = subprocess.Popen(
        [*become, sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, paths))},
      )
    self._started = time.monotonic()

  def has_ended(self) -> bool:
    """Whether the process has ended. Sets `seconds` and `error` if it has."""
    status = self._process.poll()
    if status is None:
      return False
    self.seconds = time.monotonic() - self._started
    if status:
      self.error = self._explained(status)
    return True

  def interrupt(self) -> None:
    """Asks the process to end. Between rounds, the process first saves its state."""
    if self._process.poll() is None:
      self._process.terminate()  # Background processes ignore SIGINT.

  def end(self, deadline: float) -> None:
    """Waits until `deadline` (of `time.monotonic`), and then kills the processes that still run."""
    with contextlib.suppress(subprocess.TimeoutExpired):
      self._process.wait(max(deadline - time.monotonic(), 0))
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()

  def _explained(self, status: int) -> str:
    text = self._log.read_bytes()[self._log_start :].decode(errors='replace')
    said = [line for line in text.splitlines() if line.startswith('error: ')]
    if status == 2 and said:
      return said[-1].removeprefix('error: ')
    how = signal.Signals(-status).name if status < 0 else f'status {status}'
    if -status == signal.SIGKILL:
      how += ', perhaps for want of memory'
    return f'it ended with {how}; see {self._log}'


def run_all(
  runs: Sequence[Run], arguments_of: Callable[[Run, int], Sequence[str]], jobs: int
) -> Iterator[tuple[Child, int]]:
  """Executes all runs in order, `jobs` at a time. 0: as many at a time as fit into memory.

  With 0, the first run executes alone. Then as many runs execute in parallel as there are
  cores, but only as many as fit into memory if each is as large as the first run.

  `arguments_of` receives a run and the number of runs that share the cores. If fewer runs are
  left, `arguments_of` receives the number of these runs. Yields every child that has ended, with
  the number of parallel runs. Closing the iterator ends all children.
  """
  waiting, running, limit = list(runs), [], jobs
  try:
    while waiting or running:
      while waiting and len(running) < (limit or 1):
        run = waiting.pop(0)
        shared = min(limit or 1, len(waiting) + 1)
        running.append(Child(run, arguments_of(run, shared)))
      time.sleep(_POLL_SECONDS)
      for child in [child for child in running if child.has_ended()]:
        running.remove(child)
        if not limit and not child.error:
          used = resource.getrusage(resource.RUSAGE_CHILDREN)
          limit = fitting(1024 * used.ru_maxrss)
        yield child, limit or 1
      interrupts.check()
  finally:
    for child in running:  # The children may save their states.
      child.interrupt()
    deadline = time.monotonic() + _GRACE_SECONDS
    for child in running:
      child.end(deadline)


def fitting(peak_bytes: int) -> int:
  """Returns the number of runs of this size to execute in parallel, which is at least one."""
  if pathlib.Path('/dev/nvidia0').exists():
    return 1  # Nothing tells how much GPU memory a run needs.
  cores = len(os.sched_getaffinity(0))
  usable = _MEMORY_SHARE * memory.free_bytes()
  return max(1, min(cores, int(usable / max(peak_bytes, 1))))


def threads(side_by_side: int) -> int | None:
  """Returns the number of clients that a run trains at a time; None: one per core."""
  cores = len(os.sched_getaffinity(0))
  return max(1, cores // side_by_side) if side_by_side > 1 else None
