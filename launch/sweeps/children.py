"""Runs the runs of a sweep, each in a process of its own, several at a time.

A run's memory is given back at its end, and a crash ends one run only. Children
are in process groups of their own, so that Ctrl-C reaches them through this
module, which gives them time to end; a kill of this process ends them, too, and so
does a second Ctrl-C. A run that is interrupted between rounds saves its state. One
that is interrupted within a round, as most are, has given its state away: it
resumes from its last checkpoint.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence

from launch.benchmarks import cpu
from launch.sweeps import plan
from tasks import registry as tasks
from tff_xc import errors
from tff_xc import interrupts
from tff_xc import lock
from tff_xc import memory

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


def check_data(task: str, data_dir: str) -> None:
  """Refuses a directory without the task's data, before N runs do.

  A process of its own looks, since readers of data import TensorFlow. Anything
  but missing data is left to the runs.

  Raises:
    errors.InputError: the data are not there.
  """
  if tasks.get(task).find is None:
    return
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


class Child:
  """The process of one run.

  Attributes:
    run: the run.
    error: why it failed, in one sentence; None while it runs or if it is done.
    seconds: from its start to its end.
    peak_bytes: peak memory, with its own children, as far as it was seen.
  """

  def __init__(self, run: plan.Run, arguments: Sequence[str]):
    """Starts `python ARGUMENTS`; its output goes to a file beside `run.folder`."""
    self.run, self.error = run, None
    self.seconds, self.peak_bytes = 0.0, 0
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
      self.peak_bytes = max(self.peak_bytes, cpu.peak_bytes(self._process.pid))
    status = self._process.poll()
    if status is None:
      return False
    self.seconds = time.monotonic() - self._started
    if status:
      self.error = self._explained(status)
    return True

  def held_bytes(self) -> int:
    """Returns the memory that it holds now, with its own children."""
    return cpu.resident_bytes(self._process.pid)

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
  on_end: Callable[[Child, int], None],
) -> None:
  """Runs all runs.

  Args:
    runs: in this order.
    arguments_of: run, number of runs that share the cores -> Python's arguments.
      The last runs count only themselves and those that start after them, since
      they may end alone; until then they crowd the others.
    jobs: runs side by side; 0: the first run runs alone, and the others as many
      at a time as there are cores and as fit the memory, each as large as the
      largest so far.
    on_end: called with every child that has ended, and the number of runs side
      by side.

  Raises:
    KeyboardInterrupt: after Ctrl-C, or SIGTERM to a command; the children have
      ended.
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
        on_end(child, limit)
      interrupts.check()
  finally:
    _end(running)


def fitting(peak_bytes: int, held_bytes: int) -> int:
  """Returns how many runs to run side by side, at least one.

  Args:
    peak_bytes: peak memory of a run.
    held_bytes: memory of the runs that are running, which is not free now, and
      will be used by them or their successors.
  """
  if pathlib.Path('/dev/nvidia0').exists():
    return 1  # TensorFlow takes all memory of a GPU.
  free = memory.free_bytes()
  cores = len(os.sched_getaffinity(0))
  usable = _MEMORY_SHARE * (free + held_bytes)
  return max(1, min(cores, int(usable / max(peak_bytes, 1))))


def threads(side_by_side: int) -> int | None:
  """Returns the clients that a run trains at a time; None: one for each core.

  It does not change results.
  """
  cores = len(os.sched_getaffinity(0))
  return max(1, cores // side_by_side) if side_by_side > 1 else None


def _environment() -> dict[str, str]:
  """Returns the environment in which children find this project."""
  paths = [str(_ROOT), os.environ.get('PYTHONPATH', '')]
  return {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, paths))}


def _end(children: Sequence[Child]) -> None:
  """Ends children, which may save their states first."""
  for child in children:
    child.interrupt()
  deadline = time.monotonic() + _GRACE_SECONDS
  for child in children:
    child.end(deadline)
