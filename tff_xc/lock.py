"""Locks a directory against a second process. Imports no TensorFlow."""

import errno
import fcntl
import os
import pathlib
import stat
from typing import TextIO

from tff_xc import errors


def lock(path: str | os.PathLike, flag: str) -> TextIO:
  """Creates a directory, and locks it until the returned file is closed.

  `flag` names it in errors: another process has it, or it cannot be written.
  """
  path = pathlib.Path(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
    file = open(path / '.lock', 'a', opener=regular)  # noqa: SIM115
  except OSError as e:
    raise errors.InputError(
      f'--{flag}={path} cannot be written ({e.strerror}); choose another'
    ) from e
  if not try_lock(file):
    file.close()
    raise errors.InputError(
      f'another process is running in {path}; wait for it, or choose another'
      f' --{flag}'
    )
  return file


def try_lock(file: TextIO | int) -> bool:
  """Locks an open file or folder until it is closed; False if another has it."""
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
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
