"""Trains planned runs, each in a process of its own, several at a time.

A run's memory is given back at its end, and a crash ends one run only. Children
are in process groups of their own, so that Ctrl-C reaches them through this
module, which gives them time to end; a kill of this process ends them, too, and so
does a second Ctrl-C. A run that is interrupted between rounds saves its state. One
that is interrupted within a round, as most are, has given its state away: it
resumes from its last checkpoint.
"""

import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch import machine
from launch.sweeps import plan
from tasks import registry as tasks
from tff_xc import errors
from tff_xc import interrupts
from tff_xc import lock
from tff_xc import memory
from tff_xc import wording
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.report import run_files

_ROOT = pathlib.Path(__file__).parents[2]
_POLL_SECONDS = 0.2
# Looking for all processes of a run takes milliseconds.
_MEMORY_SECONDS = 1.0
# A round, an evaluation and a checkpoint may have to end first.
_GRACE_SECONDS = 60.0
# The share of the free memory that runs side by side may take.
_MEMORY_SHARE = 0.8
# This code becomes the run: no Python runs between fork and exec. 1 is
# PR_SET_PDEATHSIG of <sys/prctl.h>; a killed run resumes.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
  os.execv(sys.argv[2], sys.argv[2:])
"""
_FIND = """
import sys
from tasks import registry
from tff_xc import errors
try:
  registry.get(sys.argv[1]).find(sys.argv[2])
except errors.InputError as e:
  print(e)
  sys.exit(2)
"""


def train(
  runs: Sequence[plan.Run],
  given: Mapping[str, Any],
  output: pathlib.Path,
  jobs: int,
) -> dict[pathlib.Path, str]:
  """Trains what is not finished of the runs of a task; returns why some failed, by folder."""
  waiting = [run for run in runs if not is_finished(run)]
  if waiting:
    check_files(*(runs[0].config[name] for name in ('task', 'data_dir')))
  with lock.lock(output, 'output'):
    check_data(runs)
    finished, total = len(runs) - len(waiting), wording.count(len(runs), 'run')
    print(f'{total} in {output}, {finished} of them finished', flush=True)
    failures, seconds = {}, []
    arguments = lambda run, count: arguments_of(run, given, threads(count))
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
          done, left = (
            f'finished {finished} of {len(runs)}',
            len(runs) - finished,
          )
          if left and seconds:
            rest = -(-left // side_by_side) * statistics.median(seconds)
            done += f', about {wording.human_duration(rest)} left'
          print(f'{done}: {run.point} seed {run.seed}: {what}', flush=True)
          check_data(runs)  # A wrong --data_dir ends the sweep early.
    except KeyboardInterrupt:
      print('stopped; the same command goes on from here', flush=True)
      raise
  return failures


def is_finished(run: plan.Run) -> bool:
  """Whether a run is finished; refuses a directory that holds another run."""
  same_run.check_config(run.folder, run.config)
  summary = run_files.read_summary(run.folder)
  return run_files.is_finished(run.config, summary)


def check_data(runs: Sequence[plan.Run]) -> None:
  """Refuses runs of equal options, which may change data, that were on different data."""
  first: dict[str, tuple[plan.Run, Mapping]] = {}
  for run in runs:
    if not run_files.is_run(run.folder):
      continue  # It has not begun.
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


def check_files(task: str, data_dir: str) -> None:
  """Refuses a directory without the task's data, before N runs do."""
  if tasks.get(task).find is None:
    return
  # Readers of data import TensorFlow. All but missing data is left to the runs.
  looked = subprocess.run(
    [sys.executable, '-c', _FIND, task, data_dir],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    env=_environment(),
    check=False,
  )
  if looked.returncode == 2 and looked.stdout:
    raise errors.InputError(looked.stdout.strip().splitlines()[-1])


def arguments_of(
  run: plan.Run, given: Mapping[str, Any], client_threads: int | None
) -> list[str]:
  """Returns Python's arguments that train a run, with the settings of all runs."""
  changes = {**given, **run.values, 'seed': run.seed}
  if client_threads is not None:
    changes.setdefault('client_threads', client_threads)
  return [
    *('-m', 'launch.train', f'--run_dir={run.folder}'),
    *(f'--{name}={run.config[name]}' for name in ('task', 'algorithm')),
    *(f'--{name}={value}' for name, value in changes.items()),
  ]


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


class Child:
  """The process of one run; its output goes to a file beside `run.folder`."""

  def __init__(self, run: plan.Run, arguments: Sequence[str]):
    self.run = run
    self.error: str | None = None  # Why it failed, in one sentence.
    self.seconds = 0.0  # From its start to its end.
    self.peak_bytes = 0  # With its own children, as far as it was seen.
    self._log = run.folder.with_name(run.folder.name + '.log')
    self._log.parent.mkdir(parents=True, exist_ok=True)
    with open(self._log, 'ab', opener=lock.regular) as log:
      self._log_start = log.tell()
      self._process = subprocess.Popen(
        [
          *(sys.executable, '-I', '-S', '-c', _BECOME, str(os.getpid())),
          *(sys.executable, *arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=_environment(),
      )
    self._started = self._looked = time.monotonic()

  def has_ended(self) -> bool:
    """Whether it has ended; fills the attributes."""
    now = time.monotonic()
    if now - self._looked >= _MEMORY_SECONDS:
      self._looked = now
      self.peak_bytes = max(
        self.peak_bytes, machine.peak_bytes(self._process.pid)
      )
    status = self._process.poll()
    if status is None:
      return False
    self.seconds = time.monotonic() - self._started
    if status:
      self.error = self._explained(status)
    return True

  def held_bytes(self) -> int:
    """Returns the memory that it holds now, with its own children."""
    return machine.resident_bytes(self._process.pid)

  def interrupt(self) -> None:
    """Lets it end, and save its state if it has one, as between rounds."""
    if self._process.poll() is None:
      self._process.terminate()  # In the background, SIGINT is ignored.

  def end(self, deadline: float) -> None:
    """Waits until `deadline`, of `time.monotonic`, and kills what is left."""
    with contextlib.suppress(subprocess.TimeoutExpired):
      self._process.wait(max(deadline - time.monotonic(), 0))
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()

  def _explained(self, status: int) -> str:
    with open(self._log, 'rb') as log:
      log.seek(self._log_start)
      lines = log.read().decode(errors='replace').splitlines()
    said = [line for line in lines if line.startswith('error: ')]
    if status == 2 and said:
      return said[-1].removeprefix('error: ')
    how = f'status {status}'
    if status < 0:
      how = signal.Signals(-status).name
    if -status == signal.SIGKILL:
      how += ', perhaps for want of memory'
    return f'it ended with {how}; see {self._log}'


def run_all(
  runs: Sequence[plan.Run],
  arguments_of: Callable[[plan.Run, int], Sequence[str]],
  jobs: int,
) -> Iterator[tuple[Child, int]]:
  """Runs all runs in order, `jobs` side by side; 0: as many as fit the memory.

  With 0 the first run runs alone, and the others as many at a time as there are cores
  and as fit, each as large as the largest so far. `arguments_of` gets the number of
  runs that share the cores, of which the last count only those that start after them.
  Yields every child that has ended, with the number side by side; ends all if closed.
  """
  waiting, running, limit = list(runs), [], jobs or 1
  largest = 0
  try:
    while waiting or running:
      while waiting and len(running) < limit:
        run = waiting.pop(0)
        shared = min(limit, len(waiting) + 1)
        running.append(Child(run, arguments_of(run, shared)))
      time.sleep(_POLL_SECONDS)
      for child in [child for child in running if child.has_ended()]:
        running.remove(child)
        seen = (child.peak_bytes, *(other.peak_bytes for other in running))
        largest = max(largest, *seen)
        if not jobs and not child.error:
          limit = fitting(largest, sum(c.held_bytes() for c in running))
        yield child, limit
      interrupts.check()
  finally:
    for child in running:  # They may save their states first.
      child.interrupt()
    deadline = time.monotonic() + _GRACE_SECONDS
    for child in running:
      child.end(deadline)


def fitting(peak_bytes: int, held_bytes: int) -> int:
  """Returns how many runs to run side by side, at least one."""
  if pathlib.Path('/dev/nvidia0').exists():
    return 1  # How much of a GPU's memory a run takes is not known.
  cores = len(os.sched_getaffinity(0))
  # What running runs hold is not free, and they or their successors will use it.
  usable = _MEMORY_SHARE * (memory.free_bytes() + held_bytes)
  return max(1, min(cores, int(usable / max(peak_bytes, 1))))


def threads(side_by_side: int) -> int | None:
  """Returns the clients that a run trains at a time; None: one for each core."""
  cores = len(os.sched_getaffinity(0))
  return max(1, cores // side_by_side) if side_by_side > 1 else None


def _environment() -> dict[str, str]:
  """Returns the environment in which children find this project."""
  paths = [str(_ROOT), os.environ.get('PYTHONPATH', '')]
  return {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, paths))}
