"""Starts processes for tests, and checks whether processes end."""

import subprocess
import sys
import time

import psutil


def run(command, **more) -> subprocess.CompletedProcess:
  """Runs a command. Returns its exit status and its output as text.

  `more` are arguments of `subprocess.run`.
  """
  how = {'capture_output': True, 'text': True, 'check': False}
  return subprocess.run(command, **{**how, **more})


def python(*arguments, **more) -> subprocess.CompletedProcess:
  """Runs Python with these arguments; see `run`."""
  return run([sys.executable, *arguments], **more)


def is_running(pid: int) -> bool:
  """Whether a process exists and is not a zombie."""
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
