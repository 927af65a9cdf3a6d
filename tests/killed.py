"""Runs that kill themselves: python -m tests.killed DIRECTORY.

The program makes a run for each entry of `MOMENTS`, in a folder of DIRECTORY. `kill -9` ends the
run at that moment. Each run is a fork of this process, so that TensorFlow is imported once. This
process itself computes nothing, because a process cannot safely fork after TensorFlow has computed
something.

In further runs, clients keep states. These runs are killed at POINTS random moments, each before a
call that opens, renames or removes a file of the run. Each of these runs is killed once more while
it resumes. The last run finds that another process uses DIRECTORY/held.
"""

import contextlib
import os
import pathlib
import random
import signal
import sys

import tensorflow as tf

from tests import doubling
from tff_xc import errors
from tff_xc.experiment import checkpoints
from tff_xc.report import run_files


def kill():
  os.kill(os.getpid(), signal.SIGKILL)


def killing(function, is_it):
  """Wraps `function`: kills this process with -9 if `is_it` returns true for the arguments."""

  def wrapped(*args, **kwargs):
    if is_it(*args):
      kill()
    return function(*args, **kwargs)

  return wrapped


def evaluating(weights):
  """Returns a run that is killed while it evaluates these weights."""
  score = killing(doubling.score, lambda found: found == weights)
  return lambda path: doubling.run(path, evaluate=score)


def replacing(name, resumed=False):
  """Returns a run that is killed before a file of this name is in place.

  With `resumed`, the run is interrupted before, and killed after it resumes.
  """

  def run(path):
    if resumed:
      interrupted(path)
    os.replace = killing(os.replace, lambda old, new: new.name == name)
    doubling.run(path)

  return run


def interrupted(path):
  """Runs six rounds, and then interrupts the run."""
  with contextlib.suppress(KeyboardInterrupt):
    doubling.run(path, process=doubling.Doubling(interrupt_at=6))


def before_checkpoint(path, process=None):
  checkpoints.save = killing(checkpoints.save, lambda _, state, done, *more: done == 6)
  doubling.run(path, process=process)


def renaming_metrics(times):
  """Returns a run that is killed before it renames metrics.csv for the time number `times`."""

  def run(path):
    renamed = []

    def last_time(old, new):
      if os.fspath(new).endswith(run_files.METRICS):
        renamed.append(old)
      return len(renamed) == times

    tf.io.gfile.rename = killing(tf.io.gfile.rename, last_time)
    doubling.run(path)

  return run


def removing_old_events(path):
  interrupted(path)
  pathlib.Path.unlink = killing(
    pathlib.Path.unlink, lambda file: file.name.startswith('events.out.')
  )
  doubling.run(path)


MOMENTS = {
  'in_an_evaluation': evaluating(2**8),
  'between_row_and_checkpoint': before_checkpoint,
  'before_a_checkpoint_is_in_place': replacing('round_6.npz'),
  'before_the_columns_of_rounds_are_written': renaming_metrics(3),
  'while_events_are_written_anew': replacing('events.out.tfevents.0000000000.kept', True),
  'in_the_evaluation_before_round_1': evaluating(1),
  'before_the_columns_are_written': renaming_metrics(2),
  'before_the_summary_is_in_place': replacing(run_files.SUMMARY),
  'while_metrics_are_cut': replacing(run_files.METRICS, True),
  'while_old_events_are_removed': removing_old_events,
}


# What moments replace in this process.
PATCHED = (
  (os, 'replace'),
  (checkpoints, 'save'),
  (tf.io.gfile, 'rename'),
  (pathlib.Path, 'unlink'),
)
POINTS = 20
_CALLS = ('open', 'os.rename', 'os.remove', 'os.mkdir')


def counted(path, last=0):
  """Starts or resumes a run whose clients keep states.

  Args:
    path: the run's directory.
    last: kill the process before call number `last` (from 1) that concerns the run's files.
      With 0, the run is not killed, and the number of calls is written to DIRECTORY/calls.
  """
  calls = []

  def hook(event, arguments):
    if event in _CALLS and str(path) in str(arguments[0]):
      calls.append(event)
      if len(calls) == last:
        kill()

  sys.addaudithook(hook)
  doubling.run(path, process=doubling.Keeping())
  (path.parent / 'calls').write_text(str(len(calls)))


def killed_at_random(root):
  """Makes `POINTS` runs root/point_I. Returns what went wrong, or ''."""
  in_a_fork(counted, root / 'keeping')
  calls, draw = int((root / 'calls').read_text()), random.Random(0)
  points = draw.sample(range(1, calls + 1), POINTS)
  for i, point in enumerate(points):
    path = root / f'point_{i}'
    status = in_a_fork(lambda p, n=point: counted(p, n), path)
    if status != -signal.SIGKILL:
      return f'{path} ended with status {status}'
    # The resumed run makes fewer calls, so it may end before this call.
    again = draw.randint(1, calls)
    in_a_fork(lambda p, n=again: counted(p, n), path)
  return ''


def in_a_fork(function, path) -> int:
  """Runs `function` in a fork. Returns the exit status, which is negative after a signal."""
  child = os.fork()
  if not child:
    try:
      function(path)
    except errors.InputError as e:
      print(e, flush=True)
      os._exit(2)
    os._exit(0)
  return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == '__main__':
  root = pathlib.Path(sys.argv[1])
  for name, moment in MOMENTS.items():
    status = in_a_fork(moment, root / name)
    if status != -signal.SIGKILL:
      sys.exit(f'{name} ended with status {status}')
  if told := killed_at_random(root):
    sys.exit(told)
  sys.exit(in_a_fork(doubling.run, root / 'held'))
