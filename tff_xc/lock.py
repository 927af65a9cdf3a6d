"""Locks a directory against a second process. Imports no TensorFlow."""

import errno
import fcntl
import os
import pathlib
import stat
import sys
from typing import TextIO

from tff_xc import errors

# The first folder that could not be locked, once it is told.
_told: list[pathlib.Path] = []


def lock(path: str | os.PathLike, flag: str) -> TextIO:
  """Creates a directory, and locks it until the returned file is closed.

  `flag` names it in errors: another process has it, or it cannot be written. A file
  system without locks is a warning.
  """
  path = pathlib.Path(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
    file = open(path / '.lock', 'a', opener=regular)  # noqa: SIM115
  except OSError as e:
    raise errors.InputError(
      f'--{flag}={path} cannot be written ({e.strerror}); choose another'
    ) from e
  if not hold(file, path):
    file.close()
    raise errors.InputError(
      f'another process is running in {path}; wait for it, or choose another --{flag}'
    )
  return file


def hold(file: TextIO, folder: pathlib.Path) -> bool:
  """Locks an open file of a folder until it is closed; False if another has it.

  Where the file system has no locks, nobody has it: this is told once.
  """
  found = try_lock(file)
  if found is None and not _told:
    _told.append(folder)
    print(
      f'warning: the file system of {folder} has no locks: start no second process'
      ' that writes there',
      file=sys.stderr,
    )
  return found is not False


def try_lock(file: TextIO | int) -> bool | None:
  """Locks an open file or folder until it is closed.

  False if another has it, and None where the file system has no locks: that of NFS
  without its lock service, of EFS and of some Lustre has several errors for that.
  """
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError:
    return None
  return True


def regular(path: str, flags: int) -> int:
  """As `opener` of `open`: refuses a link to anybody's file, and a pipe, which
  waits."""
  try:
    found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
  except OSError as e:
    if e.errno not in (errno.ELOOP, errno.ENXIO):
      raise
  else:
    if stat.S_ISREG(os.fstat(found).st_mode):
      return found
    os.close(found)
  name = os.path.basename(path)
  raise OSError(errno.ELOOP, f'{name} is a link or a pipe', path)
