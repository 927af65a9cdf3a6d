"""Starts, reports and ends workers for --runtime=cluster, on many machines.

  python -m launch.workers start [--workers=N] [--threads=T] [--data_dir=D]
  python -m launch.workers start --listen=IP    # for workers of other machines
  python -m launch.workers start --join=FILE    # one more node, here or there
  python -m launch.workers status
  python -m launch.workers stop [--node=N]

`start` starts a cluster: the head and workers of this machine, as processes that
go on after the command. They listen on 127.0.0.1 only, and want a token. With
--listen other machines can join; everything then goes through TLS. `start`
prints the command for the other machine, and which file to copy there. Whoever
has that file can run any program as you on all machines of the cluster.

Exit status: 0 done, 1 (status) not everything runs, 2 bad input.
"""

import getpass
import pathlib
import shlex
import sys

from absl import flags

from launch import app
from tff_xc import errors
from tff_xc import wording
from tff_xc.report import text_table
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import nodes
from tff_xc.runtime.cluster import state

_COMMAND = 'python -m launch.workers'

for _name, _text in (
  (
    'folder',
    'keeps what was started here, and its secrets; default '
    f'${state.VARIABLE}, then $XDG_STATE_HOME/tff_xc/cluster, then '
    '~/.local/state/tff_xc/cluster',
  ),
  (
    'data_dir',
    "start: where this machine has its own copy of the run's --data_dir",
  ),
  (
    'listen',
    "start: this machine's address for the other machines; default 127.0.0.1, "
    'and with --join the address from which the head is reached',
  ),
  ('join', f'start: the file {state.JOIN} of the cluster to join'),
  ('node', 'stop: the node to stop; default: all'),
):
  flags.DEFINE_string(_name, None, _text)
for _name, _default, _most, _text in (
  (
    *('workers', 1, 1024),
    'start: workers of this node; each is a process with TensorFlow',
  ),
  (
    *('threads', 0, 1024),
    'start: clients that a worker trains at a time; 0: the cores of the machine, '
    "shared by the node's workers",
  ),
  ('port', 0, 65535, 'start: port of the head; 0: a free one'),
):
  flags.DEFINE_integer(_name, _default, _text, lower_bound=0, upper_bound=_most)

_START = ('workers', 'threads', 'data_dir', 'listen')


def _start(folder: pathlib.Path) -> None:
  values = flags.FLAGS
  workers = nodes.Workers(values.workers, values.threads, values.data_dir or '')
  if values.join is None:
    ip = values.listen or state.LOOPBACK
    node = nodes.start(folder, workers, ip, values.port)
  else:
    file = pathlib.Path(values.join)
    node = nodes.join(folder, file, workers, values.listen or '')
  cluster = state.find_cluster(folder)
  print(
    f'node {node.name} runs: {wording.count(node.workers, "worker")} of'
    f' {wording.count(node.threads, "thread")}, cluster at {cluster.address}'
    f' ({_protection(cluster)})'
  )
  if not node.is_head:
    return
  file = folder / state.JOIN
  here = shlex.quote(str(file))
  print(f'To add a node on this machine:\n  {_COMMAND} start --join={here}')
  if cluster.uses_tls:
    there = shlex.quote(f'{_user()}{cluster.ip}:{file}')
    print(
      'On another machine, with this project at the same version:\n'
      f'  scp {there} {state.JOIN}\n'
      f'  {_COMMAND} start --join={state.JOIN}\n'
      f'Keep {state.JOIN} secret: whoever has it can run any program as you on'
      ' all these machines.'
    )


def _user() -> str:
  """Returns 'NAME@' of the user for `scp`, or '' if the system knows no name."""
  try:
    return f'{getpass.getuser()}@'
  except (KeyError, OSError):  # The second from Python 3.13 on.
    return ''


def _status(folder: pathlib.Path) -> None:
  found = nodes.find(folder)
  if not found:
    print(f'no workers were started here (folder {folder})')
    sys.exit(1)
  cluster, alive, problem = None, [], ''
  if not any(f.pids for f in found):
    problem = (
      f'none of these runs any more: `{_COMMAND} stop` forgets them,'
      ' and keeps their logs'
    )
  else:
    try:
      cluster = state.read_cluster(folder / state.JOIN)
      alive = connection.ask(folder, cluster, deadline_s=10.0)
    except errors.InputError as e:
      problem = str(e)
  known = {n.ray_id for n in alive}
  rows = [['node', 'state', 'pid', 'workers', 'threads', 'data', 'log']]
  all_run = not problem
  for f in found:
    runs = f.is_alive and state.ray_id(folder, f.node) in known
    all_run = all_run and runs
    rows.append(
      [
        f'{f.node.name} (head)' if f.node.is_head else f.node.name,
        'runs' if runs else _trouble(f),
        str(f.node.pid),
        str(f.node.workers),
        str(f.node.threads),
        f.node.data_dir or '–',
        str(state.node_file(folder, f.node.name, 'log')),
      ]
    )
  print(text_table.to_text(rows, (0, 1, 5, 6)), end='')
  print(
    problem
    or f'cluster at {cluster.address} ({_protection(cluster)}):'
    f' {wording.count(sum(n.workers for n in alive), "worker")} on'
    f' {wording.count(len(alive), "node")}, other machines included'
  )
  if not all_run:
    sys.exit(1)


def _trouble(found: nodes.Found) -> str:
  if found.is_alive:
    return 'not in the cluster'
  left = len(found.pids)
  return f'ended, {wording.count(left, "process")} left' if left else 'ended'


def _stop(folder: pathlib.Path) -> None:
  before = nodes.find(folder)
  ended = nodes.stop(folder, flags.FLAGS.node or '')
  print(
    f'stopped {wording.count(ended, "node")}'
    if ended
    else f'nothing to stop: no workers were started here (folder {folder})'
  )
  left = [f.node for f in nodes.find(folder)]
  for node in [f.node for f in before if f.node not in left]:
    log = state.node_file(folder, node.name, 'log')
    if log.exists():
      print(f'node {node.name} had ended by itself: its output is in {log}')


def _protection(cluster: state.Cluster) -> str:
  return 'token and TLS' if cluster.uses_tls else 'this machine only, token'


_ACTIONS = {
  'start': (_start, (*_START, 'port', 'join')),
  'status': (_status, ()),
  'stop': (_stop, ('node',)),
}


def main(arguments) -> None:
  listed = ', '.join(_ACTIONS)
  if len(arguments) != 1 or arguments[0] not in _ACTIONS:
    raise errors.InputError(f'name one of {listed}: {_COMMAND} status')
  action, taken = _ACTIONS[arguments[0]]
  for name in sorted({n for _, names in _ACTIONS.values() for n in names}):
    if flags.FLAGS[name].present and name not in taken:
      raise errors.InputError(f'--{name} is no flag of {arguments[0]}')
  for name in ('folder', *taken):
    if flags.FLAGS[name].value == '':  # Say, of a shell variable without value.
      raise errors.InputError(
        f'--{name}= is empty: give a value, or leave it out'
      )
  if flags.FLAGS['port'].present and flags.FLAGS.join is not None:
    raise errors.InputError('--port is of the head: leave it out with --join')
  given = flags.FLAGS.folder
  folder = state.default_folder() if given is None else pathlib.Path(given)
  action(folder.absolute())


if __name__ == '__main__':
  app.run(main, __doc__)
