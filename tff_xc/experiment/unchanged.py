"""Notices that files which a run reads have been replaced or written to."""

import os
from collections.abc import Iterable

from tff_xc import errors


class Watch:
  """Compares files with what they were when the watch began: `os.stat` of each."""

  def __init__(self, files: Iterable[str | os.PathLike]):
    """Args: files, or links to files; those that do not exist are watched, too."""
    self._were = {os.fspath(file): _stamp(file) for file in files}

  def check(self) -> None:
    """Refuses files that are not those of the beginning.

    Raises:
      errors.InputError: naming the first one whose inode, size or time of change
        differs, or that is gone.
    """
    for file, was in self._were.items():
      if _stamp(file) != was:
        raise errors.InputError(
          f'{file} has changed since this run began to read it, so that the rounds'
          ' since the last checkpoint may have used other data; restore it, if it'
          ' is not the same, and the same command goes on from that checkpoint'
        )


def _stamp(file) -> tuple[int, ...]:
  try:
    status = os.stat(file)
  except OSError:
    return ()
  # Not the device: a network's file system has another one when mounted anew.
  return status.st_ino, status.st_size, status.st_mtime_ns
