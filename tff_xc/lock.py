"""Locks a directory against a second process. Imports no TensorFlow."""

import fcntl
import os
import pathlib
import sys
from typing import TextIO

from tff_xc import errors

# The folder that `lock` named in its warning; empty until `lock` has warned.
_told: list[pathlib.Path] = []


def lock(path: str | os.PathLike, flag: str) -> TextIO:
  """Creates a directory, and locks it until the returned file is closed.

  Raises InputError, whose message names the flag `flag`, if another process has the lock
  or if the directory cannot be written. Some file systems have no locks, such as NFS
  without its lock service, EFS, and some versions of Lustre. On these file systems, the
  function prints a warning, once per process, and locks nothing.
  """
  path = pathlib.Path(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
    file = open(path / '.lock', 'a', opener=regular)  # noqa: SIM115
  except OSError as e:
    raise errors.InputError(
      f'--{flag}={path} cannot be written ({e.strerror}); choose another'
    ) from e
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as e:
    file.close()
    raise errors.InputError(
      f'another process is running in {path}; wait for it, or choose another --{flag}'
    ) from e
  except OSError:
    if not _told:
      _told.append(path)
      print(
        f'warning: the file system of {path} has no locks: start no second process'
        ' that writes there',
        file=sys.stderr,
      )
  return file


def regular(path: str, flags: int) -> int:
  """Opens a file for `open(opener=...)`; refuses symbolic links, and does not wait for pipes."""
  return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
