"""What every command does with an error: bad input is one sentence."""

import errno
import os
import subprocess
import sys

import pytest

from launch import app
from tests.launch import light


@pytest.mark.parametrize('number', [errno.EACCES, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_opened_is_one_sentence(
  number, monkeypatch, capsys
):
  def main(arguments):
    raise OSError(number, os.strerror(number), 'private/photos')

  monkeypatch.setattr(app, '_parse', lambda: [])
  monkeypatch.setattr(sys, 'argv', ['command'])
  with pytest.raises(SystemExit) as found:
    app.run(main, '')
  assert found.value.code == 2
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith('error: private/photos cannot be opened (')


def test_other_faults_keep_their_trace(monkeypatch):
  def main(arguments):
    raise OSError(errno.EBADF, 'a fault of the code')

  monkeypatch.setattr(app, '_parse', lambda: [])
  monkeypatch.setattr(sys, 'argv', ['command'])
  with pytest.raises(OSError, match='a fault of the code'):
    app.run(main, '')


def test_a_name_that_is_too_long():
  done = light.call('compare', 'runs' * 100)
  light.assert_one_sentence(done, 'cannot be opened (File name too long)')


HANGS = """
import atexit, sys, types
from launch import app
from tff_xc import errors

atexit.register(print, 'the way that may crash')
def main(arguments):
  atexit.register(print, 'the usual end')
  name = 'tff_xc.runtime.cluster.connection'
  sys.modules[name] = types.SimpleNamespace(left_behind={hangs})
  raise errors.InputError('no answer')
app.run(main, '')
"""


@pytest.mark.parametrize('hangs', [False, True])
def test_a_command_that_leaves_a_thread_in_ray_ends_at_once(hangs):
  found = subprocess.run(
    [sys.executable, '-c', HANGS.format(hangs=hangs)],
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert (found.returncode, found.stderr) == (2, 'error: no answer\n')
  assert 'the usual end' in found.stdout
  assert ('the way that may crash' in found.stdout) != hangs


def test_a_full_output_does_not_keep_such_a_command_from_ending():
  program = HANGS.format(hangs=True)
  with open('/dev/full', 'w') as full:
    found = subprocess.run(
      [sys.executable, '-c', program],
      cwd=light.ROOT,
      env={**os.environ, 'PYTHONUNBUFFERED': ''},
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
      timeout=60,
      check=False,
    )
  assert (found.returncode, found.stderr) == (2, 'error: no answer\n')
