"""Benchmarks: interleaved passes, wrong results, the report, and contenders' processes."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch import benchmark as harness
from launch.benchmarks.peers import protocol
from tests import processes
from tff_xc import errors

_ROOT = pathlib.Path(__file__).parents[3]
FAKE = harness.Benchmark(
  name='fake',
  summary='',
  sizes={},
  small={},
  names=('a', 'b'),
  ratios=(('b', 'a'), ('c', 'a')),
  same=('a', 'b', 'c'),
  tolerances={'loss': 0.1},
)


class Machine:
  """Simulates two cores and contenders (name, seconds of its rounds, loss)."""

  def __init__(self, monkeypatch, *contenders, foreign=()):
    self.now, self.foreign, self.order = 0.0, 0.0, []
    # The processor time of other processes in each successive round.
    self.later = dict(enumerate(foreign))
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    monkeypatch.setattr(time, 'monotonic', lambda: self.now)
    monkeypatch.setattr(harness, 'cpu_seconds', lambda: (self.now + self.foreign, self.now))
    self.contenders = {each[0]: Fake(self, *each) for each in contenders}

  def measure(self, passes):
    return harness.measure(FAKE, self.contenders, passes, 0.15)


class Fake:
  """A contender whose rounds take the given times in turn."""

  def __init__(self, machine, name, seconds, loss=1.0):
    self.machine, self.name, self.seconds, self.loss = machine, name, seconds, loss
    self.running = False

  def start(self):
    self.running = True

  def round(self):
    machine = self.machine
    seconds = self.seconds[machine.order.count(self.name) % len(self.seconds)]
    machine.foreign += machine.later.get(len(machine.order), 0)
    machine.order.append(self.name)
    machine.now += seconds
    return {
      'seconds': seconds,
      'check': {'loss': self.loss},
      'parts': {'half': seconds / 2},
      'peak_bytes': 1e6 * seconds,
    }

  def end(self):
    self.running = False


def test_ratios_are_of_passes_in_which_each_runs_once(monkeypatch):
  # In every second pass, the machine is ten times slower, and the ratio stays the same.
  machine = Machine(monkeypatch, ('a', [1.0, 10.0]), ('b', [2.0, 20.0, 2.0, 30.0], 1.05))
  found = machine.measure(12)
  passes = [machine.order[i : i + 2] for i in range(4, 28, 2)]
  assert [sorted(each) for each in passes] == [['a', 'b']] * 12
  assert ['a', 'b'] in passes and ['b', 'a'] in passes
  assert (found['ratios'], found['ranges']) == ({'b/a': 2.0}, {'b/a': [2, 3]})
  assert found['median_seconds']['a'] == 5.5
  assert found['parts']['a'] == {'half': 2.75}
  assert found['peak_mb'] == {'a': 10, 'b': 30}
  assert (found['passes'], found['dropped']) == (12, 0)
  assert not machine.contenders['a'].running


def test_a_disturbed_pass_is_dropped_and_repeated(monkeypatch):
  both = ('a', [1.0]), ('b', [1.0])
  # 15 % of 2 cores x 2 s are 0.6 s. Each contender has two rounds to warm up.
  found = Machine(monkeypatch, *both, foreign=[9.0, 9.0, 9.0, 9.0, 0.7, 0.0, 0.5]).measure(3)
  assert (found['passes'], found['dropped'], found['warnings']) == (3, 1, [])
  found = Machine(monkeypatch, both[0], foreign=[0.0, 0.0, 0.0] + 10 * [9.0]).measure(3)
  assert (found['passes'], found['dropped']) == (1, 8)
  assert 'only 1 of the 3' in found['warnings'][0]
  machine = Machine(monkeypatch, both[0], foreign=20 * [9.0])
  with pytest.raises(errors.InputError, match='disturbed'):
    machine.measure(3)
  assert not machine.contenders['a'].running


@pytest.mark.parametrize('loss', [2.0, float('nan')])
def test_another_result_is_a_warning_and_no_number(monkeypatch, loss):
  found = Machine(monkeypatch, ('a', [1.0]), ('b', [1.0], loss), ('c', [1.0])).measure(2)
  assert list(found['ratios']) == ['c/a']
  assert list(found['median_seconds']) == ['a', 'c']
  [warning] = found['warnings']
  assert warning.startswith('b ') and 'loss' in warning
  assert not FAKE.disagreeing({'a@1': {'loss': 1}, 'a@2': {'loss': 3}})


def test_ratios_are_at_each_size_and_to_the_first_one():
  assert FAKE.pairs(['a@5', 'b@5', 'b@9', 'c@9', 'a@9']) == [
    ('b@5', 'a@5'),
    ('b@9', 'a@9'),
    ('b@9', 'b@5'),
    ('c@9', 'a@9'),
    ('a@9', 'a@5'),
  ]


_CHILD = """
import sys, os, time
sys.path.insert(0, sys.argv[1])
import protocol
rounds = 0
def run():
  global rounds
  rounds += 1
  print('a stray print', flush=True)
  time.sleep(0.02)
  if rounds == 2:
    {second}
  return {{'check': lambda: {{'rounds': rounds}}}}
protocol.serve(lambda: run)
"""


def started(second, timeout=30.0):
  folder = str(pathlib.Path(protocol.__file__).parent)
  code = _CHILD.format(second=second)
  contender = harness.Contender('fake', [sys.executable, '-c', code, folder], timeout)
  contender.start()
  return contender


def test_a_contender_answers_whatever_is_printed():
  contender = started('pass')
  first, second = contender.round(), contender.round()
  assert (first['check'], second['check']) == ({'rounds': 1}, {})
  assert 0.02 <= second['seconds'] < 5
  assert 1e6 < first['peak_bytes'] < 1e9
  pid = contender._process.pid
  contender.end()
  assert not processes.is_running(pid)


@pytest.mark.parametrize(
  ('second', 'expected'),
  [
    ('raise ValueError("no such luck")', 'ValueError: no such luck'),
    ('os._exit(7)', 'exit status 7'),
    ('os.kill(os.getpid(), 9)', 'exit status -9'),
    ('sys.stderr.write("so long"); sys.stderr.flush(); os._exit(1)', 'so long'),
    ('time.sleep(600)', 'within 2 seconds'),
  ],
)
def test_a_contender_that_fails_is_one_sentence(monkeypatch, second, expected):
  monkeypatch.setattr(harness, '_GRACE_SECONDS', 0.2)
  contender = started(second)
  contender.round()
  contender._timeout = 2.0
  with pytest.raises(errors.InputError, match=expected) as e:
    contender.round()
  assert str(e.value).startswith('contender fake ')
  pid = contender._process.pid
  contender.end()
  assert not processes.is_running(pid)


_PARENT = """
from tests.launch.benchmarks import test_harness
contender = test_harness.started('time.sleep(600)')
contender.round()
print(contender._process.pid, flush=True)
contender.round()
"""


def test_a_contender_ends_with_its_parent():
  parent = subprocess.Popen(
    [sys.executable, '-c', _PARENT], cwd=_ROOT, stdout=subprocess.PIPE, text=True
  )
  pid = int(parent.stdout.readline())
  parent.send_signal(signal.SIGKILL)
  parent.communicate(timeout=30)
  assert processes.ends(pid)
