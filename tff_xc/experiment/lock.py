"""Locks a directory against a second process. Imports no TensorFlow."""

import fcntl
import os
import pathlib
from typing import TextIO

from tff_xc import errors


def lock(path: str | os.PathLike, flag: str) -> TextIO:
  """Creates a directory, and locks it until this process ends.

  Args:
    path: the directory.
    flag: the flag that names it, for errors.

  Returns:
    The file PATH/.lock; closing it ends the lock.

  Raises:
    errors.InputError: another process has locked it, or it cannot be written.
  """
  path = pathlib.Path(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
    file = open(path / '.lock', 'w')  # noqa: SIM115
  except OSError as e:
    raise errors.InputError(
      f'--{flag}={path} cannot be written ({e.strerror}); choose another'
    ) from e
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError as e:
    file.close()
    raise errors.InputError(
      f'another process is running in {path}; wait for it, or choose another'
      f' --{flag}'
    ) from e
  return file
