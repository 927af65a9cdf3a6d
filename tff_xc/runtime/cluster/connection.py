"""Connects a driver to the cluster of which this machine is a part.

Ray itself waits without end for a process that lives and does not answer, and
Ctrl-C does not end it; if the head is gone or a secret is wrong, it fails with an
empty message, after minutes or never. So calls of Ray run on other threads, and bare
gRPC calls with deadlines ask the head and the node whether they live, and know us.
"""

import atexit
import collections
import contextlib
import dataclasses
import functools
import importlib.util
import os
import pathlib
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import psutil

from tff_xc import errors
from tff_xc.runtime.cluster import state

# Seconds between looks at who is waited for.
_LOOK_SECONDS = 10.0
# The calls of threads that wait for one: Ray sets up each thread that calls it.
_idle: collections.deque[queue.SimpleQueue] = collections.deque()


def answered(call: Callable[[], Any], check: Callable[[], None]) -> Any:
  """Returns what a call returns, while `check`, asked every 10 s, does not raise.

  It runs on another thread, which is left behind where this raises.
  """
  running = _on_thread(call)
  while not futures.wait([running], _LOOK_SECONDS).done:
    check()
  return running.result()


def ends(call: Callable[[], Any], seconds: float) -> bool:
  """Whether a call ends in time; its error is raised."""
  running = _on_thread(call)
  if not futures.wait([running], seconds).done:
    return False
  running.result()
  return True


def _on_thread(call) -> futures.Future:
  """Starts a call on a thread that the process does not wait for at its end."""
  try:
    calls = _idle.pop()
  except IndexError:
    calls = queue.SimpleQueue()
    threading.Thread(target=_serve, args=[calls], daemon=True).start()
  running = futures.Future()
  calls.put((call, running))
  return running


def _serve(calls: queue.SimpleQueue) -> None:
  """Makes a thread's calls, one after another."""
  while True:
    call, running = calls.get()
    try:
      finish = functools.partial(running.set_result, call())
    except BaseException as e:
      finish = functools.partial(running.set_exception, e)
    _idle.append(calls)  # The next call finds this thread.
    finish()
    del call, running, finish  # They hold what was returned.


_AGAIN = 'run `python -m launch.workers stop`, then `start` again'
_ANEW = f'{_AGAIN} (with --join on a machine that joined)'
_NO_NODE = f'no node runs on this machine any more: {_AGAIN}'
# So much longer than a deadline gRPC waits itself, so that the deadline ends a call.
_GRPC_SECONDS = 10.0
_TLS_FILES = ('authority.pem', 'key.pem', 'certificate.pem')


@dataclasses.dataclass(frozen=True)
class LiveNode:
  """A node that the head believes alive."""

  ray_id: str  # In hexadecimal digits.
  address: str  # 'IP:PORT' of its raylet.
  workers: int  # How many it announces.


def check_ray() -> None:
  """Raises InputError unless Ray is installed; does not import it."""
  if importlib.util.find_spec('ray') is None:
    raise errors.InputError(
      'Ray is not installed: `make venv-cluster` adds it to .venv'
    )


def ask(
  folder: pathlib.Path, cluster: state.Cluster, deadline_s: float
) -> list[LiveNode]:
  """Returns the nodes that the head believes alive, on all machines."""
  check_ray()
  _check_port(cluster, deadline_s)
  method = '/ray.rpc.NodeInfoGcsService/GetAllNodeInfo'
  reply = _call(folder, cluster, cluster.address, method, deadline_s)
  return _live_nodes(reply)


def _live_nodes(reply: bytes) -> list[LiveNode]:
  """Reads the answer to GetAllNodeInfo."""
  from ray.core.generated import gcs_pb2
  from ray.core.generated import gcs_service_pb2

  nodes = gcs_service_pb2.GetAllNodeInfoReply.FromString(reply).node_info_list
  return [
    LiveNode(
      n.node_id.hex(),
      f'{n.node_manager_address}:{n.node_manager_port}',
      int(n.resources_total.get(state.RESOURCE, 0)),
    )
    for n in nodes
    if n.state == gcs_pb2.GcsNodeInfo.ALIVE
  ]


def ask_node(
  folder: pathlib.Path,
  cluster: state.Cluster,
  node: LiveNode,
  deadline_s: float,
) -> None:
  """Raises InputError unless a node itself answers by the deadline."""
  method = '/grpc.health.v1.Health/Check'
  _call(folder, cluster, node.address, method, deadline_s)


def _check_port(cluster: state.Cluster, deadline_s: float) -> None:
  """Raises InputError unless something listens at the head's address."""
  try:
    socket.create_connection((cluster.ip, cluster.port), deadline_s).close()
  except OSError as e:
    where = (
      'on this machine' if cluster.ip == state.LOOPBACK else 'on its machine'
    )
    reason = 'no answer' if isinstance(e, TimeoutError) else e.strerror
    raise errors.InputError(
      f'no head of a cluster at {cluster.address} ({reason}): look {where} with'
      ' `python -m launch.workers status`, or start anew with `stop` and `start`'
    ) from e


def _call(
  folder: pathlib.Path,
  cluster: state.Cluster,
  address: str,
  method: str,
  deadline_s: float,
) -> bytes:
  """Calls a method without arguments and returns its answer."""
  # Otherwise gRPC prints lines of its own about certificates that it refuses.
  os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
  import grpc

  try:
    token = (folder / 'token').read_text('ascii', 'replace')
    files = _TLS_FILES if cluster.uses_tls else ()
    secrets = [(folder / name).read_bytes() for name in files]
  except OSError as e:
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}): {_ANEW}'
    ) from e
  if not state.is_token(token):  # gRPC refuses some characters as such.
    raise errors.InputError(f'{folder / "token"} is damaged: {_ANEW}')
  # gRPC gives up a silent port after 20 s, and then calls it no server.
  patience = int(1000 * (deadline_s + _GRPC_SECONDS))
  options = [
    ('grpc.min_reconnect_backoff_ms', patience),
    ('grpc.enable_http_proxy', 0),  # Ray asks its nodes without one, too.
  ]
  if cluster.uses_tls:
    credentials = grpc.ssl_channel_credentials(*secrets)
    channel = grpc.secure_channel(address, credentials, options)
  else:
    channel = grpc.insecure_channel(address, options)
  try:
    return channel.unary_unary(method)(
      b'',
      timeout=max(deadline_s, 0.1),
      metadata=[('authorization', f'Bearer {token}')],
    )
  except grpc.RpcError as e:
    raise errors.InputError(_sentence(e, address, deadline_s)) from e
  finally:
    channel.close()


def _sentence(error, address: str, deadline_s: float) -> str:
  """Says what an error of gRPC means here."""
  import grpc

  anew = f'copy {state.JOIN} anew from the machine of the head and join again'
  match error.code():
    case grpc.StatusCode.UNAUTHENTICATED:
      return f'the cluster at {address} refuses our token: {anew}'
    case grpc.StatusCode.DEADLINE_EXCEEDED:
      return (
        f'the cluster at {address} does not answer within {deadline_s:.0f} s:'
        f' {_AGAIN}'
      )
    case grpc.StatusCode.UNAVAILABLE:
      return (
        f'what listens at {address} is no cluster, or has other certificates:'
        f' {anew}'
      )
  return (
    f'what listens at {address} is no cluster ({error.code().name}): {anew}'
  )


# After so many seconds without the head, Ray ends the driver without a word. The
# driver asks by itself (`check`), after a long evaluation too.
_WITHOUT_HEAD = str(10 * 24 * 3600)
# A driver that leaves tells the head, which may be unreachable: after so many
# milliseconds without any answer a connection is given up, in place of 120 s.
_UNANSWERED = '20000'
# Nor does it leave while the head or its node lives and does not answer. So much
# more than the above that it leaves by itself where nobody lives.
_LEAVE_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class _Session:
  """A connection: to what, through which node, and Ray's variables before it."""

  folder: pathlib.Path  # Of this machine, with the secrets.
  cluster: state.Cluster  # What it is connected to.
  before: dict[str, str]  # Ray's variables before it.
  mark: str  # Of the node's processes.
  node: LiveNode  # What the head says of it.
  raylet: psutil.Process  # The node's own process.


_session: _Session | None = None
# Whether a thread that waits for Ray was left behind; see `disconnect`.
left_behind = False


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
  """Keeps what SIGTERM does here: Ray would print a trace of C++, and abort."""
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and before is not None:  # Otherwise Python cannot set it.
      signal.signal(signal.SIGTERM, before)


@_same_sigterm()
def connect(
  folder: str | os.PathLike | None = None, deadline_s: float = 20.0
) -> int:
  """Makes this process a driver, until `disconnect`; returns the number of workers."""
  if _session is not None:
    raise RuntimeError('connect was called before; call disconnect first')
  check_ray()
  folder = pathlib.Path(folder or state.default_folder()).absolute()
  cluster = state.find_cluster(folder)
  if cluster is None:
    raise errors.InputError(
      'no workers were started here: run `python -m launch.workers start`'
      f' (their folder would be {folder})'
    )
  deadline = time.monotonic() + deadline_s
  alive = ask(folder, cluster, deadline_s)
  node, live = _node_here(folder, alive)
  ask_node(folder, cluster, live, deadline - time.monotonic())
  workers = sum(n.workers for n in alive)
  if not workers:
    raise errors.InputError(
      f'the cluster at {cluster.address} has no workers: start some with'
      f' `python -m launch.workers start --join={folder / state.JOIN}`'
    )
  before = _ray_variables()
  session = _Session(folder, cluster, before, node.mark, live, _raylet(node))
  try:
    _begin(session, node.ip)
  except BaseException as e:
    disconnect()
    if not isinstance(e, Exception):
      raise
    reason = str(e).split('\n')[0] or type(e).__name__
    raise errors.InputError(
      f'Ray cannot connect to {cluster.address} ({reason}): try'
      ' `python -m launch.workers stop` and `start`'
    ) from e
  return workers


def _begin(session: _Session, ip: str) -> None:
  """Connects through the session's node, which has this address."""
  import ray

  log = session.folder / 'driver.log'
  with _stderr_to(log), _only_to(session.node.ray_id):
    _set_environment(session)
    ray.init(
      address=session.cluster.address,
      _node_ip_address=ip,
      log_to_driver=False,
      logging_level='ERROR',
    )
  atexit.register(_at_exit)  # Before Ray's own, which waits without end.
  _silence()


def check(deadline_s: float = 5.0) -> list[LiveNode]:
  """Returns the nodes that the connected cluster's head believes alive.

  A run whose workers fail asks this: Ray itself would not say it.
  """
  alive = ask(_session.folder, _session.cluster, deadline_s)
  if _session.node.ray_id not in {node.ray_id for node in alive}:
    raise errors.InputError(
      f'the node of this machine does not answer any more: {_AGAIN}'
    )
  return alive


def check_node() -> None:
  """Raises InputError if this machine's node has ended; takes 0.1 ms.

  Ray ends the driver without a word when it next uses the node's store.
  """
  if not state.is_marked(_session.raylet, [_session.mark]):
    check()
    raise errors.InputError(_NO_NODE)


def check_answers(deadline_s: float) -> None:
  """Raises InputError unless the head and this machine's node answer."""
  check_node()
  check(deadline_s)
  ask_node(_session.folder, _session.cluster, _session.node, deadline_s)


def has_process(actor) -> bool:
  """Whether an actor has a process, also one that still starts."""
  from ray._private import state as ray_state

  return bool(ray_state.actors(actor._actor_id.hex()).get('Pid'))


def disconnect() -> None:
  """Ends what `connect` began; does nothing if nothing is connected.

  Where Ray does not answer, or an interrupt ends the wait for it, a thread of
  this process stays behind in Ray's code, and `left_behind` is true: the process
  may crash when it ends unless by `os._exit`, as `launch.app` does.
  """
  global _session, left_behind
  if _session is None:
    return
  import ray

  atexit.unregister(_at_exit)
  has_left = False
  try:
    has_left = ends(ray.shutdown, _LEAVE_SECONDS)
  finally:
    if not has_left:
      atexit.unregister(ray.shutdown)  # It would not end at the exit, either.
      left_behind = True
    _replace_variables(_session.before)
    _session = None


def _at_exit() -> None:
  """Disconnects; a second Ctrl-C, or SIGTERM, does not wait for Ray."""
  with contextlib.suppress(KeyboardInterrupt, SystemExit):
    disconnect()


def _node_here(
  folder: pathlib.Path, alive: list[LiveNode]
) -> tuple[state.Node, LiveNode]:
  """Returns a node of this machine that runs, and what the head says of it."""
  known = {n.ray_id: n for n in alive}
  for node in state.read_nodes(folder):
    ray_id = state.ray_id(folder, node)
    if ray_id in known and state.marked([node.mark]):
      return node, known[ray_id]
  raise errors.InputError(_NO_NODE)


def _raylet(node: state.Node) -> psutil.Process:
  """Returns the raylet of a node."""
  for process in state.marked([node.mark]):
    with contextlib.suppress(psutil.Error):  # It has ended.
      if process.name() == 'raylet':
        return process
  raise errors.InputError(_NO_NODE)


def _set_environment(session: _Session) -> None:
  """Sets the variables that Ray reads, also if it was imported before."""
  global _session
  values = state.ray_environment(session.folder, session.cluster)
  # Otherwise it prints on stderr, for example that nobody collects metrics.
  values['RAY_BACKEND_LOG_LEVEL'] = 'fatal'
  values['RAY_gcs_rpc_server_reconnect_timeout_s'] = _WITHOUT_HEAD
  values['RAY_grpc_client_keepalive_timeout_ms'] = _UNANSWERED
  _session = session
  _replace_variables(values)
  import ray._raylet
  from ray._private import ray_constants

  # Otherwise Ray replaces 127.0.0.1 by the machine's address to the outside.
  ray_constants.ENABLE_RAY_CLUSTER = session.cluster.ip != state.LOOPBACK
  ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
  ray._raylet.Config.initialize('')


def _ray_variables() -> dict[str, str]:
  return {n: v for n, v in os.environ.items() if n.startswith('RAY_')}


def _replace_variables(values: dict[str, str]) -> None:
  """Sets Ray's variables; RAY_AUTH_TOKEN, say, would go before our file."""
  for name in _ray_variables():
    del os.environ[name]
  os.environ.update(values)


@contextlib.contextmanager
def _only_to(ray_id: str) -> Iterator[None]:
  """Lets Ray connect to this node only.

  Ray takes any node of this machine, and ends the driver when that node leaves.
  """
  from ray._private import services

  usual = services.get_node_to_connect_for_driver
  services.get_node_to_connect_for_driver = lambda address, ip: (
    services.get_node(address, ray_id)
  )
  try:
    yield
  finally:
    services.get_node_to_connect_for_driver = usual


def _silence() -> None:
  """Lets Ray print nothing about lost workers: the caller says it better.

  Nor does it tell the head of an error that ends this process: it would wait for
  the head's answer before it prints the error.
  """
  from ray._private import worker

  worker.print_to_stdstream = lambda *args, **more: None
  if sys.excepthook is worker.custom_excepthook:
    sys.excepthook = worker.normal_excepthook


@contextlib.contextmanager
def _stderr_to(path: pathlib.Path) -> Iterator[None]:
  """Sends what Ray's C++ says of itself to a file."""
  sys.stderr.flush()
  kept = os.dup(2)
  try:
    with open(path, 'w') as file:
      os.dup2(file.fileno(), 2)
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)
