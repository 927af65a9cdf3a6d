"""Whether processes end, for tests that start some."""

import time

import psutil


def is_running(pid: int) -> bool:
  """Whether a process exists and is no zombie."""
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def ends(pid: int, seconds: float = 10.0) -> bool:
  """Whether a process ends within some seconds."""
  deadline = time.monotonic() + seconds
  while is_running(pid) and time.monotonic() < deadline:
    time.sleep(0.05)
  return not is_running(pid)
