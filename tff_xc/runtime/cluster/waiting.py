"""Waits for Ray no longer than Ray's processes answer.

Ray itself waits without end for a process that lives and does not answer, and
Ctrl-C does not end it.
"""

import threading
from collections.abc import Callable
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
  thread, found = _begin(call)
  while True:
    thread.join(_LOOK_SECONDS)
    if not thread.is_alive():
      break
    check()
  if 'error' in found:
    raise found['error']
  return found['value']


def ends(call: Callable[[], Any], seconds: float) -> bool:
  """Whether a call ends in time; its error is raised."""
  thread, found = _begin(call)
  thread.join(seconds)
  if 'error' in found:
    raise found['error']
  return not thread.is_alive()


def _begin(call) -> tuple[threading.Thread, dict[str, Any]]:
  """Returns the thread of a call, and where its 'value' or 'error' will be."""
  found = {}

  def run():
    try:
      found['value'] = call()
    except BaseException as e:
      found['error'] = e

  thread = threading.Thread(target=run, daemon=True)
  thread.start()
  return thread, found
