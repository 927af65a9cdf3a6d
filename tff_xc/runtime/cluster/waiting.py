"""Waits for Ray no longer than Ray's processes answer.

Ray itself waits without end for a process that lives and does not answer, and
Ctrl-C does not end it.
"""

import collections
import functools
import queue
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

# Seconds between looks at who is waited for.
_LOOK_SECONDS = 10.0
# The calls of threads that wait for one: Ray sets up each thread that calls it.
_idle: collections.deque[queue.SimpleQueue] = collections.deque()


def answered(call: Callable[[], Any], check: Callable[[], None]) -> Any:
  """Returns what a call returns.

  It runs on another thread, which is left behind where this raises.

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
  try:
    calls = _idle.pop()
  except IndexError:
    calls = queue.SimpleQueue()
    threading.Thread(target=_serve, args=[calls], daemon=True).start()
  running = futures.Future()
  calls.put((call, running))
  return running


def _serve(calls: queue.SimpleQueue) -> None:
  """Makes a thread's calls, one after another."""
  while True:
    call, running = calls.get()
    try:
      finish = functools.partial(running.set_result, call())
    except BaseException as e:
      finish = functools.partial(running.set_exception, e)
    _idle.append(calls)  # The next call finds this thread.
    finish()
    del call, running, finish  # They hold what was returned.
