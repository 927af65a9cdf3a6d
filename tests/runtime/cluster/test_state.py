"""The folder of a cluster: private, refused if damaged, without a trace."""

import json
import os
import stat

import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import own_folder
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


def test_without_a_home_directory_the_sentence_says_so(monkeypatch):
  """As for a user without a line in /etc/passwd."""

  def unknown(_):
    raise KeyError

  for name in (state.VARIABLE, 'XDG_STATE_HOME', 'HOME'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr('pwd.getpwuid', unknown)
  with pytest.raises(errors.InputError, match='no known home directory'):
    state.default_folder()
  with pytest.raises(
    errors.InputError, match=r'the ~ of ~nobody\.here/a is no'
  ):
    state.expanded('~nobody.here/a')


def test_everything_is_for_the_user_only_and_is_removed(tmp_path):
  folder = tmp_path / 'a' / 'cluster'
  old = os.umask(0)
  try:
    own_folder.make(folder)
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


def test_nodes_keep_their_order(tmp_path):
  own_folder.make(tmp_path)
  nodes = [folders.node(name) for name in ('2', '10', '1')]
  for node in nodes:
    state.write_node(tmp_path, node)
  assert [n.name for n in state.read_nodes(tmp_path)] == ['1', '2', '10']
  assert state.read_nodes(tmp_path / 'nowhere') == []
  state.node_file(tmp_path, '2', 'json').write_text('{')
  with pytest.raises(errors.InputError, match=r'2\.json is damaged'):
    state.read_nodes(tmp_path)


def test_a_record_names_no_files_but_its_own(tmp_path):
  """`stop` removes them."""
  own_folder.make(tmp_path)
  state.write_node(tmp_path, folders.node('2'))
  path = state.node_file(tmp_path, '2', 'json')
  path.rename(path.with_stem('1 (copy)'))
  assert state.read_nodes(tmp_path) == []
  path.with_stem('1 (copy)').rename(path.with_stem('1'))
  with pytest.raises(errors.InputError, match=r'1\.json is damaged'):
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


@pytest.mark.parametrize('text', ['', '[]', '{}', '3', '\x00', 'ÿ'])
def test_other_files_are_no_join_files(tmp_path, text):
  path = tmp_path / 'other.json'
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
