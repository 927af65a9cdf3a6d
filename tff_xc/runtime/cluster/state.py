"""What a machine keeps of a cluster: a folder that only its user can read.

join.json     how to reach the cluster: address, token, certificate authority
token, *.pem  the same secrets, and this machine's certificate, as Ray's files
nodes/N.json  what was started here; nodes/N.log is its output, which stays if
              the node ends by itself, as nodes/N.old after the next `start`

Only what is listed here is removed. `own_folder` makes the folder.
"""

import dataclasses
import ipaddress
import json
import os
import pathlib
import re
from typing import Any

from tff_xc import errors
from tff_xc.runtime.cluster import own_folder

# The environment variable that names the folder.
VARIABLE = 'TFF_XC_CLUSTER'
JOIN = 'join.json'
LOOPBACK = '127.0.0.1'
# The Ray resource of which a node has one unit for each of its workers.
RESOURCE = 'tff_xc_worker'
_SECRETS = ('token', 'authority.pem', 'certificate.pem', 'key.pem')
_PEM = r'(-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+-----END [A-Z ]+-----\n)?'
# Also keeps a file of somebody else from naming another folder for removal.
_FORMS = {
  'address': r'\d+\.\d+\.\d+\.\d+:\d+',
  'token': r'[0-9a-f]{64}',
  'ray_folder': r'/tmp/tff_xc_[0-9a-f]{8}',
  'authority': _PEM,
  'authority_key': _PEM,
}


@dataclasses.dataclass(frozen=True)
class Cluster:
  """How to reach a cluster; whoever has this can run any code in it.

  Attributes:
    address: the head's 'IP:PORT'.
    token: what every call must carry.
    ray_folder: the folder of Ray's own files, the same on every machine.
    authority, authority_key: certificate authority in PEM; '' without TLS.
  """

  address: str
  token: str
  ray_folder: str
  authority: str = ''
  authority_key: str = ''

  @property
  def ip(self) -> str:
    return self.address.rpartition(':')[0]

  @property
  def port(self) -> int:
    return int(self.address.rpartition(':')[2])

  @property
  def uses_tls(self) -> bool:
    return bool(self.authority)


@dataclasses.dataclass(frozen=True)
class Node:
  """A node that was started on this machine.

  Attributes:
    name: '1', '2', ... in the order of their start.
    mark: the value of `processes.MARK` in the environment of its processes.
    pid: of the process that ends the others; 0 until it runs.
    ip: the address at which other nodes reach it.
    is_head: whether the cluster ends with it.
    workers: how many workers it announces.
    threads: how many clients a worker trains at a time.
    data_dir: this machine's own copy of the data; '' if it has none.
  """

  name: str
  mark: str
  ip: str
  is_head: bool
  workers: int
  threads: int
  data_dir: str
  pid: int = 0


def default_folder() -> pathlib.Path:
  """Returns $TFF_XC_CLUSTER, else tff_xc/cluster of the XDG state folder."""
  chosen = os.environ.get(VARIABLE)
  if chosen:
    return expanded(chosen)
  states = os.environ.get('XDG_STATE_HOME', '')
  if not os.path.isabs(states):
    states = '~/.local/state'
  return expanded(states) / 'tff_xc' / 'cluster'


def expanded(path: str) -> pathlib.Path:
  """Returns a path whose ~ is replaced.

  Raises:
    errors.InputError: nobody knows that home directory.
  """
  try:
    return pathlib.Path(path).expanduser()
  except RuntimeError as e:
    raise errors.InputError(
      f'the ~ of {path} is no known home directory: name a path without ~, for'
      f' the folder of workers with --folder or ${VARIABLE}'
    ) from e


def is_token(text: str) -> bool:
  """Whether this could be the token of a cluster."""
  return bool(re.fullmatch(_FORMS['token'], text))


def write_cluster(folder: pathlib.Path, cluster: Cluster) -> None:
  """Writes join.json and the files of secrets that are the same everywhere."""
  # First, since `remove` knows by it that the others are ours.
  own_folder.write(
    folder / JOIN, json.dumps(dataclasses.asdict(cluster), indent=1)
  )
  own_folder.write(folder / 'token', cluster.token)
  if cluster.uses_tls:
    own_folder.write(folder / 'authority.pem', cluster.authority)


def read_cluster(path: pathlib.Path) -> Cluster:
  """Reads a file join.json.

  Raises:
    errors.InputError: there is none, or it is not one.
  """
  try:
    cluster = Cluster(**json.loads(path.read_text(encoding='utf-8')))
    for name, pattern in _FORMS.items():
      if not re.fullmatch(pattern, getattr(cluster, name)):
        raise ValueError(name)
    ipaddress.IPv4Address(cluster.ip)
    if not 0 < cluster.port < 2**16:
      raise ValueError(cluster.port)
    return cluster
  except OSError as e:
    raise errors.InputError(
      f'{path} cannot be read ({e.strerror}): copy {JOIN} from the machine of the'
      ' head, or there `stop` and `start` anew'
    ) from e
  except (ValueError, TypeError) as e:
    raise errors.InputError(
      f'{path} is no file {JOIN} of a cluster of this version: copy it anew from'
      ' the machine of the head'
    ) from e


def find_cluster(folder: pathlib.Path) -> Cluster | None:
  """Returns the cluster of which this machine is a part, if there is one."""
  path = folder / JOIN
  return read_cluster(path) if path.exists() else None


def node_file(folder: pathlib.Path, name: str, suffix: str) -> pathlib.Path:
  return folder / own_folder.NODES / f'{name}.{suffix}'


def write_node(folder: pathlib.Path, node: Node) -> None:
  path = node_file(folder, node.name, 'json')
  own_folder.write(path, json.dumps(dataclasses.asdict(node)))


def read_nodes(folder: pathlib.Path) -> list[Node]:
  """Returns the nodes that were started here, in their order.

  Raises:
    errors.InputError: a file is damaged.
  """
  paths = [
    p
    for p in (folder / own_folder.NODES).glob('*.json')
    if re.fullmatch('[0-9]+', p.stem)
  ]
  return [_read_node(p) for p in sorted(paths, key=lambda p: int(p.stem))]


def _read_node(path: pathlib.Path) -> Node:
  try:
    values: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
    node = Node(**values)
    if node.name != path.stem:  # Names the files that `stop` removes.
      raise ValueError(node.name)
    return node
  except (OSError, ValueError, TypeError) as e:
    raise errors.InputError(
      f'{path} is damaged: end what it describes by hand and remove it'
    ) from e


def ray_id(folder: pathlib.Path, node: Node) -> str:
  """Returns the id that Ray gave a node, or '' before the node runs."""
  ready = node_file(folder, node.name, 'ready')
  return ready.read_text() if ready.exists() else ''


def remove_node(
  folder: pathlib.Path, node: Node, keeps_log: bool = False
) -> None:
  """Removes the files of a node that has ended; `keeps_log`: but not its log."""
  logs = () if keeps_log else ('log', 'old')
  for suffix in (*logs, 'ready', 'new', 'json'):
    _remove(node_file(folder, node.name, suffix))


def remove_cluster(folder: pathlib.Path) -> None:
  """Removes join.json and its files if there are it or a node's record.

  Without either, files of these names are not ours.
  """
  if (folder / JOIN).exists() or read_nodes(folder):
    for name in (*_SECRETS, 'driver.log', JOIN):
      _remove(folder / name)


def _remove(path: pathlib.Path) -> None:
  """Removes a file, and what a killed `write` left of it."""
  path.unlink(missing_ok=True)
  for new in path.parent.glob(f'.{path.name}.*'):
    if re.fullmatch('[0-9]+', new.suffix[1:]):
      new.unlink(missing_ok=True)


def ray_environment(folder: pathlib.Path, cluster: Cluster) -> dict[str, str]:
  """Returns the variables that Ray reads, of nodes and of drivers."""
  found = {
    'RAY_AUTH_MODE': 'token',
    'RAY_AUTH_TOKEN_PATH': str(folder / 'token'),
    'RAY_USAGE_STATS_ENABLED': '0',
    # The head would remember every task, 3 kB each, for nobody who asks.
    'RAY_task_events_report_interval_ms': '0',
    # Workers that ask for no GPU see the machine's GPUs all the same.
    'RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO': '0',
    # A machine that does not answer is given up after 20 s, not after 60.
    'RAY_health_check_period_ms': '2000',
    'RAY_health_check_timeout_ms': '5000',
    'RAY_health_check_failure_threshold': '3',
  }
  if cluster.uses_tls:
    found |= {
      'RAY_USE_TLS': '1',
      'RAY_TLS_SERVER_CERT': str(folder / 'certificate.pem'),
      'RAY_TLS_SERVER_KEY': str(folder / 'key.pem'),
      'RAY_TLS_CA_CERT': str(folder / 'authority.pem'),
    }
  return found
