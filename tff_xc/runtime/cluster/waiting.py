"""Waits for Ray no longer than Ray's processes answer.

Ray itself waits without end for a process that lives and does not answer, and
Ctrl-C does not end it.
"""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

# Seconds between looks at who is waited for.
_LOOK_SECONDS = 10.0


def answered(call: Callable[[], Any], check: Callable[[], None]) -> Any:
  """Returns what a call returns.

  It runs on a thread of its own, which is left behind where this raises.

  Args:
    call: takes as long as it takes.
    check: raises if it need not be waited for any longer; asked every 10 s.

  Raises:
    Exception: what either raises.
  """
  running = _begin(call)
  while not _is_done(running, _LOOK_SECONDS):
    check()
  return running.result()


def ends(call: Callable[[], Any], seconds: float) -> bool:
  """Whether a call ends in time; its error is raised."""
  running = _begin(call)
  if not _is_done(running, seconds):
    return False
  running.result()
  return True


def _is_done(running: futures.Future, seconds: float) -> bool:
  """Waits at most so long; returns whether it is done."""
  return bool(futures.wait([running], seconds).done)


def _begin(call) -> futures.Future:
  """Starts a call on a thread that the process does not wait for at its end."""
  running = futures.Future()

  def run():
    try:
      running.set_result(call())
    except BaseException as e:
      running.set_exception(e)

  threading.Thread(target=run, daemon=True).start()
  return running
