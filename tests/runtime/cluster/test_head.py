"""A head that is gone, silent or refuses us; a gRPC server stands for it."""

import concurrent.futures
import contextlib
import socket
import time

import grpc
import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import certificates
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import launching
from tff_xc.runtime.cluster import own_folder
from tff_xc.runtime.cluster import state

IP = '127.0.0.2'  # Not the loopback address for which there is no TLS.


class _Handler(grpc.GenericRpcHandler):
  """Answers every call after some seconds, if it carries the token."""

  def __init__(self, token, seconds=0.0):
    self._token, self._seconds = token, seconds

  def service(self, details):
    if 'GetAllNodeInfo' not in details.method:
      return None
    given = dict(details.invocation_metadata).get('authorization')

    def answer(_, context):
      time.sleep(self._seconds)
      if given != f'Bearer {self._token}':
        context.abort(grpc.StatusCode.UNAUTHENTICATED, '')
      return b''

    return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def serve(token='a' * 64, seconds=0.0, secrets=None):
  """Yields the port of a server; `secrets`: its folder, for TLS."""
  pool = concurrent.futures.ThreadPoolExecutor(1)
  server = grpc.server(pool, handlers=[_Handler(token, seconds)])
  if secrets is None:
    port = server.add_insecure_port('127.0.0.1:0')
  else:
    authority, key, certificate = (
      (secrets / name).read_bytes() for name in head._TLS_FILES
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
  monkeypatch.setattr(head, 'check_ray', lambda: None)
  monkeypatch.setattr(head, '_live_nodes', lambda reply: reply)


def secrets(folder, authority=None):
  """Returns a cluster with TLS, whose secrets are written to a folder."""
  own_folder.make(folder)
  pair = authority or certificates.make_authority()
  cluster = folders.cluster(f'{IP}:1', authority=pair[0], authority_key=pair[1])
  launching.write_secrets(folder, cluster, IP)
  return cluster


def ask(folder, port, cluster=None, deadline_s=5.0):
  """Asks a head; returns its answer or the sentence, and the seconds."""
  known = cluster or folders.cluster()
  own_folder.make(folder)
  if cluster is None:
    launching.write_secrets(folder, known, known.ip)
  started = time.monotonic()
  values = {**vars(known), 'address': f'{known.ip}:{port}'}
  try:
    found = head.ask(folder, state.Cluster(**values), deadline_s)
  except errors.InputError as e:
    found = str(e)
  return found, time.monotonic() - started


def test_a_head_answers(tmp_path):
  with serve() as port:
    assert ask(tmp_path, port)[0] == b''
  cluster = secrets(tmp_path / 'tls')
  with serve(secrets=tmp_path / 'tls') as port:
    assert ask(tmp_path / 'tls', port, cluster)[0] == b''


def test_a_wrong_token_is_one_sentence(tmp_path):
  with serve(token='b' * 64) as port:
    found, seconds = ask(tmp_path, port)
  assert 'refuses our token' in found and seconds < 4


@pytest.mark.parametrize(
  'damaged', [b'', b'a' * 63 + b'\n', b'a' * 63 + b'\xff']
)
def test_a_damaged_token_is_one_sentence(tmp_path, damaged):
  with serve() as port:
    ask(tmp_path, port)
    (tmp_path / 'token').write_bytes(damaged)
    found, _ = ask(tmp_path, port, folders.cluster())
  assert found.startswith(f'{tmp_path / "token"} is damaged')


def test_a_head_that_is_gone_is_one_sentence(tmp_path):
  with socket.create_server(('127.0.0.1', 0)) as used:
    port = used.getsockname()[1]
  found, seconds = ask(tmp_path, port)
  assert f'no head of a cluster at 127.0.0.1:{port}' in found
  assert seconds < 1


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


def test_what_is_no_cluster_is_one_sentence(tmp_path):
  pool = concurrent.futures.ThreadPoolExecutor(1)
  server = grpc.server(pool)
  port = server.add_insecure_port('127.0.0.1:0')
  server.start()
  found, _ = ask(tmp_path, port)
  server.stop(None)
  assert 'is no cluster (UNIMPLEMENTED)' in found


def test_a_driver_needs_workers_of_this_machine(tmp_path):
  with pytest.raises(errors.InputError, match='no workers were started here'):
    connection.connect(tmp_path / 'none')
  with pytest.raises(errors.InputError, match='no node runs on this machine'):
    connection._node_here(tmp_path, [head.LiveNode('a1', '127.0.0.1:1', 1)])
  connection.disconnect()  # Nothing is connected.


def test_without_ray_the_sentence_names_the_cure(monkeypatch):
  monkeypatch.undo()
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  for call in (head.check_ray, connection.connect):
    with pytest.raises(errors.InputError, match='make venv-cluster'):
      call()
