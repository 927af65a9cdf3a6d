"""Connects a driver to the cluster of which this machine is a part."""

import atexit
import contextlib
import dataclasses
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

import psutil

from tff_xc import errors
from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state
from tff_xc.runtime.cluster import waiting

# The Ray resource of which a node has one unit for each of its workers.
RESOURCE = state.RESOURCE
_SILENT_NODE = (
  'the node of this machine does not answer any more: run `python -m launch.workers'
  ' stop`, then `start` again'
)
_NO_NODE = (
  'no node runs on this machine any more: run `python -m launch.workers stop`,'
  ' then `start` again'
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
  """A connection: to what, through which node, and Ray's variables before it.

  Attributes:
    folder: of this machine, with the secrets.
    cluster: what it is connected to.
    before: Ray's variables before it.
    mark: of the node's processes.
    node: what the head says of it.
    raylet: the node's own process.
  """

  folder: pathlib.Path
  cluster: state.Cluster
  before: dict[str, str]
  mark: str
  node: head.LiveNode
  raylet: psutil.Process


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
  """Makes this process a driver of the cluster; `disconnect` ends that.

  Args:
    folder: that of `launch.workers`; None: its default folder.
    deadline_s: the longest time that each part of the cluster may take to
      answer, in seconds.

  Returns:
    The number of workers in the cluster: units of the Ray resource `RESOURCE`.

  Raises:
    errors.InputError: no cluster was started here, or a part of it is gone,
      silent, or refuses us; one sentence that says what to do.
  """
  if _session is not None:
    raise RuntimeError('connect was called before; call disconnect first')
  head.check_ray()
  folder = pathlib.Path(folder or state.default_folder()).absolute()
  cluster = state.find_cluster(folder)
  if cluster is None:
    raise errors.InputError(
      'no workers were started here: run `python -m launch.workers start`'
      f' (their folder would be {folder})'
    )
  deadline = time.monotonic() + deadline_s
  alive = head.ask(folder, cluster, deadline_s)
  node, live = _node_here(folder, alive)
  head.check_node(folder, cluster, live, deadline - time.monotonic())
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


def check(deadline_s: float = 5.0) -> list[head.LiveNode]:
  """Returns the nodes that the connected cluster's head believes alive.

  A run whose workers fail asks this: Ray itself would not say it.

  Args:
    deadline_s: the longest time for the answer, in seconds.

  Raises:
    errors.InputError: the head is gone or silent, or has given up our node.
  """
  alive = head.ask(_session.folder, _session.cluster, deadline_s)
  if _session.node.ray_id not in {node.ray_id for node in alive}:
    raise errors.InputError(_SILENT_NODE)
  return alive


def check_node() -> None:
  """Raises InputError if this machine's node has ended; takes 0.1 ms.

  Ray ends the driver without a word when it next uses the node's store.
  """
  if not processes.is_marked(_session.raylet, [_session.mark]):
    check()
    raise errors.InputError(_NO_NODE)


def check_answers(deadline_s: float) -> None:
  """Raises InputError unless the head and this machine's node answer.

  Args:
    deadline_s: the longest time for each answer, in seconds.
  """
  check_node()
  check(deadline_s)
  head.check_node(_session.folder, _session.cluster, _session.node, deadline_s)


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
    has_left = waiting.ends(ray.shutdown, _LEAVE_SECONDS)
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
  folder: pathlib.Path, alive: list[head.LiveNode]
) -> tuple[state.Node, head.LiveNode]:
  """Returns a node of this machine that runs, and what the head says of it."""
  known = {n.ray_id: n for n in alive}
  for node in state.read_nodes(folder):
    ray_id = state.ray_id(folder, node)
    if ray_id in known and processes.marked([node.mark]):
      return node, known[ray_id]
  raise errors.InputError(_NO_NODE)


def _raylet(node: state.Node) -> psutil.Process:
  """Returns the raylet of a node."""
  for process in processes.marked([node.mark]):
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
