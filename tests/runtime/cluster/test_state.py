"""The folder of a cluster is private, and only marked processes are found and ended."""

import json
import os
import signal
import stat
import subprocess
import sys
import uuid

import pytest

from tests import processes as alive
from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import state

PEM = '-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n'


def test_the_folder_is_named_by_the_environment(monkeypatch, tmp_path):
  monkeypatch.delenv(state.VARIABLE, raising=False)
  monkeypatch.setenv('XDG_STATE_HOME', 'relative')
  monkeypatch.setenv('HOME', '/home/a')
  assert str(state.default_folder()) == '/home/a/.local/state/tff_xc/cluster'
  monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
  assert state.default_folder() == tmp_path / 'tff_xc' / 'cluster'
  monkeypatch.setenv(state.VARIABLE, '~/mine')
  assert str(state.default_folder()) == '/home/a/mine'


def test_everything_is_for_the_user_only_and_is_removed(tmp_path):
  folder = tmp_path / 'a' / 'cluster'
  old = os.umask(0)
  try:
    state.make_folder(folder)
    cluster = folders.cluster(authority=PEM, authority_key=PEM)
    state.write_cluster(folder, cluster)
    state.write_node(folder, folders.node())
  finally:
    os.umask(old)
  modes = {
    p.name: stat.S_IMODE(p.stat().st_mode) for p in [folder, *folder.rglob('*')]
  }
  assert modes.pop('cluster') == modes.pop('nodes') == 0o700
  assert modes == dict.fromkeys(
    [state.JOIN, 'token', 'authority.pem', '1.json', 'tff_xc.lock'], 0o600
  )
  assert state.find_cluster(folder) == cluster
  assert cluster.uses_tls and not folders.cluster().uses_tls
  (folder / '.token.123').touch()  # A killed `write` left it.
  mine = {'tff_xc.lock', 'nodes', 'mine', '.token.bak', '1.txt'}
  for name in ('mine', '.token.bak', 'nodes/1.txt'):
    (folder / name).touch()
  state.remove_cluster(folder)
  state.remove_node(folder, folders.node())
  assert {p.name for p in folder.rglob('*')} == mine
  assert state.find_cluster(folder) is None
  # Without join.json and records, files of these names are not ours.
  (folder / 'key.pem').touch()
  state.remove_cluster(folder)
  assert (folder / 'key.pem').exists()


def test_records_of_nodes(tmp_path):
  state.make_folder(tmp_path)
  nodes = [folders.node(name) for name in ('2', '10', '1')]
  for node in nodes:
    state.write_node(tmp_path, node)
  assert [n.name for n in state.read_nodes(tmp_path)] == ['1', '2', '10']
  assert state.read_nodes(tmp_path / 'nowhere') == []
  # A record names no files but its own, since `stop` removes them.
  path = state.node_file(tmp_path, '2', 'json')
  text = path.read_text()
  path.rename(path.with_stem('1 (copy)'))
  assert [n.name for n in state.read_nodes(tmp_path)] == ['1', '10']
  for damaged in (text.replace('"2"', '"3"'), '{'):
    path.write_text(damaged)
    with pytest.raises(errors.InputError, match=r'2\.json is damaged'):
      state.read_nodes(tmp_path)


@pytest.mark.parametrize(
  'changes',
  [
    {'address': 'head:1'},
    {'address': '10.0.0.1'},
    {'address': '10.0.0.1:70000'},
    {'address': '10.0.0.1:0'},
    {'address': '10.0.0.256:1'},
    {'token': '../../etc'},
    {'token': 'a' * 64 + '\n'},
    {'token': 3},
    {'ray_folder': '/home'},
    {'ray_folder': '/tmp/tff_xc_00000000/../../home'},
    {'authority': 'no certificate'},
    {'authority': PEM.replace('abc', 'a\ud800c')},
    {'more': ''},
  ],
)
def test_join_files_of_other_forms_are_refused(tmp_path, changes):
  """`ray_folder` above all: `stop` removes that folder."""
  path = tmp_path / 'other.json'
  folders.write_join(path, **changes)
  with pytest.raises(
    errors.InputError, match=r'other\.json is no file join\.json'
  ):
    state.read_cluster(path)
  folders.write_join(path)
  assert state.read_cluster(path) == folders.cluster()


def test_other_files_are_no_join_files(tmp_path):
  path = tmp_path / 'other.json'
  for text in ('', '[]', '{}', '3', '\x00', 'ÿ'):
    path.write_text(text, encoding='latin-1')
    with pytest.raises(errors.InputError, match=r'no file join\.json'):
      state.read_cluster(path)
  with pytest.raises(errors.InputError, match='No such file'):
    state.read_cluster(tmp_path / 'none')


def test_ray_is_told_of_token_and_tls(tmp_path):
  plain = state.ray_environment(tmp_path, folders.cluster())
  assert plain['RAY_AUTH_MODE'] == 'token'
  assert plain['RAY_AUTH_TOKEN_PATH'] == str(tmp_path / 'token')
  assert 'RAY_USE_TLS' not in plain
  cluster = folders.cluster('10.0.0.1:5', authority=PEM, authority_key=PEM)
  found = state.ray_environment(tmp_path, cluster)
  assert found['RAY_USE_TLS'] == '1'
  assert found['RAY_TLS_CA_CERT'] == str(tmp_path / 'authority.pem')
  assert (cluster.ip, cluster.port) == ('10.0.0.1', 5)
  assert json.dumps(found).count('PEM') == 0


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path):
  path = tmp_path / 'token'
  state.write_private(path, 'before')
  with (
    folders.no_room(),
    pytest.raises(errors.InputError, match=r'token cannot be written.*large'),
  ):
    state.write_private(path, 'after')
  assert path.read_text() == 'before'
  assert list(tmp_path.iterdir()) == [path]


def test_open_folders_and_other_files_are_refused_as_they_are(tmp_path):
  for mode in (0o777, 0o750, 0o701):
    tmp_path.chmod(mode)
    with pytest.raises(errors.InputError, match=r'open to others.*chmod 700'):
      state.make_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode
    assert not list(tmp_path.iterdir())
  (tmp_path / 'file').touch()
  for refused in (state.make_folder, state.is_made):
    with pytest.raises(errors.InputError, match='cannot be used'):
      refused(tmp_path / 'file')
    with pytest.raises(errors.InputError, match='holds other files'):
      refused(tmp_path)
  assert {p.name for p in tmp_path.iterdir()} == {'file'}


def test_folders_that_were_made_are_known(tmp_path):
  folder = tmp_path / 'a'
  assert not state.is_made(folder)
  folder.mkdir(mode=0o700)
  assert not state.is_made(folder)
  state.make_folder(folder)
  (folder / 'mine').touch()
  assert state.is_made(folder)
  state.make_folder(folder)
  # By an earlier version, too.
  (folder / 'tff_xc.lock').rename(folder / 'lock')
  assert state.is_made(folder)
  folder.chmod(0o755)
  with pytest.raises(errors.InputError, match='holds other files'):
    state.is_made(folder)


def test_only_one_command_changes_a_folder(tmp_path):
  def refused(folder, why):
    with pytest.raises(errors.InputError, match=why):
      state.locked(folder).__enter__()

  with state.locked(tmp_path):
    refused(tmp_path, 'another command')
  with state.locked(tmp_path):
    pass
  refused(tmp_path / 'nowhere', 'cannot be used')


SLEEP = 'import time; time.sleep(600)'
# This process's, since tests that run beside it look for theirs.
ONE, TWO = (f'{name}-{uuid.uuid4()}' for name in ('one', 'two'))


@pytest.fixture
def run():
  """Runs Python code in processes that end with the test."""
  made = []

  def start(code, **environment):
    process = subprocess.Popen(
      [sys.executable, '-c', code], env={**os.environ, **environment}
    )
    made.append(process)
    return process

  yield start
  for process in made:
    process.kill()
    process.wait()


def pids(*marks):
  return {p.pid for p in state.marked(marks)}


def test_processes_are_found_by_their_mark(run):
  one = run(SLEEP, **{state.MARK: ONE})
  other = run(SLEEP)
  two = run(SLEEP, **{state.MARK: TWO})
  assert folders.wait(lambda: pids(ONE, TWO) == {one.pid, two.pid})
  assert pids(TWO) == {two.pid}
  assert pids(TWO[:-1]) == set()
  # A pid that became another process is left alone.
  assert state.end_marked(['nobody'], [other.pid]) == 0
  assert other.poll() is None


def test_an_orphan_in_a_session_of_its_own_is_ended(run):
  leader = run(
    folders.NODE.replace('%s', 'pass').replace(
      "pathlib.Path(sys.argv[1]).write_text('a1')", ''
    ),
    **{state.MARK: ONE},
  )
  assert folders.wait(lambda: len(pids(ONE)) == 2)
  [orphan] = pids(ONE) - {leader.pid}
  leader.send_signal(signal.SIGKILL)
  leader.wait()
  assert os.getsid(orphan) != os.getsid(0)
  assert state.end_marked([ONE], [leader.pid]) == 1
  assert alive.ends(orphan, 1)


def test_a_leader_ends_its_own_processes_before_anybody_else_does(
  run, tmp_path
):
  """The child writes which signal it got; SIGUSR1 is the leader's."""
  told = tmp_path / 'told'
  child = (
    'import signal, sys, pathlib, time\n'
    'def tell(number, _):\n'
    f'  pathlib.Path({str(told)!r}).write_text(str(number)); sys.exit()\n'
    'signal.signal(signal.SIGTERM, tell); signal.signal(signal.SIGUSR1, tell)\n'
    'print(1, flush=True); time.sleep(600)'
  )
  leader = (
    'import signal, subprocess, sys, time\n'
    f'c = subprocess.Popen([sys.executable, "-c", {child!r}],'
    ' stdout=subprocess.PIPE)\n'
    'c.stdout.readline()\n'
    'def end(*_):\n'
    '  c.send_signal(signal.SIGUSR1); c.wait(); sys.exit()\n'
    'signal.signal(signal.SIGTERM, end)\n'
    f'open({str(told) + ".ready"!r}, "w").close(); time.sleep(600)'
  )
  first = run(leader, **{state.MARK: ONE})
  assert folders.wait((tmp_path / 'told.ready').exists)
  assert state.end_marked([ONE], [first.pid]) == 2
  assert told.read_text() == str(int(signal.SIGUSR1))


def test_what_ignores_sigterm_or_is_stopped_is_killed(run, monkeypatch):
  ignores = run(
    f'import signal, time; {folders.IGNORES}; print(1); time.sleep(600)',
    **{state.MARK: ONE},
  )
  stopped = run(SLEEP, **{state.MARK: ONE})
  assert folders.wait(lambda: len(pids(ONE)) == 2)
  stopped.send_signal(signal.SIGSTOP)
  assert state.end_marked([ONE], []) == 2
  assert ignores.wait(1) and stopped.wait(1)


def test_started_programs_find_this_checkout_first(monkeypatch):
  monkeypatch.setenv('PYTHONPATH', '/a:/b')
  first, *rest = state.program_path().split(':')
  assert rest == ['/a', '/b']
  assert os.path.isfile(os.path.join(first, 'tff_xc', '__init__.py'))
