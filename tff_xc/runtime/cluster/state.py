"""What a machine keeps of a cluster: a folder that only its user can read.

join.json     how to reach the cluster: address, token, certificate authority
token, *.pem  the same secrets, and this machine's certificate, as Ray's files
nodes/N.json  what was started here; nodes/N.log is its output, which stays if
              the node ends by itself, as nodes/N.old after the next `start`

tff_xc.lock   says by its name that `make_folder` made the folder; a folder without
              it is never changed

Only what is listed here is removed. The processes of a node are found by a mark in
their environment: every process that a node starts inherits it, also one whose parent
was killed or that made a session of its own, and no other process ever gets it. A pid
that the system gave to another process is therefore never taken for ours.
"""

import contextlib
import dataclasses
import ipaddress
import json
import os
import pathlib
import re
import time
from collections.abc import Collection
from collections.abc import Iterator
from typing import Any

import psutil

from tff_xc import errors
from tff_xc import home
from tff_xc import lock

# The environment variable that names the folder.
VARIABLE = 'TFF_XC_CLUSTER'
JOIN = 'join.json'
LOOPBACK = '127.0.0.1'
# The Ray resource of which a node has one unit for each of its workers.
RESOURCE = 'tff_xc_worker'
NODES = 'nodes'  # The folder of the nodes' files.
_LOCK = 'tff_xc.lock'
# Marks of a node's processes, and of those of a cluster.
MARK = 'TFF_XC_CLUSTER_NODE'
CLUSTER_MARK = 'TFF_XC_CLUSTER_FILES'
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
  """How to reach a cluster; whoever has this can run any code in it."""

  address: str  # The head's 'IP:PORT'.
  token: str  # What every call must carry.
  ray_folder: str  # Of Ray's own files, the same on every machine.
  authority: str = ''  # Certificate in PEM; '' without TLS.
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
  """A node that was started on this machine."""

  name: str  # '1', '2', ... in the order of their start.
  mark: str  # The value of `MARK` in the environment of its processes.
  ip: str  # The address at which other nodes reach it.
  is_head: bool  # Whether the cluster ends with it.
  workers: int  # How many workers it announces.
  threads: int  # How many clients a worker trains at a time.
  data_dir: str  # This machine's own copy of the data; '' if it has none.
  pid: int = 0  # Of the process that ends the others; 0 until it runs.


def default_folder() -> pathlib.Path:
  """Returns $TFF_XC_CLUSTER, else tff_xc/cluster of the XDG state folder."""
  if chosen := os.environ.get(VARIABLE):
    return pathlib.Path(home.expanded(chosen))
  return home.folder('XDG_STATE_HOME', '.local/state') / 'cluster'


def is_token(text: str) -> bool:
  """Whether this could be the token of a cluster."""
  return bool(re.fullmatch(_FORMS['token'], text))


def write_cluster(folder: pathlib.Path, cluster: Cluster) -> None:
  """Writes join.json and the files of secrets that are the same everywhere."""
  # First, since `remove_cluster` knows by it that the others are ours.
  write_private(
    folder / JOIN, json.dumps(dataclasses.asdict(cluster), indent=1)
  )
  write_private(folder / 'token', cluster.token)
  if cluster.uses_tls:
    write_private(folder / 'authority.pem', cluster.authority)


def read_cluster(path: pathlib.Path) -> Cluster:
  """Reads a file join.json."""
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
  return folder / NODES / f'{name}.{suffix}'


def write_node(folder: pathlib.Path, node: Node) -> None:
  path = node_file(folder, node.name, 'json')
  write_private(path, json.dumps(dataclasses.asdict(node)))


def read_nodes(folder: pathlib.Path) -> list[Node]:
  """Returns the nodes that were started here, in their order."""
  paths = [
    p for p in (folder / NODES).glob('*.json') if re.fullmatch('[0-9]+', p.stem)
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
  """Removes a file, and what a killed `write_private` left of it."""
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


@contextlib.contextmanager
def _using(folder: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except OSError as e:
    raise errors.InputError(
      f'{folder} cannot be used for the cluster ({e.strerror}): name another'
      f' folder with --folder or ${VARIABLE}'
    ) from e


def is_made(folder: pathlib.Path) -> bool:
  """Whether `make_folder` made the folder; not if there is none, or an empty one."""
  with _using(folder):
    try:
      names = set(os.listdir(folder))
      is_open = folder.stat().st_mode & 0o077
    except FileNotFoundError:
      return False
  # Earlier versions made `lock`, `nodes`, and the folder private.
  if _LOCK in names or ({'lock', NODES} <= names and not is_open):
    return True
  if names:
    raise errors.InputError(
      f'{folder} holds other files than those of a cluster, and is left alone:'
      ' name a folder that `start` made, or for `start` an empty or a new one'
    )
  return False


def make_folder(folder: pathlib.Path) -> None:
  """Makes the folder, for its user only."""
  with _using(folder):
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_made(folder)
    found = folder.stat()
    if found.st_uid != os.getuid():
      raise errors.InputError(f'{folder} belongs to another user: name another')
    if found.st_mode & 0o077:
      raise errors.InputError(
        f'{folder} is open to others: close it with `chmod 700`, or name a new'
        ' folder'
      )
    (folder / _LOCK).touch(mode=0o600)
    (folder / NODES).mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
  """Keeps other commands from changing the folder, which is made."""
  with contextlib.ExitStack() as stack:
    with _using(folder):
      file = stack.enter_context(open(folder / _LOCK, 'a'))
      is_ours = lock.hold(file, folder)
    if not is_ours:
      raise errors.InputError(
        f'another command is starting or stopping nodes of {folder}: wait for'
        ' its end'
      )
    yield


def open_private(path: str, flags: int) -> int:
  """Opens a file that only the user can read, for `open`."""
  return os.open(path, flags, 0o600)


def write_private(path: pathlib.Path, text: str) -> None:
  """Writes a file that only the user can read, in one step."""
  new = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    with open(new, 'w', opener=open_private) as file:
      file.write(text)
    os.replace(new, path)
  except OSError as e:
    new.unlink(missing_ok=True)
    raise errors.InputError(
      f'{path} cannot be written ({e.strerror}): make room, or name another'
      ' folder'
    ) from e


def marked(values: Collection[str], name: str = MARK) -> list[psutil.Process]:
  """Returns the living processes of this user with one of these marks."""
  return [p for p in psutil.process_iter() if is_marked(p, values, name)]


def is_marked(
  process: psutil.Process, values: Collection[str], name: str = MARK
) -> bool:
  """Whether a process lives, is of this user, and has one of these marks.

  One that was killed has none as soon as its memory is freed, before it has ended.
  """
  try:
    return process.environ().get(name) in values
  except (psutil.Error, OSError):  # It has ended, or is not ours.
    return False


def end_marked(marks: Collection[str], leaders: Collection[int]) -> int:
  """Ends the processes with these marks; returns how many there were.

  The leaders, which end their own processes, get SIGTERM first, then what is
  left, which at last is killed.
  """
  seen = set()
  steps = (
    ('terminate', True, 10.0),
    ('terminate', False, 3.0),
    ('kill', False, 10.0),
  )
  for step, leaders_only, seconds in steps:
    signalled = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (found := marked(marks)):
      seen |= {p.pid for p in found}
      chosen = [p for p in found if p.pid in leaders or not leaders_only]
      if not chosen:
        break
      for process in chosen:
        if process.pid not in signalled:
          signalled.add(process.pid)
          with contextlib.suppress(psutil.Error):  # It has ended.
            getattr(process, step)()
      time.sleep(0.1)
  if left := marked(marks):
    raise errors.InputError(
      'these processes do not end, although they were killed:'
      f' {", ".join(str(p.pid) for p in left)}'
    )
  return len(seen)


def program_path() -> str:
  """Returns $PYTHONPATH with this checkout first, for processes started here."""
  root = os.path.abspath(__file__)
  for _ in range(4):  # tff_xc/runtime/cluster/state.py
    root = os.path.dirname(root)
  given = os.environ.get('PYTHONPATH')
  return os.pathsep.join([root, given] if given else [root])
