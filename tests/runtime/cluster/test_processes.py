"""Only marked processes are found and ended, wherever they went."""

import os
import signal
import subprocess
import sys
import uuid

import psutil
import pytest

from tests import processes as alive
from tests.runtime.cluster import folders
from tff_xc.runtime.cluster import processes

SLEEP = 'import time; time.sleep(600)'
# This process's, since tests that run beside it look for theirs.
ONE, TWO = (f'{name}-{uuid.uuid4()}' for name in ('one', 'two'))


@pytest.fixture
def run():
  """Runs Python code in processes that end with the test."""
  made = []

  def start(code, **environment):
    process = subprocess.Popen(
      [sys.executable, '-c', code], env={**os.environ, **environment}
    )
    made.append(process)
    return process

  yield start
  for process in made:
    process.kill()
    process.wait()


def pids(*marks):
  return {p.pid for p in processes.marked(marks)}


def test_processes_are_found_by_their_mark(run):
  one = run(SLEEP, **{processes.MARK: ONE})
  run(SLEEP)
  two = run(SLEEP, **{processes.MARK: TWO})
  assert folders.wait(lambda: pids(ONE, TWO) == {one.pid, two.pid})
  assert pids(TWO) == {two.pid}
  assert pids(TWO[:-1]) == set()


def test_an_orphan_in_a_session_of_its_own_is_ended(run):
  leader = run(
    folders.NODE.replace('%s', 'pass').replace(
      "pathlib.Path(sys.argv[1]).write_text('a1')", ''
    ),
    **{processes.MARK: ONE},
  )
  assert folders.wait(lambda: len(pids(ONE)) == 2)
  [orphan] = pids(ONE) - {leader.pid}
  leader.send_signal(signal.SIGKILL)
  leader.wait()
  assert os.getsid(orphan) != os.getsid(0)
  assert processes.end([ONE], [leader.pid]) == 1
  assert alive.ends(orphan, 1)


def test_a_leader_ends_its_own_processes_before_anybody_else_does(
  run, tmp_path
):
  """The child writes which signal it got; SIGUSR1 is the leader's."""
  told = tmp_path / 'told'
  child = (
    'import signal, sys, pathlib, time\n'
    'def tell(number, _):\n'
    f'  pathlib.Path({str(told)!r}).write_text(str(number)); sys.exit()\n'
    'signal.signal(signal.SIGTERM, tell); signal.signal(signal.SIGUSR1, tell)\n'
    'print(1, flush=True); time.sleep(600)'
  )
  leader = (
    'import signal, subprocess, sys, time\n'
    f'c = subprocess.Popen([sys.executable, "-c", {child!r}],'
    ' stdout=subprocess.PIPE)\n'
    'c.stdout.readline()\n'
    'def end(*_):\n'
    '  c.send_signal(signal.SIGUSR1); c.wait(); sys.exit()\n'
    'signal.signal(signal.SIGTERM, end)\n'
    f'open({str(told) + ".ready"!r}, "w").close(); time.sleep(600)'
  )
  first = run(leader, **{processes.MARK: ONE})
  assert folders.wait((tmp_path / 'told.ready').exists)
  assert processes.end([ONE], [first.pid]) == 2
  assert told.read_text() == str(int(signal.SIGUSR1))


def test_what_ignores_sigterm_or_is_stopped_is_killed(run, monkeypatch):
  ignores = run(
    f'import signal, time; {folders.IGNORES}; print(1); time.sleep(600)',
    **{processes.MARK: ONE},
  )
  stopped = run(SLEEP, **{processes.MARK: ONE})
  assert folders.wait(lambda: len(pids(ONE)) == 2)
  stopped.send_signal(signal.SIGSTOP)
  assert processes.end([ONE], []) == 2
  assert ignores.wait(1) and stopped.wait(1)


def test_a_pid_that_became_another_process_is_left_alone(run):
  other = run(SLEEP)
  assert processes.end([ONE], [other.pid]) == 0
  assert psutil.pid_exists(other.pid) and other.poll() is None


def test_started_programs_find_this_checkout_first(monkeypatch):
  monkeypatch.setenv('PYTHONPATH', '/a:/b')
  first, *rest = processes.program_path().split(':')
  assert rest == ['/a', '/b']
  assert os.path.isfile(os.path.join(first, 'tff_xc', '__init__.py'))
