"""Runs in child processes: here small programs that behave well and badly."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from launch.sweeps import plan
from launch.sweeps import training

ROOT = pathlib.Path(__file__).parents[3]


def made(tmp_path, count=3):
  return [
    plan.Run({'a': i}, {'seed': 0}, tmp_path / f'a={i}' / 'seed0')
    for i in range(count)
  ]


def run_all(runs, program, jobs=1):
  """Runs `program`, Python code that gets its run's place as argument."""
  arguments = lambda run, shared: ['-c', program, str(run.values['a'])]
  return list(training.run_all(runs, arguments, jobs))


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


def test_an_earlier_start_is_not_taken_for_the_cause(tmp_path):
  for said, told in (("print('error: first'); ", 'first'), ('', 'status 2')):
    program = f'import sys; {said}sys.exit(2)'
    [(child, _)] = run_all(made(tmp_path, 1), program)
    assert told in child.error


def test_a_log_that_is_a_link_is_refused(tmp_path):
  [run] = made(tmp_path, 1)
  run.folder.parent.mkdir()
  precious = tmp_path / 'precious'
  precious.touch()
  run.folder.with_name('seed0.log').symlink_to(precious)
  with pytest.raises(OSError, match='link'):
    run_all([run], 'print(1)')
  assert precious.read_text() == ''


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
  assert [c.error for c, _ in run_all(made(tmp_path, 2), program, 2)] == [
    None,
    None,
  ]


@pytest.mark.parametrize(
  ('jobs', 'shares'), [(1, [1] * 5), (2, [2, 2, 2, 2, 1]), (9, [5, 4, 3, 2, 1])]
)
def test_the_last_run_has_all_cores(tmp_path, jobs, shares):
  seen = []
  arguments = lambda run, shared: seen.append(shared) or ['-c', '']
  assert len([*training.run_all(made(tmp_path, 5), arguments, jobs)]) == 5
  assert seen == shares


@pytest.mark.slow
def test_the_first_run_tells_how_many_fit(tmp_path, monkeypatch):
  monkeypatch.setattr(training, '_MEMORY_SECONDS', 0)
  seen = []
  monkeypatch.setattr(
    training, 'fitting', lambda *sizes: seen.append(sizes) or 2
  )
  # The second run is large; the third ends before it does.
  program = f"""
import pathlib, sys, time
x, large = b'x', pathlib.Path({str(tmp_path)!r}) / 'large'
if sys.argv[1] == '1':
  x *= 200_000_000
  large.touch()
while sys.argv[1] == '2' and not large.exists():
  time.sleep(0.02)
time.sleep(3 if sys.argv[1] == '1' else 1)
"""
  ended = run_all(made(tmp_path, 3), program, jobs=0)
  assert [child.run.values['a'] for child, _ in ended] == [0, 2, 1]
  assert [limit for _, limit in ended] == [2, 2, 2]
  (alone, nobody), (largest, held), (still, none) = seen
  assert alone < 1e8
  # The large run has not ended, and counts; it holds what is not free.
  assert 2e8 < held <= largest < 4e8
  assert still >= largest
  assert nobody == none == 0


def test_as_many_run_as_there_are_cores_and_as_fit(monkeypatch):
  monkeypatch.setattr(training.pathlib.Path, 'exists', lambda path: False)
  monkeypatch.setattr(training.os, 'sched_getaffinity', lambda pid: range(8))
  monkeypatch.setattr(training.memory, 'free_bytes', lambda: 10e9)
  assert training.fitting(2_000_000_000, 0) == 4
  assert training.fitting(2_000_000_000, 5_000_000_000) == 6
  assert training.fitting(1000, 0) == 8
  assert training.fitting(20_000_000_000, 0) == 1
  assert [training.threads(n) for n in (1, 2, 3, 16)] == [None, 4, 2, 1]


_SWEEP = """
import pathlib, signal, sys
from launch import app
from launch.sweeps import plan, training
root = pathlib.Path(sys.argv[1])
runs = [plan.Run({'a': i}, {'seed': 0}, root / str(i) / 'seed0') for i in (0, 1)]
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
  # As in a background job of a script, SIGINT is ignored, unless it is tried.
  code = f"""
import os, signal, sys
ignored = {number != signal.SIGINT}
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, '-c', {_SWEEP!r}, *sys.argv[1:]])
"""
  sweep = subprocess.Popen(
    [sys.executable, '-c', code, str(tmp_path), program, str(grace)], cwd=ROOT
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
  # Nobody ends what is below a killed run; TFF's worker ends by itself.
  expected = direct if number == signal.SIGKILL else below
  _, alive = psutil.wait_procs(expected, timeout=10)
  for process in below:
    with contextlib.suppress(psutil.NoSuchProcess):
      process.kill()
  assert not alive
  saved = len(list(tmp_path.glob('*/*.saved')))
  assert saved == (2 if program is _SAVES and status > 128 else 0)
