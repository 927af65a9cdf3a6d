"""Runs in child processes, which are small programs here. Some of them fail."""

import contextlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from launch import runs as runs_lib
from tests.launch import light


def made(tmp_path, count=3):
  return [runs_lib.Run({'a': i}, {'seed': 0}, tmp_path / f'a={i}' / 'seed0') for i in range(count)]


def run_all(runs, program, jobs=1):
  """Runs `program`, Python code that gets the value `a` of its run as argument."""

  def arguments(run, shared):
    return ['-c', program, str(run.values['a'])]

  return list(runs_lib.run_all(runs, arguments, jobs))


def test_failures_are_explained_and_the_others_go_on(tmp_path):
  program = """
import os, signal, sys
place = int(sys.argv[1])
print('said', place, flush=True)
if place == 1:
  sys.exit('error: a learning rate is too large')
if place == 2:
  print('error: not the cause', file=sys.stderr)
  print('error: no data in x', file=sys.stderr)
  sys.exit(2)
if place == 3:
  os.kill(os.getpid(), signal.SIGKILL)
"""
  ended = run_all(made(tmp_path, 5), program)
  errors = [child.error for child, _ in ended]
  assert errors[0] is errors[4] is None
  log = tmp_path / 'a=1' / 'seed0.log'
  assert errors[1] == f'it ended with status 1; see {log}'
  assert errors[2] == 'no data in x'
  assert errors[3].startswith('it ended with SIGKILL, perhaps for want of mem')
  assert log.read_text().startswith('said 1\n')
  assert not (tmp_path / 'a=1' / 'seed0').exists()


def test_jobs_run_side_by_side(tmp_path):
  program = f"""
import pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
(folder / f'here{{sys.argv[1]}}').touch()
for _ in range(1000):
  if len(list(folder.glob('here*'))) >= 2:
    sys.exit()
  time.sleep(0.02)
sys.exit(1)
"""
  assert [c.error for c, _ in run_all(made(tmp_path, 2), program, 2)] == [None, None]


@pytest.mark.parametrize(
  ('jobs', 'shares'), [(1, [1] * 5), (2, [2, 2, 2, 2, 1]), (9, [5, 4, 3, 2, 1])]
)
def test_the_last_run_has_all_cores(tmp_path, jobs, shares):
  seen = []

  def arguments(run, shared):
    return seen.append(shared) or ['-c', '']

  assert len([*runs_lib.run_all(made(tmp_path, 5), arguments, jobs)]) == 5
  assert seen == shares


def test_the_first_run_that_succeeds_tells_how_many_fit(tmp_path, monkeypatch):
  seen = []
  monkeypatch.setattr(runs_lib, 'fitting', lambda size: seen.append(size) or 2)
  ended = run_all(made(tmp_path, 4), "import sys; sys.exit(sys.argv[1] == '0')", jobs=0)
  assert [limit for _, limit in ended] == [1, 2, 2, 2]
  [size] = seen
  assert size > 1e6


def test_as_many_run_as_there_are_cores_and_as_fit(monkeypatch):
  monkeypatch.setattr(runs_lib.pathlib.Path, 'exists', lambda path: False)
  monkeypatch.setattr(runs_lib.os, 'sched_getaffinity', lambda pid: range(8))
  monkeypatch.setattr(runs_lib.memory, 'free_bytes', lambda: 10e9)
  assert [runs_lib.fitting(size) for size in (2_000_000_000, 1000, 20_000_000_000)] == [4, 8, 1]
  assert [runs_lib.threads(n) for n in (1, 2, 3, 16)] == [None, 4, 2, 1]


_SWEEP = """
import pathlib, signal, sys
from launch import app
from launch import runs as training
root = pathlib.Path(sys.argv[1])
runs = [training.Run({'a': i}, {'seed': 0}, root / str(i) / 'seed0') for i in (0, 1)]
training._GRACE_SECONDS = float(sys.argv[3])
program, sys.argv = sys.argv[2], sys.argv[:1]
app.run(lambda _: [*training.run_all(
    runs, lambda run, n: ['-c', program, str(run.folder)], 2)], '')
"""
_SAVES = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
pathlib.Path(sys.argv[1] + '.pid').write_text('')
below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])
try:
  time.sleep(100)
except KeyboardInterrupt:
  pathlib.Path(sys.argv[1] + '.saved').write_text('')
  sys.exit(130)
"""
_STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1] + '.pid').write_text('')
time.sleep(100)
"""


@pytest.mark.parametrize(
  ('number', 'program', 'grace', 'status'),
  [
    (signal.SIGINT, _SAVES, 30, 130),
    pytest.param(signal.SIGTERM, _SAVES, 30, 143, marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, _STUBBORN, 1, 143, marks=pytest.mark.slow),
    (signal.SIGKILL, _SAVES, 30, -signal.SIGKILL),
  ],
  ids=['ctrl-c', 'term', 'stubborn', 'kill'],
)
def test_signals_leave_no_process(tmp_path, number, program, grace, status):
  # SIGINT is ignored, as in a script's background job, unless the test sends it.
  code = f"""
import os, signal, sys
ignored = {number != signal.SIGINT}
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, '-c', {_SWEEP!r}, *sys.argv[1:]])
"""
  sweep = subprocess.Popen(
    [sys.executable, '-c', code, str(tmp_path), program, str(grace)], cwd=light.ROOT
  )
  deadline = time.monotonic() + 30
  while len(list(tmp_path.glob('*/*.pid'))) < 2:
    assert time.monotonic() < deadline
    assert sweep.poll() is None
    time.sleep(0.02)
  time.sleep(0.2)
  below = psutil.Process(sweep.pid).children(recursive=True)
  assert len(below) == (4 if program is _SAVES else 2)
  direct = psutil.Process(sweep.pid).children()
  sweep.send_signal(number)
  assert sweep.wait(30) == status
  # If the sweep is killed, its grandchildren continue. TFF's worker ends by itself.
  expected = direct if number == signal.SIGKILL else below
  _, alive = psutil.wait_procs(expected, timeout=10)
  for process in below:
    with contextlib.suppress(psutil.NoSuchProcess):
      process.kill()
  assert not alive
  saved = len(list(tmp_path.glob('*/*.saved')))
  assert saved == (2 if program is _SAVES and status > 128 else 0)
