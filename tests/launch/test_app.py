"""What every command does with an error: bad input is one sentence."""

import errno
import os
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
