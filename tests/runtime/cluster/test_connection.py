"""Whether the head and this machine's node live and answer; no Ray runs here."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import types
import uuid
import weakref

import grpc
import numpy as np
import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import certificates
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import nodes
from tff_xc.runtime.cluster import state


@pytest.fixture(name='raylet')
def _raylet(tmp_path, monkeypatch):
  """Returns a process that is called so, of a node to which we are connected."""
  # Conda's Python, for one, lacks it.
  monkeypatch.delattr(os, 'pidfd_open', raising=False)
  mark = f'node-{uuid.uuid4()}'
  program = shutil.copy(shutil.which('sleep'), tmp_path / 'raylet')
  process = subprocess.Popen(
    [program, '600'], env={**os.environ, state.MARK: mark}
  )
  node = state.Node('1', mark, state.LOOPBACK, True, 1, 1, '')
  assert folders.wait(lambda: state.marked([mark]))
  found = connection._raylet(node)
  assert found.pid == process.pid
  session = connection._Session(
    pathlib.Path(), None, {}, mark, connection.LiveNode('a', 'b', 1), found
  )
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(connection, 'check', lambda: [])
  yield process
  process.kill()
  process.wait()


def test_a_node_that_has_ended_is_one_sentence(raylet, monkeypatch):
  connection.check_node()
  raylet.kill()
  os.waitid(os.P_PID, raylet.pid, os.WEXITED | os.WNOWAIT)
  for _ in range(2):  # A zombie, and nothing.
    with pytest.raises(errors.InputError, match='no node runs on this machine'):
      connection.check_node()
    raylet.wait()

  def gone():
    raise errors.InputError('no head of a cluster')

  monkeypatch.setattr(connection, 'check', gone)  # It comes first.
  with pytest.raises(errors.InputError, match='no head of a cluster'):
    connection.check_node()


def test_a_node_that_the_head_has_given_up_is_one_sentence(monkeypatch):
  ours, other = (connection.LiveNode(name, 'b', 1) for name in 'ac')
  session = connection._Session(pathlib.Path(), None, {}, 'm', ours, None)
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(connection, 'ask', lambda *_: [ours, other])
  assert connection.check() == [ours, other]
  monkeypatch.setattr(connection, 'ask', lambda *_: [other])
  with pytest.raises(errors.InputError, match='this machine does not answer'):
    connection.check()


@pytest.fixture(name='hanging')
def _hanging(monkeypatch):
  """A Ray that does not leave, to which we are connected, and who unregisters."""
  end = threading.Event()
  ray = types.SimpleNamespace(shutdown=end.wait)
  monkeypatch.setitem(sys.modules, 'ray', ray)
  session = connection._Session(pathlib.Path(), None, {}, 'm', None, None)
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(connection, 'left_behind', False)
  left_out = []
  monkeypatch.setattr(connection.atexit, 'unregister', left_out.append)
  yield ray, left_out
  end.set()


@pytest.mark.parametrize('is_interrupted', [False, True])
def test_a_driver_leaves_a_ray_that_does_not_answer(
  hanging, is_interrupted, monkeypatch
):
  ray, left_out = hanging

  def interrupted(call, seconds):
    raise KeyboardInterrupt

  if is_interrupted:  # For the second time.
    monkeypatch.setattr(connection, 'ends', interrupted)
    connection._at_exit()
  else:
    monkeypatch.setattr(connection, '_LEAVE_SECONDS', 0.01)
    connection.disconnect()
  assert left_out[-1] == ray.shutdown
  assert connection._session is None
  assert connection.left_behind


IP = '127.0.0.2'  # Not the loopback address for which there is no TLS.


def _handler(token, seconds):
  """Answers a call after some seconds, if it carries the token."""

  def answer(_, context):
    time.sleep(seconds)
    given = dict(context.invocation_metadata()).get('authorization')
    if given != f'Bearer {token}':
      context.abort(grpc.StatusCode.UNAUTHENTICATED, '')
    return b''

  return grpc.method_handlers_generic_handler(
    'ray.rpc.NodeInfoGcsService',
    {'GetAllNodeInfo': grpc.unary_unary_rpc_method_handler(answer)},
  )


@contextlib.contextmanager
def serve(token='a' * 64, seconds=0.0, secrets=None):
  """Yields the port of a server; `secrets`: its folder, for TLS."""
  pool = concurrent.futures.ThreadPoolExecutor(1)
  server = grpc.server(pool, handlers=[_handler(token, seconds)])
  if secrets is None:
    port = server.add_insecure_port('127.0.0.1:0')
  else:
    authority, key, certificate = (
      (secrets / name).read_bytes() for name in connection._TLS_FILES
    )
    credentials = grpc.ssl_server_credentials(
      [(key, certificate)], authority, require_client_auth=True
    )
    port = server.add_secure_port(f'{IP}:0', credentials)
  server.start()
  try:
    yield port
  finally:
    server.stop(None)


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
  """The answer of a good head is read by Ray's classes; here it is empty."""
  monkeypatch.setattr(connection, 'check_ray', lambda: None)
  monkeypatch.setattr(connection, '_live_nodes', lambda reply: reply)


def secrets(folder, authority=None):
  """Returns a cluster with TLS, whose secrets are written to a folder."""
  state.make_folder(folder)
  pair = authority or certificates.make_authority()
  cluster = folders.cluster(f'{IP}:1', authority=pair[0], authority_key=pair[1])
  nodes.write_secrets(folder, cluster, IP)
  return cluster


def ask(folder, port, cluster=None, deadline_s=5.0):
  """Asks a head; returns its answer or the sentence, and the seconds."""
  known = cluster or folders.cluster()
  state.make_folder(folder)
  if cluster is None:
    nodes.write_secrets(folder, known, known.ip)
  started = time.monotonic()
  values = {**vars(known), 'address': f'{known.ip}:{port}'}
  try:
    found = connection.ask(folder, state.Cluster(**values), deadline_s)
  except errors.InputError as e:
    found = str(e)
  return found, time.monotonic() - started


@pytest.mark.parametrize('proxy', ['', 'http://127.0.0.1:9'])
def test_a_head_answers(tmp_path, monkeypatch, proxy):
  """Also where the environment names a proxy, which cannot reach it."""
  for name in ('grpc_proxy', 'https_proxy', 'http_proxy'):
    monkeypatch.setenv(name, proxy)
  for name in ('no_grpc_proxy', 'no_proxy'):
    monkeypatch.delenv(name, raising=False)
  with serve() as port:
    assert ask(tmp_path, port)[0] == b''
  cluster = secrets(tmp_path / 'tls')
  with serve(secrets=tmp_path / 'tls') as port:
    assert ask(tmp_path / 'tls', port, cluster)[0] == b''


def test_what_does_not_know_us_or_is_no_head_is_one_sentence(tmp_path):
  with serve(token='b' * 64) as port:
    found, seconds = ask(tmp_path, port)
  assert 'refuses our token' in found and seconds < 4
  for damaged in (b'', b'a' * 63 + b'\n', b'a' * 63 + b'\xff'):
    (tmp_path / 'token').write_bytes(damaged)
    with serve() as port:
      found, _ = ask(tmp_path, port, folders.cluster())
    assert found.startswith(f'{tmp_path / "token"} is damaged')
  with socket.create_server(('127.0.0.1', 0)) as used:
    port = used.getsockname()[1]
  found, seconds = ask(tmp_path, port)
  assert f'no head of a cluster at 127.0.0.1:{port}' in found and seconds < 1
  server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
  port = server.add_insecure_port('127.0.0.1:0')
  server.start()
  found, _ = ask(tmp_path, port)
  server.stop(None)
  assert 'is no cluster (UNIMPLEMENTED)' in found


def test_a_silent_head_is_given_up_at_the_deadline(tmp_path):
  with serve(seconds=3) as port:
    found, seconds = ask(tmp_path, port, deadline_s=1.0)
  assert 'does not answer within 1 s' in found and seconds < 2
  with socket.create_server(('127.0.0.1', 0)) as mute:
    found, seconds = ask(tmp_path, mute.getsockname()[1], deadline_s=1.0)
  assert 'does not answer within 1 s' in found and seconds < 2


@pytest.mark.slow
def test_a_deadline_beyond_grpcs_own_is_kept(tmp_path):
  with socket.create_server(('127.0.0.1', 0)) as mute:
    found, seconds = ask(tmp_path, mute.getsockname()[1], deadline_s=22.0)
  assert 'does not answer within 22 s' in found and seconds < 24


def test_wrong_certificates_are_one_sentence(tmp_path):
  ours, folder = secrets(tmp_path / 'ours'), tmp_path / 'ours'
  theirs = secrets(tmp_path / 'theirs')
  plain = folders.cluster(f'{IP}:1')
  with serve(secrets=folder) as port:
    for known, place in (
      (theirs, tmp_path / 'theirs'),  # The certificates of another cluster,
      (plain, folder),  # or none, with the right token.
    ):
      found, seconds = ask(place, port, known)
      assert 'has other certificates' in found and seconds < 4
    (folder / 'key.pem').unlink()
    assert 'key.pem cannot be read' in ask(folder, port, ours)[0]


def test_a_driver_needs_workers_of_this_machine(tmp_path):
  with pytest.raises(errors.InputError, match='no workers were started here'):
    connection.connect(tmp_path / 'none')
  with pytest.raises(errors.InputError, match='no node runs on this machine'):
    connection._node_here(
      tmp_path, [connection.LiveNode('a1', '127.0.0.1:1', 1)]
    )
  connection.disconnect()  # Nothing is connected.


def test_without_ray_the_sentence_names_the_cure(monkeypatch):
  monkeypatch.undo()
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  for call in (connection.check_ray, connection.connect):
    with pytest.raises(errors.InputError, match='make venv-cluster'):
      call()


def silent():
  raise ConnectionError


@pytest.fixture(name='never')
def _never():
  """A call that does not end before the test does."""
  end = threading.Event()
  yield end.wait
  end.set()


def test_a_call_returns_its_value_or_raises_its_error(never, monkeypatch):
  assert connection.answered(lambda: 7, silent) == 7
  assert connection.ends(lambda: None, 10.0)
  assert not connection.ends(never, 0.01)
  for call in (
    lambda fails: connection.answered(fails, silent),
    lambda fails: connection.ends(fails, 10.0),
  ):
    with pytest.raises(ZeroDivisionError):
      call(lambda: 1 / 0)
  # A slow one is waited for while the others live.
  monkeypatch.setattr(connection, '_LOOK_SECONDS', 0.05)
  looks = []
  slow = lambda: time.sleep(0.2) or 7
  assert connection.answered(slow, lambda: looks.append(1)) == 7
  assert looks


def test_calls_share_a_thread_unless_one_is_left_behind(never, monkeypatch):
  monkeypatch.setattr(connection, '_LOOK_SECONDS', 0.01)
  ask = lambda: connection.answered(threading.get_ident, silent)
  # A thread that another test left behind may come back in between.
  shared = lambda: len({ask() for _ in range(5)}) == 1
  assert folders.wait(shared, 5)
  before = ask()
  with pytest.raises(ConnectionError):
    connection.answered(never, silent)
  assert ask() != before
  assert folders.wait(shared, 5)


def test_a_value_is_held_no_longer_than_by_the_caller():
  value = connection.answered(lambda: np.zeros(3), silent)
  held = weakref.ref(value)
  del value
  assert folders.wait(lambda: held() is None, 5)
