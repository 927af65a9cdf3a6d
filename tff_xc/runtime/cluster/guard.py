"""Ends the Ray processes that a driver started, no matter how the driver ended.

  python guard.py FOLDER < PIPE

The driver has the other end of the pipe. The pipe closes when the driver ends or is killed.
Ray's main processes then end by themselves. Ray's agents would continue for a minute, so the
guard kills these agents. The guard recognizes Ray's processes by `VARIABLE` in their
environment. Finally, the guard removes the folder.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

import psutil

# This variable names the folder in the environment of every process that Ray starts.
VARIABLE = 'TFF_XC_RAY_FOLDER'


def left(folder: str) -> list[psutil.Process]:
  """Returns the running processes that belong to a folder."""
  found = []
  for process in psutil.process_iter():
    # The process may have ended, or belong to another user.
    with contextlib.suppress(psutil.Error, OSError):
      if process.environ().get(VARIABLE) == folder:
        found.append(process)
  return found


def main(folder: str) -> None:
  """Waits until the driver has ended, and then kills the remaining processes."""
  signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ignore a SIGTERM to all processes.
  os.read(sys.stdin.fileno(), 1)
  while processes := left(folder):
    for process in processes:
      with contextlib.suppress(psutil.Error):  # The process may have ended.
        process.kill()
    time.sleep(0.05)
  shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
  main(sys.argv[1])
