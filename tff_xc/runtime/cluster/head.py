"""Asks a cluster's head and nodes whether they live, and know us.

Left alone, Ray fails with an empty message, after minutes or never if the head
is gone or a secret is wrong. These are bare gRPC calls, each with a deadline.
"""

import dataclasses
import importlib.util
import os
import pathlib
import socket

from tff_xc import errors
from tff_xc.runtime.cluster import state

_ANEW = (
  'run `python -m launch.workers stop`, then `start` again (with --join on a machine'
  ' that joined)'
)
# So much longer than a deadline gRPC waits itself, so that the deadline ends a call.
_GRPC_SECONDS = 10.0
_TLS_FILES = ('authority.pem', 'key.pem', 'certificate.pem')


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
  if importlib.util.find_spec('ray') is None:
    raise errors.InputError(
      'Ray is not installed: `make venv-cluster` adds it to .venv'
    )


def ask(
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


def check_node(
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
  """Calls a method without arguments and returns its answer.

  Raises:
    errors.InputError: it fails, or does not answer by the deadline.
  """
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
  options = [('grpc.min_reconnect_backoff_ms', patience)]
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
