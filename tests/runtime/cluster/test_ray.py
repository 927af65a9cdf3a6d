"""Ray's nodes start, join, fail and end; drivers connect or are told why not."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.launch import light
from tests.runtime.cluster import folders
from tests.runtime.cluster import strangers
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import nodes
from tff_xc.runtime.cluster import state

pytest.importorskip('ray', reason='Ray is not installed: make venv-cluster')
pytestmark = pytest.mark.slow

WORKERS = nodes.Workers()


@pytest.fixture(name='folder')
def _folder(tmp_path):
  """A folder whose nodes end with the test, and leave no process."""
  folder = tmp_path / 'cluster'
  yield folder
  marks = [n.mark for n in state.read_nodes(folder)]
  nodes.stop(folder)
  assert not state.marked(marks)


def outer_ip():
  """Returns an IPv4 address of this machine that is not 127.0.0.1."""
  found = [
    address.address
    for addresses in psutil.net_if_addrs().values()
    for address in addresses
    if address.family == socket.AF_INET
  ]
  return next((a for a in found if not a.startswith('127.')), '127.0.0.2')


def drive(folder, *arguments, program='workers'):
  """Starts a driver, a program of `tests.runtime.cluster.drive`."""
  module = 'tests.runtime.cluster.drive'
  return subprocess.Popen(
    [sys.executable, '-m', module, program, folder, *arguments],
    cwd=light.ROOT,
    env={**os.environ, 'RAY_AUTH_TOKEN': 'of another cluster'},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def first_line(driver, seconds=60):
  """Returns what a driver found; ends one that says nothing."""
  timer = threading.Timer(seconds, driver.kill)
  timer.start()
  line = driver.stdout.readline()
  timer.cancel()
  assert line, driver.communicate()
  return json.loads(line)


def go_on(driver):
  """Lets a driver go on; returns its answers, and what it knows of nodes."""
  out, error = driver.communicate('\n', timeout=120)
  assert (driver.returncode, error) == (0, ''), error
  answers, variables = out.splitlines()
  # Ray sets the second when it is imported.
  assert set(json.loads(variables)) <= {'RAY_AUTH_TOKEN', 'RAY_CLIENT_MODE'}
  assert 'RAY_AUTH_TOKEN' in variables
  return json.loads(answers)


def kill(node, *names):
  for process in state.marked([node.mark]):
    with contextlib.suppress(psutil.NoSuchProcess):  # Some end by themselves.
      if not names or process.name() in names:
        process.kill()


def pids(*started):
  return {p.pid for p in state.marked([n.mark for n in started])}


def test_a_driver_uses_the_workers_and_nothing_is_left(
  folder, tmp_path, monkeypatch
):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '3')
  data = nodes.Workers(number=2, threads=3, data_dir=str(tmp_path))
  first = nodes.start(folder, data)
  second = nodes.join(folder, folder / state.JOIN, WORKERS)
  # A session of one's own is no way out.
  everything = {
    p.pid
    for p in state.marked(
      [state.find_cluster(folder).ray_folder], state.CLUSTER_MARK
    )
  }
  assert everything == pids(first, second)
  driver = drive(folder)
  number, found = first_line(driver)
  assert number == 3
  expected = sorted(['3', '3', str(second.threads)])
  assert sorted(threads for _, threads, *_ in found) == expected
  assert sorted(d for *_, d, _ in found) == ['', str(tmp_path), str(tmp_path)]
  assert {gpus for *_, gpus in found} == {'3'}
  assert {pid for pid, *_ in found} < pids(first, second)
  assert {
    address.ip.removeprefix('::ffff:')
    for _, address in strangers.listening(first, second)
  } == {'127.0.0.1'}
  answers, alive = go_on(driver)
  assert (answers, alive) == ([pid for pid, *_ in found], 2)
  started = time.monotonic()
  assert nodes.stop(folder) == 2
  assert time.monotonic() - started < 20
  assert not pids(first, second)


def test_a_driver_outlives_the_second_node(folder):
  first = nodes.start(folder, WORKERS)
  second = nodes.join(folder, folder / state.JOIN, WORKERS)
  driver = drive(folder)
  _, found = first_line(driver)
  [alive] = [pid for pid, *_ in found if pid in pids(first)]
  kill(second)
  answers, _ = go_on(driver)
  assert set(answers) - {alive} <= {'ActorDiedError', 'ActorUnavailableError'}
  assert alive in answers and len(answers) == 2
  # It may join again, and another one may leave in peace.
  third = nodes.join(folder, folder / state.JOIN, WORKERS)
  assert nodes.stop(folder, third.name) == 1
  cluster = state.find_cluster(folder)
  assert folders.wait(lambda: len(connection.ask(folder, cluster, 5)) == 1, 30)


def test_a_driver_learns_that_the_head_is_gone(folder):
  first = nodes.start(folder, WORKERS)
  driver = drive(folder)
  first_line(driver)
  kill(first)
  [answer], alive = go_on(driver)
  assert answer in ('ActorDiedError', 'ActorUnavailableError')
  assert alive.startswith('no head of a cluster at 127.0.0.1')


@pytest.mark.parametrize('which', ['gcs_server', 'raylet'])
def test_a_driver_whose_node_ended_meanwhile_says_so(folder, which):
  """Ray ends a driver that then uses the node's store, or after a minute."""
  node = nodes.start(folder, WORKERS)
  driver = drive(folder, program='share')
  assert driver.stdout.readline() == 'shared\n'
  kill(node, which)
  gone = lambda: (
    not any(p.name() == 'raylet' for p in state.marked([node.mark]))
  )
  assert folders.wait(gone, 30)
  if which == 'gcs_server':
    time.sleep(65)
  out, error = driver.communicate('\n', timeout=60)
  assert (out, driver.returncode) == ('', 2), error
  # TFF complains in a process that leaves without a runtime of ours.
  assert error.startswith('error: no '), error


@pytest.mark.parametrize('which', ['leader', 'gcs_server', 'raylet'])
def test_stop_ends_what_a_killed_process_left(folder, which):
  """Ray's agents outlive a killed raylet for a minute."""
  first = nodes.start(folder, WORKERS)
  second = nodes.join(folder, folder / state.JOIN, WORKERS)
  if which == 'leader':
    os.kill(first.pid, signal.SIGKILL)
  else:
    kill(first, which)
  assert folders.wait(lambda: not nodes.find(folder)[0].is_alive, 30)
  left = pids(first)
  assert left or which != 'leader', 'nothing to end: the test shows nothing'
  assert nodes.stop(folder) == 2
  assert not pids(first, second)


def failing(folder, *arguments):
  """Returns what a driver that cannot connect says, and how long it took."""
  started = time.monotonic()
  out, error = drive(folder, *arguments).communicate(timeout=120)
  assert out == '' and error.startswith('error: '), error
  assert error.count('\n') == 1, error
  return error, time.monotonic() - started


def test_drivers_that_cannot_connect_say_why_in_time(folder):
  node = nodes.start(folder, WORKERS, ip=outer_ip())
  token = (folder / 'token').read_text()
  (folder / 'token').write_text('0' * 64)
  error, seconds = failing(folder)
  assert 'refuses our token' in error and seconds < 10
  (folder / 'token').write_text(token)

  join = (folder / state.JOIN).read_text()
  plain = {**json.loads(join), 'authority': '', 'authority_key': ''}
  (folder / state.JOIN).write_text(json.dumps(plain))
  error, seconds = failing(folder)
  assert 'has other certificates' in error and seconds < 10
  (folder / state.JOIN).write_text(join)

  for name in ('gcs_server', 'raylet'):
    [process] = [p for p in state.marked([node.mark]) if p.name() == name]
    process.suspend()
    error, seconds = failing(folder, '2')
    process.resume()
    assert 'does not answer within' in error and seconds < 12
  drive(folder).communicate('\n', timeout=60)  # The secrets are right again.
  kill(node)
  error, seconds = failing(folder)
  assert 'no head of a cluster' in error and seconds < 10


@pytest.mark.parametrize('is_outer', [False, True])
def test_every_port_refuses_strangers(folder, is_outer):
  ip = outer_ip() if is_outer else '127.0.0.1'
  started = [nodes.start(folder, WORKERS, ip=ip)]
  started.append(nodes.join(folder, folder / state.JOIN, WORKERS, ip=ip))
  driver = drive(folder)
  first_line(driver)  # Workers listen, too.
  ports = lambda: {a.port for _, a in strangers.listening(*started)}
  # A head, two raylets with two ports, two workers; an agent for each node, which
  # starts last.
  assert folders.wait(lambda: len(ports()) == 9, 30), ports()
  kinds = [
    strangers.check(folder, f'{ip}:{port}', is_outer)
    for port in sorted(ports())
  ]
  assert sorted(kinds) == ['grpc'] * 7 + ['http'] * 2
  rows = strangers.table(folder)
  assert sorted({row[2] for row in rows[1:]}) == ['grpc', 'http']
  for _, _, kind, *refused, taken in rows[1:]:
    assert taken == ('OK' if kind == 'grpc' else '404')
    assert not {'OK', '404'} & set(refused)
  go_on(driver)


def test_sigterm_ends_a_driver_without_a_word(folder):
  nodes.start(folder, WORKERS)
  driver = drive(folder)
  first_line(driver)
  driver.terminate()
  assert driver.communicate(timeout=60)[1] == ''
  assert driver.returncode == -signal.SIGTERM


FAILS = """
import sys
from tff_xc.runtime.cluster import connection

connection.connect(sys.argv[1])
print('{}', flush=True)
sys.stdin.readline()
raise ValueError('of the user')
"""


def test_an_error_of_the_user_is_told_though_the_head_hangs(folder):
  node = nodes.start(folder, WORKERS)
  with subprocess.Popen(
    [sys.executable, '-c', FAILS, folder],
    cwd=light.ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as driver:
    first_line(driver)
    [silent] = [
      p for p in state.marked([node.mark]) if p.name() == 'gcs_server'
    ]
    silent.suspend()
    try:
      _, error = driver.communicate('\n', timeout=90)
    finally:
      silent.resume()
      driver.kill()
  assert error.endswith('ValueError: of the user\n')
