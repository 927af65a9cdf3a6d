"""The processes that a driver started end with the driver, and no other process ends."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from tests import processes
from tff_xc.runtime.cluster import guard

# This program ignores SIGTERM and runs in its own session.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
print('runs', flush=True)
time.sleep(600)
"""
# This driver waits until it is killed.
DRIVER = """
import subprocess, sys, time
guard = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE)
print(guard.pid, flush=True)
time.sleep(600)
"""


def start(script, *arguments, **variables):
  started = subprocess.Popen(
    [sys.executable, '-c', script, *arguments],
    env={**os.environ, **variables},
    stdout=subprocess.PIPE,
    text=True,
  )
  return started, started.stdout.readline().strip()


def ignores_sigterm(pid):
  status = pathlib.Path(f'/proc/{pid}/status').read_text()
  [ignored] = re.findall(r'SigIgn:\s+(\w+)', status)
  return int(ignored, 16) >> (signal.SIGTERM - 1) & 1


def test_all_that_has_the_mark_ends_with_a_killed_driver(tmp_path):
  mine, others = tmp_path / 'mine', tmp_path / 'others'
  for folder in (mine, others):
    (folder / 'ray').mkdir(parents=True)
  started, _ = start(STUBBORN, **{guard.VARIABLE: str(mine)})
  other, _ = start(STUBBORN, **{guard.VARIABLE: str(others)})
  driver, pid = start(DRIVER, guard.__file__, str(mine))
  try:
    while not ignores_sigterm(pid):  # The process is starting.
      time.sleep(0.05)
    os.kill(int(pid), signal.SIGTERM)  # A signal to all processes must not end the guard.
    assert processes.is_running(int(pid))
    assert [p.pid for p in guard.left(str(mine))] == [started.pid]
    driver.kill()
    driver.wait()
    assert processes.ends(int(pid))
    assert started.wait(10) == -9 and not mine.exists()
    assert other.poll() is None and others.exists()
  finally:
    for process in (started, other, driver):
      process.kill()
      process.communicate()
