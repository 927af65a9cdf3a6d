"""A cache of arrays that were parsed from files, in the user's cache folder.

The cache folder (`cache_folder`) holds one folder for each cache: the arrays' bytes,
and `about.json`, which says what they are and what they were made from. A cache is
valid for that source only. If it is invalid or damaged, the arrays are made again and
the cache replaced. Caches may be deleted at any time. Arrays are mapped from the
cache, not read, so that processes that load the same files share the memory.
"""

import collections
import contextlib
import fcntl
import glob
import hashlib
import io
import json
import os
import pathlib
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets import cache_folder
from tff_xc import lock

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Store:
  """Where arrays are put while they are made: files, or the memory."""

  def __init__(self, open_file: Callable[[str], Any]):
    """Takes what opens a file for the array of a name."""
    self._open = open_file
    self.files, self._specs = {}, {}
    self._rows, self._sums = collections.Counter(), collections.Counter()

  def append(self, name: str, rows: np.ndarray) -> None:
    """Adds rows [k, ...], all of one shape and dtype, to the end of an array."""
    spec = rows.shape[1:], rows.dtype
    if name not in self.files:
      self.files[name], self._specs[name] = self._open(name), spec
    assert spec == self._specs[name], name
    content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    self.files[name].write(content)
    self._rows[name] += len(rows)
    self._sums[name] = zlib.crc32(content, self._sums[name])

  def described(self) -> dict[str, list]:
    """Returns each array's dtype, shape and checksum, which covers these, too."""
    described = {}
    for name, (shape, dtype) in self._specs.items():
      spec = [dtype.str, [self._rows[name], *shape]]
      described[name] = [*spec, _checksum(spec, self._sums[name])]
    return described


def arrays(
  cache: pathlib.Path, source: Any, fill: Callable[[Store], None]
) -> Mapping[str, np.ndarray]:
  """Returns the read-only arrays of a cache; makes them if there is no valid
  cache.

  `cache` is from `path`, and `source` describes, in values of JSON, what they are
  made from. `fill` may be called twice, and runs in memory of constant size if it
  appends a few rows at a time. If the cache cannot be written, the arrays are
  made in memory each time.
  """
  found = load(cache, source)
  if found is None:
    _save(cache, source, fill)
    found = load(cache, source)
  if found is None:
    store = Store(lambda name: io.BytesIO())
    fill(store)
    found = {
      name: _array(spec, np.frombuffer(store.files[name].getbuffer(), np.uint8))
      for name, spec in store.described().items()
    }
  return found


def load(cache: pathlib.Path, source: Any) -> Mapping[str, np.ndarray] | None:
  """Returns the arrays of a cache, or None if there is no valid one."""
  try:
    folder = cache.stat().st_ino
    about = json.loads((cache / 'about.json').read_text(encoding='ascii'))
    # The source first: checksums read all of the arrays.
    if about['source'] != json.loads(json.dumps(source)):
      return None
    found = {}
    for name, (dtype, shape, checksum) in about['arrays'].items():
      content = np.zeros(0, np.uint8)  # Nothing cannot be mapped.
      if (cache / name).stat().st_size:
        content = np.memmap(cache / name, np.uint8, 'r')
      if checksum != _checksum([dtype, shape], zlib.crc32(content)):
        return None
      found[name] = _array([dtype, shape], content)
    # If another process replaced the folder meanwhile, these may be files of
    # both.
    return found if cache.stat().st_ino == folder else None
  except (OSError, ValueError, KeyError, TypeError, AttributeError):
    return None


def path(data: str | os.PathLike, form: str) -> pathlib.Path:
  """Returns the folder of a cache, named by the absolute path of the data."""
  data = pathlib.Path(data).resolve()
  key = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
  return cache_folder.folder() / f'{data.name}.{key}.{form}'


def of_files(
  data: str | os.PathLike,
  form: str,
  version: int,
  files: Iterable[str | os.PathLike],
  fill: Callable[[Store], None],
  /,
  **settings,
) -> Mapping[str, np.ndarray]:
  """Returns `arrays` made from files by code of a version, cached as `path` says."""
  source = describe_files(version, files, **settings)
  return arrays(path(data, form), source, fill)


def describe_files(
  version: int, files: Iterable[str | os.PathLike], **settings
) -> dict:
  """Describes files by path, size and modification time, as a `source`."""
  described = []
  for file in files:
    status = os.stat(file)
    where = str(pathlib.Path(file).resolve())
    described.append([where, status.st_size, status.st_mtime_ns])
  return {'version': version, 'files': described, **settings}


def is_writable(folder: pathlib.Path) -> bool:
  """Makes a folder of caches; returns whether its mode, which root ignores, lets
  one write."""
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return bool(folder.stat().st_mode & _WRITABLE)
  except OSError:
    return False


def _checksum(spec: list, content: int) -> int:
  return zlib.crc32(json.dumps(spec).encode(), content)


def _array(spec: list, content: np.ndarray) -> np.ndarray:
  array = content.view(spec[0]).reshape(spec[1])
  array.setflags(write=False)
  return array


def _save(cache: pathlib.Path, source, fill: Callable[[Store], None]) -> None:
  """Writes a cache in one step, or nothing if that is not possible."""
  try:
    if not is_writable(cache.parent):
      return
    with _work_folder(cache) as work, contextlib.ExitStack() as opened:
      new = work / 'new'
      new.mkdir()
      store = Store(lambda n: opened.enter_context((new / n).open('wb')))
      fill(store)
      opened.close()
      about = {'source': source, 'arrays': store.described()}
      (new / 'about.json').write_text(json.dumps(about), encoding='ascii')
      # A folder can only replace an empty one. If another process comes between
      # these two steps, its cache stays, and this one is removed.
      if cache.exists():
        cache.rename(work / 'old')
      new.rename(cache)
  except OSError:
    pass  # The disk is read-only or full; the arrays can be made in memory.


@contextlib.contextmanager
def _work_folder(cache: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes a folder for a new cache; removes those that killed processes left.

  Who writes a cache has a shared lock of the folder of all caches. The system
  gives it back when the process ends, in whatever way. So if nobody else has it,
  what lies there belongs to nobody.
  """
  prefix = f'.{cache.name}.'
  folder = os.open(cache.parent, os.O_RDONLY)
  try:
    if lock.try_lock(folder):
      for left in cache.parent.glob(f'{glob.escape(prefix)}*'):
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):  # There are no locks.
      fcntl.flock(folder, fcntl.LOCK_SH)
    with tempfile.TemporaryDirectory(
      dir=cache.parent, prefix=prefix, ignore_cleanup_errors=True
    ) as work:
      yield pathlib.Path(work)
  finally:
    os.close(folder)
