"""The processes of a node, found by a mark in their environment.

Every process that a node starts inherits the mark, also one whose parent was
killed or that made a session of its own, and no other process ever gets it. A
pid that the system gave to another process is therefore never taken for ours.
"""

import contextlib
import os
import time
from collections.abc import Collection

import psutil

from tff_xc import errors

MARK = 'TFF_XC_CLUSTER_NODE'
CLUSTER_MARK = 'TFF_XC_CLUSTER_FILES'


def marked(values: Collection[str], name: str = MARK) -> list[psutil.Process]:
  """Returns the living processes of this user with one of these marks."""
  return [p for p in psutil.process_iter() if is_marked(p, values, name)]


def is_marked(
  process: psutil.Process, values: Collection[str], name: str = MARK
) -> bool:
  """Whether a process lives, is of this user, and has one of these marks.

  One that was killed has none as soon as its memory is freed, before it has ended.
  """
  try:
    return process.environ().get(name) in values
  except (psutil.Error, OSError):  # It has ended, or is not ours.
    return False


def end(marks: Collection[str], leaders: Collection[int]) -> int:
  """Ends the processes with these marks; returns how many there were.

  The leaders, which end their own processes, get SIGTERM first, then what is
  left, which at last is killed.

  Args:
    marks: of the nodes.
    leaders: pids of the nodes' first processes; those that are not marked are
      not ours any more.

  Raises:
    errors.InputError: some do not end.
  """
  seen = set()
  steps = (
    ('terminate', True, 10.0),
    ('terminate', False, 3.0),
    ('kill', False, 10.0),
  )
  for step, leaders_only, seconds in steps:
    signalled = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (found := marked(marks)):
      seen |= {p.pid for p in found}
      chosen = [p for p in found if p.pid in leaders or not leaders_only]
      if not chosen:
        break
      for process in chosen:
        if process.pid not in signalled:
          signalled.add(process.pid)
          with contextlib.suppress(psutil.Error):  # It has ended.
            getattr(process, step)()
      time.sleep(0.1)
  if left := marked(marks):
    raise errors.InputError(
      f'{len(left)} processes do not end, although they were killed:'
      f' {", ".join(str(p.pid) for p in left)}'
    )
  return len(seen)


def program_path() -> str:
  """Returns $PYTHONPATH with this checkout first, for processes started here."""
  root = os.path.abspath(__file__)
  for _ in range(4):  # tff_xc/runtime/cluster/processes.py
    root = os.path.dirname(root)
  given = os.environ.get('PYTHONPATH')
  return os.pathsep.join([root, given] if given else [root])
