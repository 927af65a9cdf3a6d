"""Measures the free memory, and refuses data that would not fit.

A file's header or a configuration announces the size of an object. Callers check this size
here before they read or create the object.
"""

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Container

from tff_xc import errors, wording

# If a file's unpacked content is larger than `_LARGE` bytes and than `_MOST_TIMES` times
# the file, the file is probably malicious: a small file that fills the memory.
_LARGE, _MOST_TIMES = 10**9, 200
_CGROUP = pathlib.Path('/sys/fs/cgroup')
_MEMINFO = pathlib.Path('/proc/meminfo')
# Versions 2 and 1: the files with the limit and the used bytes, and the statistic of the cache.
_CGROUP_FILES = (
  ('memory.max', 'memory.current', 'inactive_file'),
  ('memory/memory.limit_in_bytes', 'memory/memory.usage_in_bytes', 'total_inactive_file'),
)


def free_bytes(meminfo: pathlib.Path = _MEMINFO, cgroup: pathlib.Path = _CGROUP) -> int:
  """Returns the free memory of the machine, or of the container if its limit leaves less."""
  words = meminfo.read_text().split()
  free = int(words[words.index('MemAvailable:') + 1]) * 1024
  for most, current, cache in _CGROUP_FILES:
    folder = cgroup / pathlib.PurePath(most).parent
    # There may be no control group of this version, or its limit may be 'max'.
    with contextlib.suppress(OSError, ValueError):
      limit, used = (int((cgroup / name).read_text()) for name in (most, current))
      # The kernel frees its cache of files on demand, so the cache does not count as used.
      words = (folder / 'memory.stat').read_text().split()
      used -= int(words[words.index(cache) + 1])
      free = min(free, max(limit - used, 0))
  return free


def require(needed: int, what: str, advice: str) -> None:
  """Raises InputError if an object would not fit the free memory; call before creating it.

  Args:
    needed: number of bytes.
    what: the beginning of the message, which describes the object and where it comes from:
      'a.txt, line 1 names 2,000,000,000 labels, whose table'.
    advice: the end of the message, which says what to do.
  """
  free = free_bytes()
  if needed > free:
    raise errors.InputError(
      f'{what} takes {wording.human_bytes(needed)} of memory, and'
      f' {wording.human_bytes(free)} are free; {advice}'
    )


def require_unpacked(unpacked: int, packed: int, what: str, advice: str) -> None:
  """Raises InputError if the `unpacked` bytes and a copy would not fit the free memory.

  Also raises InputError if the unpacked content is implausibly large for a file of `packed`
  bytes.
  """
  require(2 * unpacked, f'{what}, with a copy,', advice)
  if unpacked > _LARGE and unpacked > _MOST_TIMES * packed:
    raise errors.InputError(
      f'{what} takes {wording.human_bytes(unpacked)}, more than {_MOST_TIMES} times'
      f' what the file has; {advice}'
    )


def require_arrays(archive: zipfile.ZipFile, names: Container[str], what: str, advice: str) -> None:
  """Checks the arrays `names` of an `.npz` file as `require_unpacked` does."""
  wanted = [m for m in archive.infolist() if m.filename.removesuffix('.npy') in names]
  unpacked = sum(member.file_size for member in wanted)
  require_unpacked(unpacked, os.path.getsize(archive.filename), what, advice)
