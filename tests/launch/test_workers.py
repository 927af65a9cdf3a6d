"""`launch.workers` refuses wrong flags in one sentence, and says what runs."""

import os
import shlex
import subprocess

import pytest

from tests import processes
from tests.launch import light
from tests.runtime.cluster import folders
from tff_xc.runtime.cluster import state

try:
  import ray as _  # noqa: F401

  HAS_RAY = True
except ImportError:
  HAS_RAY = False
needs_ray = pytest.mark.skipif(
  not HAS_RAY, reason='Ray is not installed: make venv-cluster'
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.setenv(state.VARIABLE, str(tmp_path / 'cluster'))
  return tmp_path / 'cluster'


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    ((), 'name one of start, status, stop'),
    (('restart',), 'name one of start, status, stop'),
    (('stop', '--workers=2'), '--workers is no flag of stop'),
    (('status', '--join=a'), '--join is no flag of status'),
    (('start', '--node=2'), '--node is no flag of start'),
    (('start', '--workers=1025'), '--workers'),
    (('start', '--join=a', '--port=1'), '--port is of the head'),
    (('stop', '--node='), '--node= is empty'),
  ],
)
def test_bad_flags_are_one_sentence(arguments, expected, folder):
  light.assert_one_sentence(light.call('workers', *arguments), expected)
  assert not folder.exists()


# A start in which no process is started. The module's flags are no part of the
# tests' own process, where other commands have flags of the same names.
_START = """
import os, pwd, runpy, sys
from tff_xc.runtime.cluster import nodes, state
node = state.Node('1', 'mark', '10.0.0.1', True, 1, 1, '')
cluster = state.Cluster('10.0.0.1:6379', 'token', '/ray', 'PEM', 'PEM')
nodes.start = lambda *_: node
state.find_cluster = lambda _: cluster
if not {'USER', 'LOGNAME'} & set(os.environ):
  pwd.getpwuid = {}.__getitem__  # Knows nobody, as for a user of a container.
sys.argv = ['workers', 'start', '--listen=10.0.0.1', '--folder=' + sys.argv[1]]
runpy.run_module('launch.workers', run_name='__main__')
"""


def _told(folder, **environ):
  """Returns the lines that a start prints."""
  names = ('USER', 'LOGNAME', 'LNAME', 'USERNAME')
  kept = {k: v for k, v in os.environ.items() if k not in names}
  return processes.python(
    '-c', _START, folder, check=True, cwd=light.ROOT, env=kept | environ
  ).stdout.splitlines()


def test_the_printed_commands_stand_any_user_and_folder(tmp_path):
  [scp] = [line.split() for line in _told(tmp_path) if ' scp ' in line]
  assert scp[1] == f'10.0.0.1:{tmp_path}/join.json'
  folder = tmp_path / 'my cluster'
  told = _told(folder, USER='me')
  [scp] = [shlex.split(line) for line in told if ' scp ' in line]
  assert scp[1] == f'me@10.0.0.1:{folder}/join.json'
  joins = [shlex.split(line)[-1] for line in told if '--join=' in line]
  assert joins == [f'--join={folder}/join.json', '--join=join.json']


def test_nothing_to_report_or_to_stop(folder):
  for action, status in (('status', 1), ('stop', 0)):
    done = light.call('workers', action)
    assert (done.returncode, done.stderr) == (status, '')
    assert done.stdout.count('\n') == 1
    assert f'no workers were started here (folder {folder})' in done.stdout
  assert not folder.exists()


def test_a_folder_of_others_is_refused(tmp_path):
  before = folders.write_strangers(tmp_path / 'theirs')
  for action in ('stop', 'status'):
    done = light.call('workers', action, f'--folder={tmp_path / "theirs"}')
    light.assert_one_sentence(done, 'holds other files')
  assert folders.everything(tmp_path / 'theirs') == before


def test_ended_nodes_are_reported_and_removed(folder, tmp_path):
  """As after a reboot: files, and no process."""
  chosen = tmp_path / 'other'
  state.make_folder(chosen)
  state.write_cluster(chosen, folders.cluster())
  state.write_node(chosen, folders.node(pid=1))
  state.write_node(chosen, folders.node('2', is_head=False, data_dir='/d'))
  log = state.node_file(chosen, '2', 'log')
  log.write_text('why')
  done = light.call('workers', 'status', f'--folder={chosen}')
  assert done.returncode == 1
  rows = [line.split() for line in done.stdout.splitlines()]
  assert [row[:3] for row in rows[2:4]] == [
    ['1', '(head)', 'ended'],
    ['2', 'ended', '0'],
  ]
  assert '/d' in rows[3] and str(log) in rows[3]
  assert 'none of these runs any more' in done.stdout
  done = light.call('workers', 'stop', f'--folder={chosen}')
  assert (done.returncode, done.stdout.splitlines()) == (
    0,
    [
      'stopped 2 nodes',
      f'node 2 had ended by itself: its output is in {log}',
    ],
  )
  assert log.read_text() == 'why'
  assert state.find_cluster(chosen) is None


@pytest.mark.parametrize('text', [None, '{}'])
def test_a_living_node_without_its_join_file_is_reported_and_ended(
  folder, text
):
  state.make_folder(folder)
  node = folders.node(mark=str(folder))
  state.write_node(folder, node)
  if text:
    (folder / state.JOIN).write_text(text)
  with subprocess.Popen(
    ['sleep', '60'], env={state.MARK: node.mark}
  ) as process:
    done = light.call('workers', 'status')
    assert (done.returncode, done.stderr) == (1, '')
    assert 'ended, 1 process left' in done.stdout
    assert f'{folder / state.JOIN} ' in done.stdout.splitlines()[-1]
    done = light.call('workers', 'stop')
  assert (done.returncode, done.stdout) == (0, 'stopped 1 node\n')
  assert process.returncode < 0


@pytest.mark.skipif(HAS_RAY, reason='Ray is installed')
def test_without_ray_the_cure_is_named(folder):
  done = light.call('workers', 'start')
  light.assert_one_sentence(done, 'make venv-cluster')
  assert not folder.exists()


def call(*arguments):
  return processes.python(
    *('-m', 'launch.workers'),
    *arguments,
    cwd=light.ROOT,
    env={**os.environ, 'COLUMNS': '200'},
    timeout=200,
  )


@pytest.mark.slow
@needs_ray
def test_start_status_stop(folder):
  try:
    done = call('start', '--workers=2', '--threads=3')
    assert (done.returncode, done.stderr) == (0, '')
    assert 'node 1 runs: 2 workers of 3 threads' in done.stdout
    # The command that it prints adds a node.
    join = done.stdout.splitlines()[-1].split('launch.workers ')[1].split()
    assert call(*join).stdout.startswith('node 2 runs: 1 worker')
    light.assert_one_sentence(call('start'), 'nodes run here already')
    done = call('status')
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.count(' runs ') == 2
    assert '3 workers on 2 nodes' in done.stdout
    assert call('stop', '--node=1').stdout == 'stopped 1 node\n'
    done = call('status')
    assert done.returncode == 1
    assert 'not in the cluster' in done.stdout
    assert 'no head of a cluster' in done.stdout
  finally:
    done = call('stop')
  # Without the head, node 2 may have ended by itself.
  assert done.stdout.startswith('stopped 1 node\n')
