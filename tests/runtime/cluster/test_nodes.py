"""Nodes start, are refused, and end; a small program stands for Ray."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import stat

import pytest

from tests import processes as alive
from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import nodes
from tff_xc.runtime.cluster import state

WORKERS = nodes.Workers()


@pytest.fixture(name='folder')
def _folder(tmp_path, monkeypatch):
  """A folder whose nodes are a process and its child, and end with the test."""
  monkeypatch.setattr(connection, 'check_ray', lambda: None)
  monkeypatch.setattr(connection, 'ask', lambda *_: [])
  monkeypatch.setattr(
    nodes, '_command', folders.command(folders.NODE.replace('%s', 'pass'))
  )
  folder = tmp_path / 'cluster'
  yield folder
  for made in (folder, tmp_path / 'other', tmp_path / 'else'):
    nodes.stop(made)


def pids(folder):
  return [f.pids for f in nodes.find(folder)]


def _kill(folder):
  """Ends the processes of the first node, as a power cut does."""
  for pid in pids(folder)[0]:
    os.kill(pid, signal.SIGKILL)
  assert folders.wait(lambda: not pids(folder)[0])


def test_a_node_is_started_found_and_ended(folder):
  node = nodes.start(folder, WORKERS)
  [found] = nodes.find(folder)
  assert found.is_alive and len(found.pids) == 2
  assert found.node == node
  assert state.ray_id(folder, node) == 'a1'
  cluster = state.find_cluster(folder)
  assert cluster.ip == '127.0.0.1' and not cluster.uses_tls
  assert stat.S_IMODE(os.lstat(cluster.ray_folder).st_mode) == 0o700
  assert nodes.stop(folder) == 1
  assert all(alive.ends(pid, 1) for pid in found.pids)
  assert not os.path.exists(cluster.ray_folder)
  assert {p.name for p in folder.rglob('*')} == {'tff_xc.lock', 'nodes'}
  assert nodes.stop(folder) == 0
  assert nodes.stop(folder / 'nowhere') == 0


def test_workers_are_told_their_threads_and_data(folder, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('RAY_AUTH_TOKEN', 'of another cluster')
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '3')
  node = nodes.start(folder, nodes.Workers(number=2, threads=5, data_dir='.'))
  [process] = [p for p in state.marked([node.mark]) if p.pid == node.pid]
  found = process.environ()
  assert found[nodes.THREADS_VARIABLE] == '5'
  assert found[nodes.DATA_VARIABLE] == str(tmp_path)
  assert found['CUDA_VISIBLE_DEVICES'] == '3'
  assert 'RAY_AUTH_TOKEN' not in found
  assert found['RAY_AUTH_TOKEN_PATH'] == str(folder / 'token')
  nodes.stop(folder)
  cores = len(os.sched_getaffinity(0))
  for number, threads in ((0, cores), (1, cores), (cores + 1, 1)):
    assert nodes.start(folder, nodes.Workers(number=number)).threads == threads
    nodes.stop(folder)


def test_starting_twice_and_after_a_reboot(folder):
  node = nodes.start(folder, WORKERS)
  first = state.find_cluster(folder)
  with pytest.raises(errors.InputError, match='nodes run here already'):
    nodes.start(folder, WORKERS)
  os.kill(node.pid, signal.SIGKILL)
  assert folders.wait(lambda: len(pids(folder)[0]) == 1)
  assert not nodes.find(folder)[0].is_alive
  with pytest.raises(errors.InputError, match='nodes run here already'):
    nodes.start(folder, WORKERS)  # Its child lives.
  _kill(folder)
  assert nodes.start(folder, WORKERS).name == '1'
  assert state.find_cluster(folder).token != first.token
  assert not os.path.exists(first.ray_folder)


def test_the_log_of_a_node_that_ended_by_itself_is_kept(folder):
  """`start` keeps it as the log before."""
  for end in (nodes.stop, lambda folder: nodes.start(folder, WORKERS)):
    nodes.start(folder, WORKERS)
    log = state.node_file(folder, '1', 'log')
    log.write_text(str(end))
    _kill(folder)
    end(folder)
    kept = log if end is nodes.stop else log.with_suffix('.old')
    assert kept.read_text() == str(end)
  # Ended by `stop`, a node leaves neither.
  nodes.stop(folder)
  assert not list((folder / 'nodes').iterdir())


def test_nodes_join_and_leave(folder, tmp_path):
  nodes.start(folder, WORKERS)
  file = folder / state.JOIN
  second = nodes.join(folder, file, WORKERS)
  elsewhere = nodes.join(tmp_path / 'else', file, WORKERS)
  assert (second.name, second.is_head) == ('2', False)
  assert second.ip == elsewhere.ip == '127.0.0.1'
  with pytest.raises(errors.InputError, match='no node 3: the nodes are 1, 2'):
    nodes.stop(folder, '3')
  assert nodes.stop(folder, '2') == 1
  assert [f.node.name for f in nodes.find(folder) if f.is_alive] == ['1']
  # What the other folder's node uses outlives the head.
  ray_folder = state.find_cluster(folder).ray_folder
  assert nodes.stop(folder) == 1
  assert os.path.exists(ray_folder)
  assert nodes.stop(tmp_path / 'else') == 1
  assert not os.path.exists(ray_folder)


def test_another_cluster_is_joined_only_if_none_runs(folder, tmp_path):
  other = tmp_path / 'other'
  nodes.start(other, WORKERS)
  nodes.start(folder, WORKERS)
  with pytest.raises(errors.InputError, match='nodes run here already'):
    nodes.join(folder, other / state.JOIN, WORKERS)
  _kill(folder)
  assert nodes.join(folder, other / state.JOIN, WORKERS).name == '1'
  assert state.find_cluster(folder) == state.find_cluster(other)
  nodes.stop(folder)
  nodes.stop(other)


@pytest.mark.parametrize(
  ('script', 'message', 'seconds'),
  [
    ('print("x\\nno room\\n")', r'does not start \(no room\)', 60.0),
    pytest.param(
      folders.NODE.replace('%s', folders.IGNORES),
      'within 1 s',
      1.0,
      marks=pytest.mark.slow,
    ),
  ],
  ids=['fails', 'hangs'],
)
def test_a_node_that_does_not_start_leaves_nothing(
  folder, monkeypatch, script, message, seconds
):
  script = script.replace("write_text('a1')", 'exists()')
  monkeypatch.setattr(nodes, '_command', folders.command(script))
  monkeypatch.setattr(nodes, '_START_S', seconds)
  marks, end = [], state.end_marked
  monkeypatch.setattr(
    state, 'end_marked', lambda m, leaders: marks.extend(m) or end(m, leaders)
  )
  with pytest.raises(errors.InputError, match=message + r'.*1\.log has'):
    nodes.start(folder, WORKERS)
  _assert_nothing(folder, '1.log')
  assert len(marks) == 1 and not state.marked(marks)
  assert nodes.find(folder) == [] and state.find_cluster(folder) is None


def _assert_nothing(folder, *more):
  """Nothing but the empty folder, or more, and no process is left."""
  left = {p.name for p in folder.rglob('*')}
  assert left == {'tff_xc.lock', 'nodes', *more}
  assert not state.marked([str(folder / 'token')], 'RAY_AUTH_TOKEN_PATH')


def test_on_a_full_disk_nothing_is_left(folder, monkeypatch):
  with (
    folders.no_room(),
    pytest.raises(errors.InputError, match=r'json cannot be written'),
  ):
    nodes.start(folder, WORKERS)
  _assert_nothing(folder)
  write = state.write_node

  def full_when_it_runs(place, node):
    with folders.no_room() if node.pid else contextlib.nullcontext():
      write(place, node)

  monkeypatch.setattr(state, 'write_node', full_when_it_runs)
  with pytest.raises(errors.InputError, match=r'1\.json cannot be written'):
    nodes.start(folder, WORKERS)
  _assert_nothing(folder, '1.log')


def test_what_cannot_be_used_leaves_nothing(folder, monkeypatch, tmp_path):
  file = tmp_path / 'copied.json'
  pem = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
  folders.write_join(file, address='127.0.0.2:1', authority=pem)
  with pytest.raises(errors.InputError, match=r'authority.*is damaged'):
    nodes.join(folder, file, WORKERS)
  _assert_nothing(folder)
  with pytest.raises(errors.InputError, match='data_dir=none does not exist'):
    nodes.start(tmp_path / 'new', nodes.Workers(data_dir='none'))
  assert not (tmp_path / 'new').exists()
  monkeypatch.setattr(nodes, '_command', lambda *_: ['/no/such/program'])
  with pytest.raises(errors.InputError, match=r'cannot be started.*no/such'):
    nodes.start(folder, WORKERS)
  _assert_nothing(folder, '1.log')

  def refuse(*_):
    raise errors.InputError('no head')

  folders.write_join(file)
  monkeypatch.setattr(connection, 'ask', refuse)
  with pytest.raises(errors.InputError, match='no head'):
    nodes.join(tmp_path / 'other', file, WORKERS)
  _assert_nothing(tmp_path / 'other')


def test_stop_ends_what_a_damaged_folder_describes(folder):
  """A `start` that was killed leaves a node without a pid; a join file is damaged."""
  node = nodes.start(folder, WORKERS)
  ray_folder = state.find_cluster(folder).ray_folder
  state.write_node(folder, folders.node(mark=node.mark))
  (folder / state.JOIN).write_text('{}')
  [found] = nodes.find(folder)
  assert not found.is_alive and len(found.pids) == 2
  assert nodes.stop(folder) == 1
  assert not state.marked([node.mark])
  pathlib.Path(ray_folder).rmdir()


def test_addresses_and_ports_that_are_not_ours_are_refused(folder):
  for ip in (
    *('0.0.0.0', 'localhost', '::1', '192.0.2.1', '10.1', ''),
    *('224.0.0.1', '255.255.255.255'),  # Linux binds these, too.
  ):
    with pytest.raises(errors.InputError, match='address of this machine'):
      nodes.start(folder, WORKERS, ip=ip)
    assert state.find_cluster(folder) is None
  with socket.create_server(('127.0.0.1', 0)) as used:
    port = used.getsockname()[1]
    with pytest.raises(errors.InputError, match=f'127.0.0.1:{port}.*in use'):
      nodes.start(folder, WORKERS, port=port)
  nodes.start(folder, WORKERS, port=port)
  assert state.find_cluster(folder).port == port


def test_beyond_loopback_there_is_tls(folder, tmp_path):
  """127.0.0.2 too, since Ray then listens on all addresses."""
  nodes.start(folder, WORKERS, ip='127.0.0.2')
  cluster = state.find_cluster(folder)
  assert cluster.uses_tls and cluster.authority_key
  values = json.loads((folder / state.JOIN).read_text())
  assert values['authority'].startswith('-----BEGIN CERTIFICATE-----')
  before = (folder / 'certificate.pem').read_text()
  nodes.join(folder, folder / state.JOIN, WORKERS, ip='127.0.0.2')
  assert (folder / 'certificate.pem').read_text() == before
  nodes.join(folder, folder / state.JOIN, WORKERS, ip='127.0.0.3')
  assert (folder / 'certificate.pem').read_text() != before
  with pytest.raises(errors.InputError, match='both must be'):
    nodes.join(tmp_path / 'b', folder / state.JOIN, WORKERS, ip='127.0.0.1')


def test_somebody_elses_folder_for_ray_is_refused(tmp_path):
  path = tmp_path / 'ray'
  path.mkdir(mode=0o755)
  with pytest.raises(errors.InputError, match='open to others'):
    nodes._make_ray_folder(str(path))
  path.rmdir()
  path.symlink_to(tmp_path)
  with pytest.raises(errors.InputError, match='belongs to somebody else'):
    nodes._make_ray_folder(str(path))
  path.unlink()
  nodes._make_ray_folder(str(path))
  nodes._make_ray_folder(str(path))
  assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_folder_of_others_is_left_alone(folder, tmp_path):
  file = tmp_path / 'joined' / state.JOIN
  folders.write_join(file)
  theirs = tmp_path / 'theirs'
  before = folders.write_strangers(theirs)
  for call in (
    lambda: nodes.stop(theirs),
    lambda: nodes.stop(theirs, '1'),
    lambda: nodes.find(theirs),
    lambda: nodes.start(theirs, WORKERS),
    lambda: nodes.join(theirs, file, WORKERS),
  ):
    with pytest.raises(errors.InputError, match='holds other files'):
      call()
    assert folders.everything(theirs) == before
  empty = tmp_path / 'empty'
  empty.mkdir()
  assert (nodes.stop(empty), nodes.find(empty)) == (0, [])
  assert not list(empty.iterdir())
