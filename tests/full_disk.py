"""Mounts a small file system that tests fill up, to test a full disk."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

from tests import processes


class Disk:
  """A mounted file system.

  Attributes:
    path: where the file system is mounted.
  """

  def __init__(self, path: pathlib.Path):
    self.path = path
    self._filler = path / 'filler'

  def fill(self, left: int = 0) -> None:
    """Fills the file system until only `left` bytes are free."""
    with open(self._filler, 'ab', buffering=0) as file:
      with contextlib.suppress(OSError):
        while True:
          file.write(bytes(4096))
      file.truncate(max(file.tell() - left, 0))

  def make_room(self) -> None:
    self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(path: pathlib.Path, size: str) -> Iterator[Disk | str]:
  """Mounts a `Disk` of this size for the block. If this is impossible, yields the reason."""
  path.mkdir()
  why = 'only root can mount a small file system'
  if os.geteuid() == 0:
    done = processes.run(['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', str(path)])
    why = done.stderr.strip()
  if why:
    yield f'no small file system: {why}'
    return
  try:
    yield Disk(path)
  finally:
    # Use a lazy unmount, because a run of the test may still hold a lock there.
    subprocess.run(['umount', '-l', str(path)], check=True)
