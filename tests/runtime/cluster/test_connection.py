"""Whether this machine's node lives, as a driver asks; no Ray runs here."""

import os
import pathlib
import shutil
import subprocess
import uuid

import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state


@pytest.fixture(name='raylet')
def _raylet(tmp_path, monkeypatch):
  """Returns a process that is called so, of a node to which we are connected."""
  # Conda's Python, for one, lacks it.
  monkeypatch.delattr(os, 'pidfd_open', raising=False)
  mark = f'node-{uuid.uuid4()}'
  program = shutil.copy(shutil.which('sleep'), tmp_path / 'raylet')
  process = subprocess.Popen(
    [program, '600'], env={**os.environ, processes.MARK: mark}
  )
  node = state.Node('1', mark, state.LOOPBACK, True, 1, 1, '')
  assert folders.wait(lambda: processes.marked([mark]))
  found = connection._raylet(node)
  assert found.pid == process.pid
  session = connection._Session(pathlib.Path(), None, {}, mark, found)
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(connection, 'check', lambda: [])
  yield process
  process.kill()
  process.wait()


def test_a_node_that_lives_is_no_error(raylet):
  connection.check_node()


def test_a_node_that_has_ended_is_one_sentence(raylet):
  raylet.kill()
  os.waitid(os.P_PID, raylet.pid, os.WEXITED | os.WNOWAIT)
  for _ in range(2):  # A zombie, and nothing.
    with pytest.raises(errors.InputError, match='no node runs on this machine'):
      connection.check_node()
    raylet.wait()


def test_a_head_that_is_gone_too_comes_first(raylet, monkeypatch):
  def gone():
    raise errors.InputError('no head of a cluster')

  monkeypatch.setattr(connection, 'check', gone)
  connection.check_node()
  raylet.kill()
  raylet.wait()
  with pytest.raises(errors.InputError, match='no head of a cluster'):
    connection.check_node()
