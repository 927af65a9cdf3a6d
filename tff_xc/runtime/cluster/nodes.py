"""Starts, reports and ends the nodes of a cluster on this machine."""

import contextlib
import dataclasses
import ipaddress
import json
import os
import pathlib
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from tff_xc import errors
from tff_xc.runtime.cluster import certificates
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import state

# What a worker reads from its environment.
THREADS_VARIABLE = 'TFF_XC_WORKER_THREADS'
DATA_VARIABLE = 'TFF_XC_WORKER_DATA_DIR'
# A node takes 3 to 8 s to start, on a busy machine longer.
_START_S = 120.0
_ANSWER_S = 10.0


class Workers(NamedTuple):
  """The workers that a node announces; see `state.Node`."""

  number: int = 1
  threads: int = 0  # 0: the cores, shared.
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
  """Starts a node's process and waits until the node runs."""
  _make_ray_folder(cluster.ray_folder)
  names = [int(n.name) for n in state.read_nodes(folder)]
  name = str(max(names, default=0) + 1)
  node = state.Node(name, secrets.token_hex(16), ip, is_head, *workers)
  ready = state.node_file(folder, node.name, 'ready')
  log = state.node_file(folder, node.name, 'log')
  ready.unlink(missing_ok=True)
  if log.exists():  # Of a node that ended by itself.
    log.replace(log.with_suffix('.old'))
  # Written before anything runs, so that `stop` finds what it must end.
  state.write_node(folder, node)
  try:
    with open(log, 'wb', opener=state.open_private) as output:
      child = psutil.Popen(
        _command(cluster, node, ready),
        env=_environment(folder, cluster, node),
        cwd='/',
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o077,
      )
    # Until its program is loaded its mark cannot be read, and it would not be ended.
    while child.poll() is None and not state.is_marked(child, [node.mark]):
      time.sleep(0.001)
    node = dataclasses.replace(node, pid=child.pid)
    state.write_node(folder, node)
    deadline = time.monotonic() + _START_S
    while not ready.exists():
      if child.poll() is not None or time.monotonic() > deadline:
        raise errors.InputError(_why_not(log, child.returncode))
      time.sleep(0.1)
    return node
  except BaseException as e:
    state.end_marked([node.mark], [node.pid])
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
  params = {
    'node_name': node.name,
    'node_ip_address': node.ip,
    # The actors that serve as workers are the only users of CPUs.
    'num_cpus': node.workers,
    'resources': {state.RESOURCE: node.workers} if node.workers else {},
  }
  if node.is_head:
    params |= {
      'gcs_server_port': cluster.port,
      'temp_dir': f'{cluster.ray_folder}/ray',
      'include_dashboard': False,
    }
  else:
    params['gcs_address'] = cluster.address
  settings = json.dumps([params, node.is_head, str(ready.absolute())])
  return [sys.executable, '-m', 'tff_xc.runtime.cluster.ray_node', settings]


def _environment(
  folder: pathlib.Path, cluster: state.Cluster, node: state.Node
) -> dict[str, str]:
  """Returns the environment of a node's processes, its workers among them."""
  given = {k: v for k, v in os.environ.items() if not k.startswith('RAY_')}
  return {
    'TF_CPP_MIN_LOG_LEVEL': '2',
    **given,
    **state.ray_environment(folder.absolute(), cluster),
    state.MARK: node.mark,
    state.CLUSTER_MARK: cluster.ray_folder,
    'PYTHONPATH': state.program_path(),
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


def _why_not(log: pathlib.Path, status: int | None) -> str:
  lines = log.read_text(errors='replace').split('\n')
  last = next((line for line in reversed(lines) if line.strip()), 'no output')
  within = f' within {_START_S:.0f} s' if status is None else ''
  return f'the node does not start{within} ({last}); {log} has its output'


@dataclasses.dataclass(frozen=True)
class Found:
  """A node of this machine and its living processes: pids."""

  node: state.Node
  pids: tuple[int, ...]

  @property
  def is_alive(self) -> bool:
    return self.node.pid in self.pids


def start(
  folder: pathlib.Path,
  workers: Workers,
  ip: str = state.LOOPBACK,
  port: int = 0,
) -> state.Node:
  """Starts a cluster: its head, on this machine, with some workers, or none.

  Any address but 127.0.0.1 needs and gets TLS: Ray then listens on all addresses.
  """
  check_ip(ip)
  with _changing(folder, workers) as workers:
    _refuse_second(folder)
    port = _free_port(ip, port)
    authority = ('', '')
    if ip != state.LOOPBACK:
      authority = certificates.make_authority()
    cluster = state.Cluster(
      f'{ip}:{port}',
      secrets.token_hex(32),
      f'/tmp/tff_xc_{secrets.token_hex(4)}',
      *authority,
    )
    try:
      write_secrets(folder, cluster, ip)
      return launch(folder, cluster, workers, ip, is_head=True)
    except BaseException:
      _forget(folder, [])
      raise


def join(
  folder: pathlib.Path,
  file: pathlib.Path,
  workers: Workers,
  ip: str = '',
) -> state.Node:
  """Starts a node of the cluster of `file`; `ip` is '' for this machine's own."""
  with _changing(folder, workers) as workers:
    cluster = state.read_cluster(file)
    if state.find_cluster(folder) != cluster:
      _refuse_second(folder)
    ip = _own_ip(cluster, ip)
    try:
      write_secrets(folder, cluster, ip)
      connection.ask(folder, cluster, _ANSWER_S)
      return launch(folder, cluster, workers, ip, is_head=False)
    except BaseException:
      _forget(folder, [])
      raise


def find(folder: pathlib.Path) -> list[Found]:
  """Returns the nodes that were started here, also those that have ended."""
  if not state.is_made(folder):
    return []
  return [
    Found(n, tuple(p.pid for p in state.marked([n.mark])))
    for n in state.read_nodes(folder)
  ]


def stop(folder: pathlib.Path, name: str = '') -> int:
  """Ends all nodes here, or one, and removes their files; returns their number.

  The log of a node that had ended by itself stays.
  """
  if not state.is_made(folder):
    return 0
  with state.locked(folder):
    found = find(folder)
    chosen = [f for f in found if name in ('', f.node.name)]
    if name and not chosen:
      known = ', '.join(f.node.name for f in found) or 'none'
      raise errors.InputError(f'there is no node {name}: the nodes are {known}')
    state.end_marked(
      [f.node.mark for f in chosen], [f.node.pid for f in chosen]
    )
    _forget(folder, chosen)
    return len(chosen)


@contextlib.contextmanager
def _changing(folder: pathlib.Path, workers: Workers) -> Iterator[Workers]:
  """Makes and locks the folder; yields the workers with all values resolved."""
  connection.check_ray()
  if workers.data_dir and not os.path.exists(workers.data_dir):
    raise errors.InputError(
      f"--data_dir={workers.data_dir} does not exist: name this machine's own copy"
      " of the run's --data_dir, or leave it out"
    )
  state.make_folder(folder)
  cores = len(os.sched_getaffinity(0))
  with state.locked(folder):
    yield workers._replace(
      threads=workers.threads or max(1, cores // max(1, workers.number)),
      data_dir=os.path.abspath(workers.data_dir) if workers.data_dir else '',
    )


def check_ip(ip: str) -> None:
  """Raises InputError unless `ip` is an IPv4 address that can be one machine's."""
  with contextlib.suppress(ValueError):
    found = ipaddress.IPv4Address(ip)
    if not (found.is_unspecified or found.is_multicast or found.is_reserved):
      return
  raise errors.InputError(
    f'--listen={ip} is no IPv4 address of this machine: name the one at which the'
    ' other machines reach it'
  )


def _refuse_second(folder: pathlib.Path) -> None:
  """Raises InputError if nodes run here, and removes traces of ended ones."""
  found = find(folder)
  if any(f.pids for f in found):
    raise errors.InputError(
      f'nodes run here already ({folder}): `start --join={folder / state.JOIN}`'
      ' adds one, `stop` ends them'
    )
  _forget(folder, found)


def _free_port(ip: str, port: int = 0) -> int:
  """Returns a port of `ip` on which nothing listens: `port` unless it is 0."""
  with socket.socket() as listener:
    try:
      listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      listener.bind((ip, port))
    except OSError as e:
      raise errors.InputError(
        f'nothing can listen on {ip}:{port} ({e.strerror}): --listen must be an'
        ' address of this machine, and --port a free port'
      ) from e
    return listener.getsockname()[1]


def _own_ip(cluster: state.Cluster, ip: str) -> str:
  """Returns the address of this machine for the nodes of the cluster."""
  if ip:
    check_ip(ip)
    if (cluster.ip == state.LOOPBACK) != (ip == state.LOOPBACK):
      raise errors.InputError(
        f'the head listens on {cluster.ip} and --listen is {ip}: both must be'
        f' {state.LOOPBACK}, or neither'
      )
    _free_port(ip)
    return ip
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    try:  # Sends nothing.
      probe.connect((cluster.ip, cluster.port))
    except OSError as e:
      raise errors.InputError(
        f'there is no route to the head at {cluster.address} ({e.strerror})'
      ) from e
    return probe.getsockname()[0]


def _forget(folder: pathlib.Path, ended: list[Found]) -> None:
  """Removes the files of nodes, and with the last node those of the cluster.

  Ray's files stay while another folder's node of the cluster uses them, and so do
  the logs of nodes that did not run when they were found.
  """
  if len(state.read_nodes(folder)) == len(ended):
    with contextlib.suppress(errors.InputError):  # join.json is damaged.
      cluster = state.find_cluster(folder)
      if cluster and not state.marked([cluster.ray_folder], state.CLUSTER_MARK):
        shutil.rmtree(cluster.ray_folder, ignore_errors=True)
    state.remove_cluster(folder)
  for found in ended:
    state.remove_node(folder, found.node, keeps_log=not found.is_alive)
