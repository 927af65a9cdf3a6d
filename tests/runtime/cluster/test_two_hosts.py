"""A cluster of two hosts: equal digits, faults of the network, and strangers.

The hosts are Linux namespaces of this machine, for root only, joined by a switch. They
share no file but what a user copies, have no name that resolves, and reach nothing else.
A host has an address, a name, processes, /tmp and /dev/shm of its own. Its first process
ends with this one: then the kernel ends all processes of the host and removes its network.
"""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from tests import processes
from tests.launch import light
from tests.runtime.cluster import folders
from tests.runtime.cluster import test_ray_rounds
from tff_xc.report import run_files
from tff_xc.runtime.cluster import state

pytest.importorskip('ray', reason='Ray is not installed: make venv-cluster')
_PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])
_NEW = (
  *('unshare', '--net', '--mount', '--uts', '--pid', '--fork'),
  *('--kill-child', '--mount-proc'),
)
# Waits for the end of stdin; the kernel forgets orphans that have ended.
_WAIT = 'exec env --ignore-signal=CHLD cat'
_OF_THIS_MACHINE = (
  'TFF_XC_CACHE',
  'TFF_XC_CLUSTER',
  'TMPDIR',
  'XDG_STATE_HOME',
)


def missing() -> str:
  """Returns why hosts cannot be made here, or ''."""
  if sys.platform != 'linux' or os.geteuid() != 0:
    return 'only root of a Linux machine can make network namespaces'
  for program in ('ip', 'unshare', 'nsenter'):
    if not shutil.which(program, path=_PATH):
      return f'{program} is not installed'
  made = processes.run([*_NEW, 'true'])
  return f'no namespaces here: {made.stderr}' if made.returncode else ''


class _First:
  """The first process of a set of namespaces, which ends with this one."""

  def __init__(self, script: str):
    self._made = subprocess.Popen(
      [*_NEW, 'sh', '-c', f'{script} && echo runs && {_WAIT}'],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
    )
    try:
      assert self._made.stdout.readline() == b'runs\n'
      [child] = psutil.Process(self._made.pid).children()
    except BaseException:
      self.end()
      raise
    self.pid = child.pid

  def end(self) -> None:
    """Ends all processes of the namespaces at once; their network is gone."""
    with self._made:
      self._made.kill()


class Host:
  """One host."""

  def __init__(self, name: str, tmp: pathlib.Path, ip: str, switch: _First):
    self.name, self.tmp, self.ip = name, tmp, ip
    self._switch = switch
    (tmp / 'home').mkdir(parents=True)
    self.start()

  def start(self) -> None:
    """Starts it, again after its power was cut; its disk is as it was."""
    self._first = _First(_script(self.name, self.tmp))
    here, there = str(self._first.pid), str(self._switch.pid)
    try:
      _call(
        *('ip', 'link', 'add', 'name', 'eth0', 'netns', here, 'type', 'veth'),
        *('peer', 'name', self.name, 'netns', there),
      )
      # Many hosts have a second address that is the same on all, of Docker's.
      _ip(self._first, 'addr', 'add', '172.17.0.1/16', 'dev', 'eth0')
      _ip(self._first, 'addr', 'add', f'{self.ip}/24', 'dev', 'eth0')
      for device in ('lo', 'eth0'):
        _ip(self._first, 'link', 'set', device, 'up')
      _ip(self._switch, 'link', 'set', 'dev', self.name, 'master', 'switch')
      self.plug_cable()
    except BaseException:
      self.end()
      raise

  def command(self, *command: str) -> list[str]:
    """Returns the command that runs a command on this host."""
    return [
      *('nsenter', f'--target={self._first.pid}', '--net', '--mount', '--uts'),
      *('--pid', 'env', f'--chdir={light.ROOT}'),
      *(f'--unset={name}' for name in _OF_THIS_MACHINE),
      *('HOME=/tmp/home', f'PATH={_PATH}', *command),
    ]

  def run(
    self, *arguments: str, status: int = 0, seconds: int = 300
  ) -> subprocess.CompletedProcess:
    """Runs `python -m ARGUMENTS` here to its end."""
    # What is killed from outside would live on within.
    limit = ('timeout', '--kill-after=5', str(seconds))
    done = processes.run(self.command(*limit, sys.executable, '-m', *arguments))
    assert done.returncode == status, (done.stdout, done.stderr)
    return done

  def pull_cable(self) -> None:
    """Pulls the cable out at the switch."""
    _ip(self._switch, 'link', 'set', 'dev', self.name, 'down')

  def plug_cable(self) -> None:
    _ip(self._switch, 'link', 'set', 'dev', self.name, 'up')

  def cut_power(self) -> None:
    """Ends all processes at once, and no packet says so; the disk is kept."""
    _ip(self._switch, 'link', 'del', 'dev', self.name)
    self._first.end()

  def end(self) -> None:
    self._first.end()


@contextlib.contextmanager
def two(folder: pathlib.Path) -> Iterator[tuple[Host, Host]]:
  """Yields two hosts at a switch, with the addresses 10.77.0.1 and 10.77.0.2."""
  with contextlib.ExitStack() as stack:
    switch = _First('ip link add switch type bridge && ip link set switch up')
    stack.callback(switch.end)
    hosts = []
    for number, name in enumerate('ab', 1):
      host = Host(name, folder / name, f'10.77.0.{number}', switch)
      stack.callback(host.end)
      hosts.append(host)
    yield tuple(hosts)


def _ip(first: _First, *arguments: str) -> None:
  _call('nsenter', f'--target={first.pid}', '--net', 'ip', *arguments)


def _call(*command: str) -> None:
  subprocess.run(command, env={**os.environ, 'PATH': _PATH}, check=True)


def _script(name: str, tmp: pathlib.Path) -> str:
  """Returns what sets up a host."""
  lines = [f'hostname {name}', 'mount -t tmpfs none /dev/shm']
  for needed in {str(light.ROOT), sys.prefix, sys.base_prefix}:
    if needed.startswith('/tmp/'):
      seen = shlex.quote(str(tmp / needed.removeprefix('/tmp/')))
      lines.append(f'mkdir -p {seen}')
      lines.append(f'mount --bind {shlex.quote(needed)} {seen}')
  lines += [
    f'mount --rbind {shlex.quote(str(tmp))} /tmp',
  ]
  return ' && '.join(lines)


_MISSING = missing()
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(bool(_MISSING), reason=_MISSING),
]

# As a host sees them.
FOLDER = '/tmp/home/.local/state/tff_xc/cluster'
WORKER = ('launch.workers', 'start', '--workers=1', '--threads=1')
JOIN = (*WORKER, '--join=/tmp/home/join.json')


@pytest.fixture(name='pair')
def _pair(tmp_path):
  """Two hosts, of which nothing is left after the test."""
  with two(tmp_path) as pair:
    yield pair


def outside(host, path):
  """Returns where a file that a host has under /tmp is for this process."""
  return host.tmp / pathlib.Path(path).relative_to('/tmp')


def start(a, b, *more):
  """Starts the head on `a`, and lets `b` join as the head's command says."""
  told = a.run(*WORKER, f'--listen={a.ip}', *more).stdout
  assert f'scp root@{a.ip}:{FOLDER}/{state.JOIN} {state.JOIN}' in told
  assert f'launch.workers start --join={state.JOIN}' in told
  shutil.copy(outside(a, f'{FOLDER}/{state.JOIN}'), b.tmp / 'home')
  b.run(*JOIN, '--data_dir=/tmp')  # Procedural data, which b makes itself.


@contextlib.contextmanager
def driving(host, program, *arguments):
  """Yields a program of these tests, run on a host, that talks by lines."""
  module = f'tests.runtime.cluster.{program}'
  errors = host.tmp / 'errors'
  with (
    errors.open('w') as file,
    subprocess.Popen(
      host.command(sys.executable, '-m', module, *arguments),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=file,
      text=True,
    ) as driver,
  ):
    timer = threading.Timer(900, host.end)  # Rather than wait without end.
    timer.start()
    try:
      yield driver
    finally:
      timer.cancel()
      driver.kill()


def go_on(driver):
  driver.stdin.write('\n')
  driver.stdin.flush()


def answer(driver, host):
  line = driver.stdout.readline()
  assert line, (host.tmp / 'errors').read_text()
  return json.loads(line)


def test_a_run_over_two_hosts_has_the_numbers_of_one_process(pair):
  a, b = pair
  start(a, b)
  train = (
    *('launch.train', '--task=glyphs', '--algorithm=fedss'),
    *('--clients_per_round=40', '--rounds=2', '--eval_every=1'),
  )
  runs = [(a, 'one', ())]
  runs += [(host, 'two', ('--runtime=cluster',)) for host in pair]
  found, weights = [], []
  for host, name, more in runs:
    host.run(*train, f'--run_dir=/tmp/{name}', *more)
    found.append(run_files.read_run(host.tmp / name).metrics)
    with np.load(host.tmp / name / 'checkpoints' / 'round_2.npz') as file:
      weights.append(dict(file))
  for metrics, arrays in zip(found[1:], weights[1:], strict=True):
    assert list(metrics['workers'].iloc[1:]) == [2, 2]
    assert not metrics['workers_lost'].iloc[1:].any()
    same = metrics.drop(columns=test_ray_rounds.OWN)
    assert same.assign(seconds=found[0]['seconds']).equals(found[0])
    assert arrays.keys() == weights[0].keys()
    for name, value in arrays.items():
      assert np.array_equal(value, weights[0][name]), name
  for host in pair:
    assert '2 workers on 2 nodes' in host.run('launch.workers', 'status').stdout
  for host in reversed(pair):
    assert 'stopped 1 node' in host.run('launch.workers', 'stop').stdout


class _Rounds:
  """Rounds of a driver on host a, and what they returned."""

  def __init__(self, driver, host):
    self._driver, self._host = driver, host
    self.weights = []

  def one(self, fault=lambda: None, after=0.0):
    """Trains a round with a fault in it; returns (s, workers, lost)."""
    go_on(self._driver)
    time.sleep(after)
    fault()
    *found, digest = answer(self._driver, self._host)
    self.weights.append(digest)
    return found

  def until_both(self):
    """Trains until both workers take part; returns the seconds of a round."""
    deadline = time.monotonic() + 200
    while self.one()[1] < 2:
      assert time.monotonic() < deadline, 'b takes no part'
      time.sleep(3.0)
    return self.one()[0]


def test_a_network_that_fails_costs_no_digit(pair):
  """b is unreachable for a moment, then for long, and then loses its power."""
  a, b = pair
  start(a, b)
  log = outside(b, f'{FOLDER}/nodes/1.log')
  clients = '400'
  with driving(a, 'drive', 'rounds', clients, FOLDER) as driver:
    rounds = _Rounds(driver, a)
    middle = rounds.until_both() / 3

    def blink():
      b.pull_cable()
      time.sleep(8.0)
      b.plug_cable()

    seconds, workers, lost = rounds.one(blink, middle)
    assert (workers, lost) == (2, 0) and seconds < 60
    told = (a.tmp / 'errors').read_text()
    assert told == ''

    seconds, workers, lost = rounds.one(b.pull_cable, middle)
    assert lost == 1 and seconds < 90
    told = (a.tmp / 'errors').read_text()
    assert told.startswith(f'\na worker on {b.ip} (')
    assert told.count('\n') == 2 and 'its clients go to others' in told
    assert rounds.one()[1:] == [1, 0]
    b.plug_cable()
    has_ended = lambda: log.read_text().endswith('ended: raylet\n')
    assert folders.wait(has_ended, 60)
    b.run(*JOIN)
    rounds.until_both()

    seconds, workers, lost = rounds.one(b.cut_power, middle)
    assert lost == 1 and seconds < 90
    b.start()
    b.run(*JOIN)
    rounds.until_both()
    driver.stdin.close()
    assert driver.wait(60) == 0
  assert (a.tmp / 'errors').read_text().count(' was lost (') == 2
  with driving(a, 'drive', 'rounds', clients) as driver:
    for expected in rounds.weights:
      go_on(driver)
      assert answer(driver, a)[-1] == expected


def test_a_driver_ends_soon_when_the_heads_power_is_cut(pair):
  """Ray tells an unreachable head that it leaves, by default for two minutes."""
  a, b = pair
  start(a, b, '--workers=0')
  with driving(b, 'drive', 'workers', FOLDER) as driver:
    assert answer(driver, b)[0] == 1
    a.cut_power()
    go_on(driver)
    found, alive = answer(driver, b)
    assert len(found) == 1
    assert alive.startswith(f'no head of a cluster at {a.ip}')
    since = time.monotonic()
    assert driver.wait(100) == 0
    assert time.monotonic() - since < 60
  assert (b.tmp / 'errors').read_text() == ''


def test_every_port_refuses_strangers_of_another_host(pair):
  a, b = pair
  start(a, b)
  with driving(a, 'drive', 'workers', FOLDER) as driver:
    answer(driver, a)  # Workers listen, too.
    for host, other, number in ((a, b, 5), (b, a, 3)):
      with driving(host, 'strangers', 'ports', FOLDER) as listening:
        ports = answer(listening, host)
      with driving(other, 'strangers', 'call', FOLDER, host.ip) as caller:
        caller.stdin.write(json.dumps(ports))
        go_on(caller)
        # A raylet with two ports, a worker, on a the head and the driver; the agent.
        assert answer(caller, other) == ['grpc'] * number + ['http']
