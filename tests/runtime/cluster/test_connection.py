"""Whether this machine's node lives, as a driver asks; no Ray runs here."""

import os
import pathlib
import shutil
import subprocess
import sys
import threading
import types
import uuid

import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import head
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
  session = connection._Session(
    pathlib.Path(), None, {}, mark, head.LiveNode('a', 'b', 1), found
  )
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


def test_a_node_that_the_head_has_given_up_is_one_sentence(monkeypatch):
  ours, other = (head.LiveNode(name, 'b', 1) for name in 'ac')
  session = connection._Session(pathlib.Path(), None, {}, 'm', ours, None)
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(head, 'ask', lambda *_: [ours, other])
  assert connection.check() == [ours, other]
  monkeypatch.setattr(head, 'ask', lambda *_: [other])
  with pytest.raises(errors.InputError, match='this machine does not answer'):
    connection.check()


@pytest.fixture(name='silent')
def _silent(monkeypatch):
  """A Ray that does not leave, to which we are connected, and who unregisters."""
  end = threading.Event()
  ray = types.SimpleNamespace(shutdown=end.wait)
  monkeypatch.setitem(sys.modules, 'ray', ray)
  session = connection._Session(pathlib.Path(), None, {}, 'm', None, None)
  monkeypatch.setattr(connection, '_session', session)
  monkeypatch.setattr(connection, 'left_behind', False)
  left_out = []
  monkeypatch.setattr(connection.atexit, 'unregister', left_out.append)
  yield ray, left_out
  end.set()


def test_a_driver_leaves_a_ray_that_does_not_answer(silent, monkeypatch):
  ray, left_out = silent
  monkeypatch.setattr(connection, '_LEAVE_SECONDS', 0.01)
  connection.disconnect()
  assert left_out[-1] == ray.shutdown
  assert connection._session is None
  assert connection.left_behind


def test_a_second_interrupt_does_not_wait_for_ray(silent, monkeypatch):
  ray, left_out = silent

  def interrupted(call, seconds):
    raise KeyboardInterrupt

  monkeypatch.setattr(connection.waiting, 'ends', interrupted)
  connection._at_exit()
  assert left_out[-1] == ray.shutdown
  assert connection._session is None
  assert connection.left_behind
