"""Starts the processes of one node, with their environment and folders."""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import stat
import subprocess
import sys
import time

from tff_xc import errors
from tff_xc.runtime.cluster import certificates
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

# What a worker reads from its environment.
THREADS_VARIABLE = 'TFF_XC_WORKER_THREADS'
DATA_VARIABLE = 'TFF_XC_WORKER_DATA_DIR'
# A node takes 3 to 8 s to start, on a busy machine longer.
_START_S = 120.0


@dataclasses.dataclass(frozen=True)
class Workers:
  """The workers that a node announces.

  Attributes:
    number: how many.
    threads: how many clients each trains at a time; 0: the cores, shared.
    data_dir: this machine's own copy of the data; '' if it has none.
  """

  number: int = 1
  threads: int = 0
  data_dir: str = ''


def write_secrets(
  folder: pathlib.Path, cluster: state.Cluster, ip: str
) -> None:
  """Writes what Ray's processes and drivers of this machine must know."""
  state.write_cluster(folder, cluster)
  ips = [n.ip for n in state.read_nodes(folder)]
  if cluster.uses_tls and ip not in ips:
    certificates.write(folder, cluster, [*ips, ip, state.LOOPBACK])


def launch(
  folder: pathlib.Path,
  cluster: state.Cluster,
  workers: Workers,
  ip: str,
  is_head: bool,
) -> state.Node:
  """Starts a node's process and waits until the node runs.

  Raises:
    errors.InputError: it does not; only its log is left then.
  """
  _make_ray_folder(cluster.ray_folder)
  names = [int(n.name) for n in state.read_nodes(folder)]
  node = state.Node(
    name=str(max(names, default=0) + 1),
    mark=secrets.token_hex(16),
    ip=ip,
    is_head=is_head,
    workers=workers.number,
    threads=workers.threads,
    data_dir=workers.data_dir,
  )
  ready = state.node_file(folder, node.name, 'ready')
  log = state.node_file(folder, node.name, 'log')
  ready.unlink(missing_ok=True)
  if log.exists():  # Of a node that ended by itself.
    log.replace(log.with_suffix('.old'))
  # Written before anything runs, so that `stop` finds what it must end.
  state.write_node(folder, node)
  try:
    with open(log, 'wb', opener=_private) as output:
      child = subprocess.Popen(
        _command(cluster, node, ready),
        env=_environment(folder, cluster, node),
        cwd='/',
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o077,
      )
    node = dataclasses.replace(node, pid=child.pid)
    state.write_node(folder, node)
    deadline = time.monotonic() + _START_S
    while not ready.exists():
      if child.poll() is not None or time.monotonic() > deadline:
        raise errors.InputError(_why_not(log, child.returncode))
      time.sleep(0.1)
    return node
  except BaseException as e:
    processes.end([node.mark], [node.pid])
    state.remove_node(folder, node, keeps_log=True)
    if not isinstance(e, OSError):
      raise
    raise errors.InputError(
      f'the node cannot be started ({e}): see that the machine has room on its'
      ' disk, memory and processes left'
    ) from e


def _command(
  cluster: state.Cluster, node: state.Node, ready: pathlib.Path
) -> list[str]:
  settings = {
    'name': node.name,
    'ip': node.ip,
    'workers': node.workers,
    'resource': state.RESOURCE,
    'ready': str(ready.absolute()),
  }
  if node.is_head:
    settings |= {
      'port': cluster.port,
      'ray_folder': f'{cluster.ray_folder}/ray',
    }
  else:
    settings |= {'address': cluster.address}
  module = 'tff_xc.runtime.cluster.ray_node'
  return [sys.executable, '-m', module, json.dumps(settings)]


def _environment(
  folder: pathlib.Path, cluster: state.Cluster, node: state.Node
) -> dict[str, str]:
  """Returns the environment of a node's processes, its workers among them."""
  given = {k: v for k, v in os.environ.items() if not k.startswith('RAY_')}
  return {
    **given,
    **state.ray_environment(folder.absolute(), cluster),
    processes.MARK: node.mark,
    processes.CLUSTER_MARK: cluster.ray_folder,
    'PYTHONPATH': processes.program_path(),
    THREADS_VARIABLE: str(node.threads),
    DATA_VARIABLE: node.data_dir,
  }


def _make_ray_folder(path: str) -> None:
  """Makes the folder in which Ray's folder lies, which Ray opens to everybody.

  It is the same on every machine, as Ray wants, and short, since the path of a
  socket has at most 107 bytes.
  """
  try:
    with contextlib.suppress(FileExistsError):
      os.mkdir(path, mode=0o700)
    found = os.lstat(path)
  except OSError as e:
    raise errors.InputError(f'{path} cannot be made ({e.strerror})') from e
  is_ours = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
  if not is_ours or found.st_mode & 0o077:
    raise errors.InputError(
      f'{path}, the folder of this cluster on every machine, belongs to somebody'
      ' else here or is open to others: start the head anew'
    )


def _private(path: str, flags: int) -> int:
  return os.open(path, flags, 0o600)


def _why_not(log: pathlib.Path, status: int | None) -> str:
  lines = log.read_text(errors='replace').split('\n')
  last = next((line for line in reversed(lines) if line.strip()), 'no output')
  within = f' within {_START_S:.0f} s' if status is None else ''
  return f'the node does not start{within} ({last}); {log} has its output'
