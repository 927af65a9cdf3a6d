"""Measures the free memory, and refuses data that would not fit.

Callers check sizes from file headers and configurations here before they read or allocate
anything of that size.
"""

import os
import pathlib
import zipfile
from collections.abc import Container

from tff_xc import errors, wording

# What is larger than this, and so many times the file that it is in, is no data:
# it fills the memory of whoever opens a small file.
_LARGE, _MOST_TIMES = 10**9, 200
_CGROUP = pathlib.Path('/sys/fs/cgroup')
_MEMINFO = pathlib.Path('/proc/meminfo')


def free_bytes(meminfo: pathlib.Path = _MEMINFO, cgroup: pathlib.Path = _CGROUP) -> int:
  """Returns the free memory: the machine's, or the rest of a container's limit."""
  words = meminfo.read_text().split()
  free = int(words[words.index('MemAvailable:') + 1]) * 1024
  try:
    limit = int((cgroup / 'memory.max').read_text())
    used = int((cgroup / 'memory.current').read_text())
    # Of it, what the kernel gives back when it is asked: files that were read.
    words = (cgroup / 'memory.stat').read_text().split()
    used -= int(words[words.index('inactive_file') + 1])
  except (OSError, ValueError):
    return free  # There is no control group, or its limit is 'max'.
  return min(free, max(limit - used, 0))


def require(needed: int, what: str, advice: str) -> None:
  """Refuses what would not fit the free memory; call it before making it.

  Args:
    needed: bytes.
    what: says what is that large, and where: 'a.txt, line 1 names 2,000,000,000
      labels, whose table'.
    advice: what to do, which ends the sentence.
  """
  free = free_bytes()
  if needed > free:
    raise errors.InputError(
      f'{what} takes {wording.human_bytes(needed)} of memory, and'
      f' {wording.human_bytes(free)} are free; {advice}'
    )


def require_unpacked(unpacked: int, packed: int, what: str, advice: str) -> None:
  """As `require`, of what a file of `packed` bytes announces; a copy is made of it."""
  require(2 * unpacked, f'{what}, with a copy,', advice)
  if unpacked > _LARGE and unpacked > _MOST_TIMES * packed:
    raise errors.InputError(
      f'{what} takes {wording.human_bytes(unpacked)}, more than {_MOST_TIMES} times'
      f' what the file has; {advice}'
    )


def require_arrays(archive: zipfile.ZipFile, names: Container[str], what: str, advice: str) -> None:
  """As `require_unpacked`, of the arrays of these names in an `.npz` file."""
  wanted = [m for m in archive.infolist() if m.filename.removesuffix('.npy') in names]
  unpacked = sum(member.file_size for member in wanted)
  require_unpacked(unpacked, os.path.getsize(archive.filename), what, advice)
