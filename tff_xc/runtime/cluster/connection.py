"""Connects a driver to the cluster of which this machine is a part."""

import contextlib
import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import psutil

from tff_xc import errors
from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

# The Ray resource of which a node has one unit for each of its workers.
RESOURCE = state.RESOURCE
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


@dataclasses.dataclass(frozen=True)
class _Session:
  """A connection: to what, Ray's variables before it, the node's mark and raylet."""

  folder: pathlib.Path
  cluster: state.Cluster
  before: dict[str, str]
  mark: str
  raylet: psutil.Process


_session: _Session | None = None


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
  node, raylet = _node_here(folder, alive)
  head.check_node(folder, cluster, raylet, deadline - time.monotonic())
  workers = sum(n.workers for n in alive)
  if not workers:
    raise errors.InputError(
      f'the cluster at {cluster.address} has no workers: start some with'
      f' `python -m launch.workers start --join={folder / state.JOIN}`'
    )
  process = _raylet(node)
  try:
    import ray

    with _stderr_to(folder / 'driver.log'), _only_to(raylet.ray_id):
      _set_environment(folder, cluster, node.mark, process)
      ray.init(
        address=cluster.address,
        _node_ip_address=node.ip,
        log_to_driver=False,
        logging_level='ERROR',
      )
    _silence()
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


def check(deadline_s: float = 5.0) -> list[head.LiveNode]:
  """Returns the nodes that the connected cluster's head believes alive.

  A run whose workers fail asks this: Ray itself would not say it.

  Args:
    deadline_s: the longest time for the answer, in seconds.

  Raises:
    errors.InputError: the head is gone or silent.
  """
  return head.ask(_session.folder, _session.cluster, deadline_s)


def check_node() -> None:
  """Raises InputError if this machine's node has ended; takes 0.1 ms.

  Ray ends the driver without a word when it next uses the node's store.
  """
  if not processes.is_marked(_session.raylet, [_session.mark]):
    check()
    raise errors.InputError(_NO_NODE)


def has_process(actor) -> bool:
  """Whether an actor has a process, also one that still starts."""
  from ray._private import state as ray_state

  return bool(ray_state.actors(actor._actor_id.hex()).get('Pid'))


def disconnect() -> None:
  """Ends what `connect` began; does nothing if nothing is connected."""
  global _session
  if _session is None:
    return
  import ray

  ray.shutdown()
  _replace_variables(_session.before)
  _session = None


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


def _set_environment(
  folder: pathlib.Path,
  cluster: state.Cluster,
  mark: str,
  raylet: psutil.Process,
) -> None:
  """Sets the variables that Ray reads, also if it was imported before."""
  global _session
  values = state.ray_environment(folder, cluster)
  # Otherwise it prints on stderr, for example that nobody collects metrics.
  values['RAY_BACKEND_LOG_LEVEL'] = 'fatal'
  values['RAY_gcs_rpc_server_reconnect_timeout_s'] = _WITHOUT_HEAD
  values['RAY_grpc_client_keepalive_timeout_ms'] = _UNANSWERED
  _session = _Session(folder, cluster, _ray_variables(), mark, raylet)
  _replace_variables(values)
  import ray._raylet
  from ray._private import ray_constants

  # Otherwise Ray replaces 127.0.0.1 by the machine's address to the outside.
  ray_constants.ENABLE_RAY_CLUSTER = cluster.ip != state.LOOPBACK
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
  """Lets Ray print nothing about lost workers: the caller says it better."""
  from ray._private import worker

  worker.print_to_stdstream = lambda *args, **more: None


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
