"""Locks of folders, and file systems without locks."""

import errno
import fcntl

import pytest

from tff_xc import lock


@pytest.mark.parametrize('number', [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524])
def test_a_file_system_without_locks_is_told_once(tmp_path, monkeypatch, capsys, number):
  def flock(file, how):
    raise OSError(number, 'no locks')

  monkeypatch.setattr(fcntl, 'flock', flock)
  monkeypatch.setattr(lock, '_told', [])
  for name in ('run', 'other'):
    lock.lock(tmp_path / name, 'run_dir').close()
  told = capsys.readouterr().err
  assert told.count('warning') == told.count('\n') == 1
  assert str(tmp_path / 'run') in told
