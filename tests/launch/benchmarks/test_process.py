"""A contender's process: it answers, fails in one sentence, and is ended."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch.benchmarks import catalog
from launch.benchmarks import cpu
from launch.benchmarks import process as process_lib
from launch.benchmarks.peers import protocol
from tests import processes
from tff_xc import errors

_PEERS = pathlib.Path(protocol.__file__).parent
_ROOT = pathlib.Path(__file__).parents[3]
_CHILD = """
import sys, os, time
sys.path.insert(0, sys.argv[1])
import protocol
rounds = 0
def check():
  return {{'rounds': rounds}}
def run():
  global rounds
  rounds += 1
  print('a stray print', flush=True)
  time.sleep(0.02)
  if rounds == 2:
    {second}
  return {{'check': check, 'parts': {{'sleep': 0.02}}}}
def build():
  {build}
  return run
protocol.serve(build)
"""


def make(second='pass', build='pass', timeout=30.0, is_fresh=False):
  code = _CHILD.format(second=second, build=build)
  command = [sys.executable, '-c', code, str(_PEERS)]
  return process_lib.Contender(
    'fake', command, dict(os.environ), timeout, is_fresh
  )


@pytest.fixture
def made():
  """`make`, whose contender is ended after the test."""
  all_made = []

  def make_one(*arguments, **options):
    all_made.append(make(*arguments, **options))
    return all_made[-1]

  yield make_one
  for contender in all_made:
    contender.end()


def test_it_answers_round_after_round_whatever_is_printed(made):
  contender = made()
  contender.start()
  first, second = (contender.round() for _ in range(2))
  assert (first.check, second.check) == ({'rounds': 1}, {})
  assert 0.02 <= second.seconds < 5
  assert first.parts == {'sleep': 0.02}
  assert 1e6 < first.peak_bytes < 1e9
  # It uses no processor while idle, and ends when told.
  pid = contender._process.pid
  assert pid in [process.pid for process in cpu.tree(os.getpid())]
  before = cpu.tree_seconds(pid)
  time.sleep(0.3)
  assert cpu.tree_seconds(pid) - before < 0.05
  contender.end()
  assert not processes.is_running(pid)


@pytest.mark.parametrize(
  ('second', 'expected'),
  [
    ('raise ValueError("no such luck")', 'ValueError: no such luck'),
    ('os._exit(7)', r'exit status 7'),
    ('os.kill(os.getpid(), 9)', r'signal 9'),
    ('sys.stderr.write("so long"); sys.stderr.flush(); os._exit(1)', 'so long'),
  ],
)
def test_a_child_that_fails_is_one_sentence(made, second, expected):
  contender = made(second)
  contender.start()
  contender.round()
  with pytest.raises(errors.InputError, match=expected) as e:
    contender.round()
  assert str(e.value).startswith('contender fake ')


def test_bad_input_of_a_child_comes_without_its_traceback(made):
  build = (
    'InputError = type("InputError", (Exception,), {}); raise InputError("no")'
  )
  with pytest.raises(errors.InputError, match=r'starting: no$'):
    made(build=build).start()


def test_a_child_that_hangs_is_given_up_and_killed_at_once(made):
  contender = made('time.sleep(600)', timeout=1.0)
  contender.start()
  contender.round()
  pid = contender._process.pid
  with pytest.raises(errors.InputError, match='within 1 seconds'):
    contender.round()
  before = time.monotonic()
  contender.end()
  assert time.monotonic() - before < 5
  assert not processes.is_running(pid)


def test_a_program_that_is_not_there_is_one_sentence():
  contender = process_lib.Contender('none', ['/nowhere/python'], {}, 5.0)
  with pytest.raises(errors.InputError, match='none does not start'):
    contender.start()
  contender.end()


def test_a_fresh_contender_is_a_new_process_every_round(made):
  fresh = made(is_fresh=True)
  fresh.start()
  assert [fresh.round().check['rounds'] for _ in range(2)] == [1, 1]
  assert fresh._process is None


def test_a_contenders_own_processes_end_with_it(made):
  build = (
    'global rounds; parent = os.getpid(); rounds = os.fork(); '
    'rounds or (protocol.die_with_parent(parent), time.sleep(20))'
  )
  contender = made(build=build)
  contender.start()
  child = contender.round().check['rounds'] - 1
  assert processes.is_running(child)
  os.kill(contender._process.pid, signal.SIGKILL)
  assert processes.ends(child)


_PARENT = """
import os, signal, sys, time
# Started in the background, a process inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from tests.launch.benchmarks import test_process
contender = test_process.make('time.sleep(600)')
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


def test_a_peer_runs_at_every_size_if_its_interpreter_is_given():
  benchmark = catalog.get('bottleneck')
  names = benchmark.peers(benchmark.settings(num_classes=(5, 9)))
  made = process_lib.peer_contenders(names, {'pfl_torch': 'py'}, 'a.npz', 1.0)
  assert list(made) == ['pfl_torch@5', 'pfl_torch@9']
  program, path, *rest = made['pfl_torch@9']._command
  assert program == 'py' and path.endswith('/peers/pfl_torch.py')
  assert rest == ['a.npz', '9']
