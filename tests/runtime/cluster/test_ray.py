"""Runs on a real Ray: equal digits, lost workers, a lost head node, and foreign callers."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import psutil
import pytest

from tests.launch import light
from tff_xc.report import run_files
from tff_xc.runtime.cluster import guard

pytest.importorskip('ray', reason='Ray is not installed: make venv-cluster')
pytestmark = pytest.mark.slow

# Columns of metrics.csv that only runs on a cluster have.
OWN = ['workers', 'workers_lost', 'worker_bytes_down', 'worker_bytes_up']
TRAIN = (
  'launch.train',
  '--task=glyphs',
  '--algorithm=fedss',
  '--num_classes=100',
  '--clients_per_round=40',  # More than 32 clients, so that workers send sums of blocks.
  '--eval_every=1',
)
ON_WORKERS = ('--runtime=cluster', '--client_threads=1')
ONE_WORKER = ('--runtime=cluster', '--eval_every=1000')


_drivers = []


def train(run_dir, *more, **variables):
  """Starts `launch.train`, which ends with the test."""
  driver = subprocess.Popen(
    [sys.executable, '-m', *TRAIN, f'--run_dir={run_dir}', *more],
    cwd=light.ROOT,
    env={**os.environ, **variables},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  _drivers.append(driver)
  return driver


def ended(driver, seconds=600):
  """Returns a driver's exit status and its error output."""
  error = driver.communicate(timeout=seconds)[1]
  return driver.returncode, error


def metrics(run_dir):
  return run_files.read_run(run_dir).metrics


def wait(is_it, seconds=600.0):  # The machine may be busy.
  deadline = time.monotonic() + seconds
  while not is_it():
    assert time.monotonic() < deadline
    time.sleep(0.1)


def wait_for_round(run_dir, number):
  """Waits until a run has trained `number` rounds."""
  path = pathlib.Path(run_dir) / 'metrics.csv'
  # The file also has a heading and round 0.
  wait(lambda: path.exists() and path.read_text().count('\n') > number + 1)


def of_ray(driver):
  """Returns the processes of the Ray that a driver started, by name."""
  found = {}
  for process in psutil.Process(driver.pid).children(recursive=True):
    with contextlib.suppress(psutil.Error):  # The process may have ended.
      name = (process.cmdline() or [process.name()])[0].split('/')[-1]
      found.setdefault(name, []).append(process)
  return found


def marked():
  found = set()
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error):
      if guard.VARIABLE in process.environ():
        found.add(process.pid)
  return found


@pytest.fixture(name='nothing_left', autouse=True)
def _nothing_left():
  """Checks that no process of Ray is left after a test."""
  before = marked()
  yield
  while _drivers:
    with _drivers.pop() as driver:
      driver.kill()
  wait(lambda: not marked() - before, 20)


def test_a_run_with_a_killed_worker_has_the_numbers_of_one_process(tmp_path):
  assert ended(train(tmp_path / 'one', '--rounds=6'))[0] == 0
  driver = train(tmp_path / 'two', '--rounds=6', *ON_WORKERS)
  wait_for_round(tmp_path / 'two', 1)
  of_ray(driver)['ray::_Actor'][0].kill()
  status, error = ended(driver)
  assert status == 0, error
  expected, found = metrics(tmp_path / 'one'), metrics(tmp_path / 'two')
  assert found['workers_lost'].sum() == 1
  assert error.count(' was lost (') == 1 and 'Traceback' not in error
  same = found.drop(columns=OWN).assign(seconds=expected['seconds'])
  assert same.equals(expected)
  # Workers that generate the procedural data themselves compute the same.
  own = {'TFF_XC_WORKER_DATA_DIR': str(tmp_path)}
  assert ended(train(tmp_path / 'own', '--rounds=6', *ON_WORKERS, **own))[0] == 0
  found_own = metrics(tmp_path / 'own')
  assert found_own['top1'].equals(expected['top1'])
  sent = [m['worker_bytes_down'].iloc[-1] for m in (found_own, found)]
  assert sent[0] < 0.7 * sent[1]


@pytest.mark.parametrize(
  ('name', 'how'),
  [('gcs_server', signal.SIGKILL), ('gcs_server', signal.SIGSTOP), ('raylet', signal.SIGKILL)],
)
def test_a_cluster_that_is_gone_is_one_sentence_in_a_minute(name, how, tmp_path):
  driver = train(tmp_path / 'run', '--rounds=100000', *ONE_WORKER)
  wait_for_round(tmp_path / 'run', 2)
  of_ray(driver)[name][0].send_signal(how)
  started = time.monotonic()
  status, error = ended(driver)
  assert time.monotonic() - started < 60
  assert status == 2 and 'Traceback' not in error, error
  assert error.splitlines()[-1].startswith('error: the ')
  last = int(metrics(tmp_path / 'run')['round'].iloc[-1])
  assert (tmp_path / f'run/checkpoints/round_{last}.npz').exists()


# A method of each kind of listening process.
METHODS = (
  '/ray.rpc.NodeInfoGcsService/GetClusterId',
  '/ray.rpc.NodeManagerService/GetResourceLoad',
  '/ray.rpc.ObjectManagerService/FreeObjects',
  '/ray.rpc.CoreWorkerService/GetCoreWorkerStats',
)


def answers(port):
  """Returns the answer of a port to a caller without a token."""
  import grpc

  found = set()
  with grpc.insecure_channel(f'127.0.0.1:{port}') as channel:
    for method in METHODS:
      try:
        channel.unary_unary(method)(b'', timeout=10)
        found.add('OK')
      except grpc.RpcError as e:
        found.add(e.code().name)
  if found == {'UNAVAILABLE'}:  # This agent answers HTTP requests.
    with pytest.raises(urllib.error.HTTPError, match='401'):
      urllib.request.urlopen(f'http://127.0.0.1:{port}/')
  return found - {'UNIMPLEMENTED'}


def test_a_killed_driver_leaves_nothing_and_no_stranger_is_served(tmp_path):
  driver = train(tmp_path / 'run', '--rounds=100000', *ONE_WORKER)
  wait_for_round(tmp_path / 'run', 0)
  addresses = [
    found.laddr
    for pid in [driver.pid, *marked()]
    for found in psutil.Process(pid).net_connections('inet')
    if found.status == 'LISTEN'
  ]
  for address in addresses:
    assert address.ip.removeprefix('::ffff:') == '127.0.0.1'
  found = [answers(address.port) for address in addresses]
  # The driver, the head, two ports of a node, and a worker; and one agent.
  assert found.count({'UNAUTHENTICATED'}) >= 5
  assert found.count({'UNAVAILABLE'}) == 1
  assert all(each in ({'UNAUTHENTICATED'}, {'UNAVAILABLE'}) for each in found)


@pytest.fixture(name='start')
def _start():
  """Returns a function that starts a user's cluster, and returns its address and variables."""
  started = []
  folder = tempfile.mkdtemp(dir='/tmp')  # The path of a socket must be short.

  def start(port, **variables):
    script = pathlib.Path(sys.executable).parent / 'ray'
    mine = {
      'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',  # Ray does not replace 127.0.0.1.
      'PYTHONPATH': str(light.ROOT),
      **variables,
    }
    head = subprocess.Popen(
      [
        script,
        'start',
        '--head',
        '--block',
        '--node-ip-address=127.0.0.1',
        f'--port={port}',
        '--num-cpus=1',
        '--include-dashboard=false',
        '--disable-usage-stats',
        f'--temp-dir={folder}',
      ],
      env={**os.environ, **mine, guard.VARIABLE: 'of a user'},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    started.append(head)
    wait(lambda: head.poll() is not None or _listens(port))
    assert head.poll() is None
    return (f'--cluster_address=127.0.0.1:{port}', *ONE_WORKER), mine

  yield start
  for head in started:
    head.terminate()  # The head ends its processes.
    head.wait(60)
  shutil.rmtree(folder, ignore_errors=True)


def _listens(port):
  with socket.socket() as caller:
    return caller.connect_ex(('127.0.0.1', port)) == 0


def test_a_cluster_of_the_user_must_want_a_token(start, tmp_path):
  token = tmp_path / 'token'
  token.write_text('ab' * 32)
  flags, variables = start(7391, RAY_AUTH_MODE='token', RAY_AUTH_TOKEN_PATH=str(token))
  status, error = ended(train(tmp_path / 'a', '--rounds=1', *flags, **variables))
  assert status == 0, error
  assert metrics(tmp_path / 'a')['workers'].iloc[-1] == 1
  token.write_text('cd' * 32)
  status, error = ended(train(tmp_path / 'b', '--rounds=1', *flags, **variables))
  assert status == 2 and error.startswith('error: Ray cannot connect'), error
  assert error.count('\n') == 1


def test_a_cluster_without_a_token_must_be_named_so(start, tmp_path):
  flags, variables = start(7392)
  refused, used = (
    ended(train(tmp_path / 'run', '--rounds=1', *flags, *more, **variables))
    for more in ((), ('--cluster_without_token',))
  )
  assert refused[0] == 2 and '--cluster_without_token' in refused[1]
  assert used[0] == 0, used[1]


def test_without_a_head_it_is_one_sentence(tmp_path):
  status, error = ended(train(tmp_path / 'run', '--cluster_address=127.0.0.1:1', *ON_WORKERS))
  assert status == 2 and error.count('error: no head') == 1
  assert 'Traceback' not in error
