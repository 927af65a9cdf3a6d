"""A contender's process: it answers, fails in one sentence, and is ended."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch.benchmarks import contender as contender_lib
from launch.benchmarks import cpu
from launch.benchmarks.peers import protocol
from tests import processes
from tff_xc import errors

_PEERS = pathlib.Path(protocol.__file__).parent
_ROOT = pathlib.Path(__file__).parents[3]
_CHILD = """
import sys, os, time
sys.path.insert(0, sys.argv[1])
import protocol
class Contender:
  rounds = 0
  def run(self):
    self.rounds += 1
    print('a stray print', flush=True)
    time.sleep(0.02)
    if self.rounds == 2:
      {second}
  def report(self):
    return {{'check': {{'rounds': self.rounds}}, 'parts': {{'sleep': 0.02}}}}
def build():
  {build}
  return Contender()
protocol.serve(build)
"""


def make(second='pass', build='pass', timeout=30.0):
  return contender_lib.Contender(
    'fake',
    [
      *(sys.executable, '-c', _CHILD.format(second=second, build=build)),
      str(_PEERS),
    ],
    dict(os.environ),
    timeout,
  )


@pytest.fixture
def started(request):
  contender = make(*getattr(request, 'param', ()))
  contender.start()
  yield contender
  contender.end()


def test_it_answers_round_after_round_whatever_is_printed(started):
  replies = [started.round() for _ in range(3)]
  assert [r.check for r in replies] == [{'rounds': i} for i in (1, 2, 3)]
  assert all(0.02 <= r.seconds < 5 for r in replies)
  assert replies[0].parts == {'sleep': 0.02}
  assert 1e6 < replies[0].peak_bytes < 1e9


def test_it_uses_no_processor_while_idle_and_ends_when_told(started):
  started.round()
  pid = started._process.pid
  assert pid in [process.pid for process in cpu.tree(os.getpid())]
  before = cpu.tree_seconds(pid)
  time.sleep(0.3)
  assert cpu.tree_seconds(pid) - before < 0.05
  started.end()
  assert not processes.is_running(pid)
  started.end()


@pytest.mark.parametrize(
  ('second', 'expected'),
  [
    ('raise ValueError("no such luck")', 'ValueError: no such luck'),
    ('os._exit(7)', r'ended \(exit status 7\) during a round'),
    ('os.kill(os.getpid(), 9)', r'ended \(signal 9, Killed\) during a round'),
    ('sys.stderr.write("so long"); sys.stderr.flush(); os._exit(1)', 'so long'),
  ],
)
def test_a_child_that_fails_is_one_sentence(second, expected):
  contender = make(second)
  contender.start()
  contender.round()
  try:
    with pytest.raises(errors.InputError, match=expected) as e:
      contender.round()
    assert str(e.value).startswith('contender fake ')
  finally:
    contender.end()


def test_bad_input_of_a_child_comes_without_its_traceback():
  build = (
    'InputError = type("InputError", (Exception,), {}); raise InputError("no")'
  )
  contender = make(build=build)
  with pytest.raises(errors.InputError) as e:
    contender.start()
  contender.end()
  assert str(e.value) == 'contender fake failed while starting: no'


def test_a_child_that_hangs_is_given_up_and_killed_at_once():
  contender = make('time.sleep(600)', timeout=1.0)
  contender.start()
  contender.round()
  pid = contender._process.pid
  with pytest.raises(errors.InputError, match='not answer within 1 seconds'):
    contender.round()
  before = time.monotonic()
  contender.end()
  assert time.monotonic() - before < 5
  assert not processes.is_running(pid)


def test_a_program_that_is_not_there_is_one_sentence():
  contender = contender_lib.Contender('none', ['/nowhere/python'], {}, 5.0)
  with pytest.raises(errors.InputError, match='none does not start'):
    contender.start()
  contender.end()


def test_a_fresh_contender_is_a_new_process_every_round():
  fresh = contender_lib.FreshContender(make)
  fresh.start()
  assert [fresh.round().check['rounds'] for _ in range(2)] == [1, 1]
  fresh.end()


def test_a_contenders_own_processes_end_with_it():
  build = (
    'parent = os.getpid(); child = os.fork(); '
    'child or (protocol.die_with_parent(parent), time.sleep(20)); '
    'Contender.report = lambda self: {"check": {"child": child}}'
  )
  contender = make(build=build)
  contender.start()
  child = contender.round().check['child']
  assert processes.is_running(child)
  os.kill(contender._process.pid, signal.SIGKILL)
  try:
    assert processes.ends(child)
  finally:
    contender.end()


_PARENT = """
import os, signal, sys, time
# Started in the background, a process inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from tests.launch.benchmarks import test_contender
contender = test_contender.make('time.sleep(600)')
contender.start()
contender.round()
print(contender._process.pid, flush=True)
try:
  contender.round()
finally:
  contender.end()
"""


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGINT])
def test_children_end_with_their_parent(number):
  parent = subprocess.Popen(
    [sys.executable, '-c', _PARENT, str(_ROOT)],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  pid = int(parent.stdout.readline())
  assert processes.is_running(pid)
  time.sleep(0.2)
  parent.send_signal(number)
  parent.communicate(timeout=30)
  assert processes.ends(pid)


def test_a_tree_has_the_children_and_their_time():
  child = subprocess.Popen(
    [sys.executable, '-c', 'while True: pass'], stdin=subprocess.DEVNULL
  )
  try:
    before = cpu.usage()
    time.sleep(0.5)
    after = cpu.usage()
    assert child.pid in [process.pid for process in cpu.tree(os.getpid())]
    assert after.own - before.own > 0.1
    assert after.busy - before.busy > 0.1
    assert cpu.peak_bytes(os.getpid()) > cpu.peak_bytes(child.pid) > 1e6
  finally:
    child.kill()
    child.wait()
  assert cpu.peak_bytes(child.pid) == 0
