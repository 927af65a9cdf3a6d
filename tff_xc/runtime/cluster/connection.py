"""Connects a driver to the cluster of which this machine is a part.

Left alone, Ray fails with an empty message, after minutes or never if the head
is gone, or a secret is wrong. So each part is asked first, by bare gRPC calls
with a deadline.
"""

import contextlib
import dataclasses
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator

from tff_xc import errors
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

# The Ray resource of which a node has one unit for each of its workers.
RESOURCE = 'tff_xc_worker'
_GCS = '/ray.rpc.NodeInfoGcsService/'
_before: dict[str, str | None] = {}


@dataclasses.dataclass(frozen=True)
class LiveNode:
  """A node that the head believes alive.

  Attributes:
    ray_id: in hexadecimal digits.
    address: 'IP:PORT' of its raylet.
    workers: how many it announces.
  """

  ray_id: str
  address: str
  workers: int


def check_ray() -> None:
  """Raises InputError unless Ray is installed; does not import it."""
  import importlib.util

  if importlib.util.find_spec('ray') is None:
    raise errors.InputError(
      'Ray is not installed: `make venv-cluster` adds it to .venv'
    )


def ask_head(
  folder: pathlib.Path, cluster: state.Cluster, deadline_s: float
) -> list[LiveNode]:
  """Returns the nodes that the head believes alive, on all machines.

  Args:
    folder: of this machine, with the secrets.
    cluster: the cluster.
    deadline_s: the longest time for the answer, in seconds.

  Raises:
    errors.InputError: no head answers there, or it refuses us, in one sentence.
  """
  check_ray()
  _check_port(cluster, deadline_s)
  reply = _call(
    folder, cluster, cluster.address, f'{_GCS}GetAllNodeInfo', deadline_s
  )
  from ray.core.generated import gcs_pb2
  from ray.core.generated import gcs_service_pb2

  nodes = gcs_service_pb2.GetAllNodeInfoReply.FromString(reply).node_info_list
  return [
    LiveNode(
      n.node_id.hex(),
      f'{n.node_manager_address}:{n.node_manager_port}',
      int(n.resources_total.get(RESOURCE, 0)),
    )
    for n in nodes
    if n.state == gcs_pb2.GcsNodeInfo.ALIVE
  ]


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
  check_ray()
  folder = pathlib.Path(folder or state.default_folder()).absolute()
  cluster = state.find_cluster(folder)
  if cluster is None:
    raise errors.InputError(
      'no workers were started here: run `python -m launch.workers start`'
      f' (their folder would be {folder})'
    )
  deadline = time.monotonic() + deadline_s
  alive = ask_head(folder, cluster, deadline_s)
  node, raylet = _node_here(folder, alive)
  _call(
    *(folder, cluster, raylet.address),
    *('/grpc.health.v1.Health/Check', deadline - time.monotonic()),
  )
  workers = sum(n.workers for n in alive)
  if not workers:
    raise errors.InputError(
      f'the cluster at {cluster.address} has no workers: start some with'
      f' `python -m launch.workers start --join={folder / state.JOIN}`'
    )
  try:
    import ray

    with _stderr_to(folder / 'driver.log'):
      _set_environment(state.ray_environment(folder, cluster), cluster)
      ray.init(
        address=cluster.address,
        _node_ip_address=node.ip,
        log_to_driver=False,
        logging_level='ERROR',
      )
  except Exception as e:
    disconnect()
    reason = str(e).split('\n')[0] or type(e).__name__
    raise errors.InputError(
      f'Ray cannot connect to {cluster.address} ({reason}): try'
      ' `python -m launch.workers stop` and `start`'
    ) from e
  return workers


def disconnect() -> None:
  """Ends what `connect` began; does nothing if nothing is connected."""
  import ray

  ray.shutdown()
  for name, value in _before.items():
    if value is None:
      os.environ.pop(name, None)
    else:
      os.environ[name] = value
  _before.clear()


def _node_here(
  folder: pathlib.Path, alive: list[LiveNode]
) -> tuple[state.Node, LiveNode]:
  """Returns a node of this machine that runs, and what the head says of it."""
  known = {n.ray_id: n for n in alive}
  for node in state.read_nodes(folder):
    ray_id = state.ray_id(folder, node)
    if ray_id in known and processes.marked([node.mark]):
      return node, known[ray_id]
  raise errors.InputError(
    'no node runs on this machine any more: run `python -m launch.workers stop`,'
    ' then `start` again'
  )


def _set_environment(values: dict[str, str], cluster: state.Cluster) -> None:
  """Sets the variables that Ray reads, also if it was imported before."""
  others = [n for n in os.environ if n.startswith('RAY_') and n not in values]
  _before.update({name: os.environ.get(name) for name in [*values, *others]})
  os.environ.update(values)
  for name in others:  # RAY_AUTH_TOKEN would go before ours, for example.
    del os.environ[name]
  import ray._raylet
  from ray._private import ray_constants

  ray_constants.ENABLE_RAY_CLUSTER = cluster.ip != state.LOOPBACK
  ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
  ray._raylet.Config.initialize('')


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
  """Calls a method without arguments and returns its answer.

  Raises:
    errors.InputError: it fails, or does not answer by the deadline.
  """
  os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
  import grpc

  if cluster.uses_tls:
    credentials = grpc.ssl_channel_credentials(
      *((folder / f).read_bytes() for f in _TLS_FILES)
    )
    channel = grpc.secure_channel(address, credentials)
  else:
    channel = grpc.insecure_channel(address)
  token = (folder / 'token').read_text()
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


_TLS_FILES = ('authority.pem', 'key.pem', 'certificate.pem')


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
        ' run `python -m launch.workers stop`, then `start` again'
      )
    case grpc.StatusCode.UNAVAILABLE:
      return (
        f'what listens at {address} is no cluster, or has other certificates:'
        f' {anew}'
      )
  return (
    f'what listens at {address} is no cluster ({error.code().name}): {anew}'
  )
