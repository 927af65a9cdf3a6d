"""Starts, reports and ends the nodes of a cluster on this machine."""

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import secrets
import shutil
import socket
from collections.abc import Iterator

from tff_xc import errors
from tff_xc.runtime.cluster import certificates
from tff_xc.runtime.cluster import head
from tff_xc.runtime.cluster import launching
from tff_xc.runtime.cluster import own_folder
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

_ANSWER_S = 10.0


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
  workers: launching.Workers,
  ip: str = state.LOOPBACK,
  port: int = 0,
) -> state.Node:
  """Starts a cluster: its head, on this machine, with some workers.

  Args:
    folder: keeps what was started.
    workers: of this node; there may be none.
    ip: the address to listen on. Any other than 127.0.0.1 needs and gets TLS,
      since Ray then listens on all addresses of the machine.
    port: of the head; 0: a free one.

  Raises:
    errors.InputError: a cluster was started here before, or it does not start.
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
      launching.write_secrets(folder, cluster, ip)
      return launching.launch(folder, cluster, workers, ip, is_head=True)
    except BaseException:
      _forget(folder, [])
      raise


def join(
  folder: pathlib.Path,
  file: pathlib.Path,
  workers: launching.Workers,
  ip: str = '',
) -> state.Node:
  """Starts a node that joins the cluster which a file join.json describes.

  Args:
    folder: keeps what was started.
    file: join.json.
    workers: of this node.
    ip: this machine's address for the other machines; '': the one from which
      the head is reached.

  Raises:
    errors.InputError: this machine is part of another cluster, the head does
      not answer, or the node does not start.
  """
  with _changing(folder, workers) as workers:
    cluster = state.read_cluster(file)
    if state.find_cluster(folder) != cluster:
      _refuse_second(folder)
    ip = _own_ip(cluster, ip)
    try:
      launching.write_secrets(folder, cluster, ip)
      head.ask(folder, cluster, _ANSWER_S)
      return launching.launch(folder, cluster, workers, ip, is_head=False)
    except BaseException:
      _forget(folder, [])
      raise


def find(folder: pathlib.Path) -> list[Found]:
  """Returns the nodes that were started here, also those that have ended.

  Raises:
    errors.InputError: the folder holds other files than a cluster's, or damaged
      ones.
  """
  if not own_folder.is_made(folder):
    return []
  return [
    Found(n, tuple(p.pid for p in processes.marked([n.mark])))
    for n in state.read_nodes(folder)
  ]


def stop(folder: pathlib.Path, name: str = '') -> int:
  """Ends what was started here, and removes its files.

  The log of a node that had ended by itself stays.

  Args:
    folder: the folder of `start`.
    name: of one node; '': all nodes.

  Returns:
    The number of nodes that were ended, also those of which nothing was left.

  Raises:
    errors.InputError: there is no such node, something does not end, or the
      folder holds other files than a cluster's.
  """
  if not own_folder.is_made(folder):
    return 0
  with own_folder.locked(folder):
    found = find(folder)
    chosen = [f for f in found if name in ('', f.node.name)]
    if name and not chosen:
      known = ', '.join(f.node.name for f in found) or 'none'
      raise errors.InputError(f'there is no node {name}: the nodes are {known}')
    processes.end([f.node.mark for f in chosen], [f.node.pid for f in chosen])
    _forget(folder, chosen)
    return len(chosen)


@contextlib.contextmanager
def _changing(
  folder: pathlib.Path, workers: launching.Workers
) -> Iterator[launching.Workers]:
  """Makes and locks the folder; yields the workers with all values resolved."""
  head.check_ray()
  if workers.data_dir and not os.path.exists(workers.data_dir):
    raise errors.InputError(
      f"--data_dir={workers.data_dir} does not exist: name this machine's own copy"
      " of the run's --data_dir, or leave it out"
    )
  own_folder.make(folder)
  cores = len(os.sched_getaffinity(0))
  with own_folder.locked(folder):
    yield dataclasses.replace(
      workers,
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
      if cluster and not processes.marked(
        [cluster.ray_folder], processes.CLUSTER_MARK
      ):
        shutil.rmtree(cluster.ray_folder, ignore_errors=True)
    state.remove_cluster(folder)
  for found in ended:
    state.remove_node(folder, found.node, keeps_log=not found.is_alive)
