"""A cache of arrays that were parsed from files, in the user's cache folder.

The cache folder (`cache_folder`) holds one folder for each cache: arrays as
`.npy` files, and `about.json`, which says what they were made from. A cache is
valid for that source only. If it is invalid or damaged, the arrays are made
again and the cache replaced. Caches may be deleted at any time. Arrays are
mapped from the cache, not read, so that processes that load the same files
share the memory.
"""

import collections
import contextlib
import fcntl
import hashlib
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
from typing import Protocol

import numpy as np

from datasets import cache_folder

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Store(Protocol):
  """Where arrays are put while they are made."""

  def append(self, name: str, rows: np.ndarray) -> None:
    """Adds rows [k, ...] to the end of an array; its first rows set its dtype.

    Rows of an array have one shape and one dtype.
    """


def arrays(
  cache: pathlib.Path, source: Any, fill: Callable[[Store], None]
) -> Mapping[str, np.ndarray]:
  """Returns the arrays of a cache; makes them if there is no valid cache.

  If the cache cannot be written, the arrays are made in memory each time. Even
  root does not write to a folder whose mode lets nobody write.

  Args:
    cache: the cache's folder, from `path`.
    source: describes, in values of JSON, what the arrays are made from.
    fill: puts the arrays into a store; it may be called twice, and it runs in
      memory of constant size if it appends a few rows at a time.

  Returns:
    Read-only arrays by name.
  """
  found = load(cache, source)
  if found is None:
    _save(cache, source, fill)
    found = load(cache, source)
  if found is None:
    store = _InMemory()
    fill(store)
    found = store.arrays()
  return found


def load(cache: pathlib.Path, source: Any) -> Mapping[str, np.ndarray] | None:
  """Returns the arrays of a cache, or None if there is no valid one.

  The arguments are those of `arrays`.
  """
  source = json.loads(json.dumps(source))  # As about.json gives it back.
  try:
    folder = cache.stat().st_ino
    about = json.loads((cache / 'about.json').read_text(encoding='ascii'))
    # The source first: checksums read all of the arrays.
    if about['source'] != source or about != _describe(cache, source):
      return None
    found = {
      name.removesuffix('.npy'): np.load(cache / name, mmap_mode='r')
      for name in about['crc32']
    }
    # If another process replaced the folder meanwhile, these are not the files
    # that were checked.
    return found if cache.stat().st_ino == folder else None
  except (OSError, ValueError, KeyError, TypeError):
    return None


def path(data: str | os.PathLike, form: str) -> pathlib.Path:
  """Returns the folder of a cache, named by the absolute path of the data."""
  data = pathlib.Path(data).resolve()
  key = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
  return cache_folder.folder() / f'{data.name}.{key}.{form}'


def describe_files(
  version: int, files: Iterable[str | os.PathLike], **settings
) -> dict:
  """Describes files by path, size and modification time, as a `source`.

  Args:
    version: of the code that makes the arrays.
    files: the files, which exist.
    **settings: what else the arrays depend on, in values of JSON.
  """
  described = []
  for file in files:
    status = os.stat(file)
    where = str(pathlib.Path(file).resolve())
    described.append([where, status.st_size, status.st_mtime_ns])
  return {'version': version, 'files': described, **settings}


def is_writable(folder: pathlib.Path) -> bool:
  """Makes a folder of caches if need be; returns whether its mode lets one write.

  Even root does not write to a folder whose mode lets nobody write.
  """
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return bool(folder.stat().st_mode & _WRITABLE)
  except OSError:
    return False


class _InMemory:
  """A store in memory."""

  def __init__(self):
    self._parts = collections.defaultdict(list)

  def append(self, name: str, rows: np.ndarray) -> None:
    self._parts[name].append(rows)

  def arrays(self) -> dict[str, np.ndarray]:
    made = {name: np.concatenate(parts) for name, parts in self._parts.items()}
    for array in made.values():
      array.setflags(write=False)
    return made


class _OnDisk:
  """A store in a folder, one `.npy` file for each array."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._files, self._specs, self._rows = {}, {}, collections.Counter()

  def append(self, name: str, rows: np.ndarray) -> None:
    if name not in self._files:
      self._files[name] = (self._folder / f'{name}.npy').open('wb')
      self._specs[name] = rows.shape[1:], rows.dtype
      self._write_header(name)
    assert (rows.shape[1:], rows.dtype) == self._specs[name], name
    self._rows[name] += len(rows)
    flat = np.ascontiguousarray(rows).reshape(-1)
    self._files[name].write(flat.view(np.uint8).data)

  def __enter__(self):
    return self

  def __exit__(self, *exception) -> None:
    """Writes the final headers and closes the files."""
    for name, file in self._files.items():
      with file:
        file.seek(0)
        self._write_header(name)

  def _write_header(self, name: str) -> None:
    # NumPy pads a header so that the number of rows can grow in its place.
    shape, dtype = self._specs[name]
    np.lib.format.write_array_header_1_0(
      self._files[name],
      {
        'descr': np.lib.format.dtype_to_descr(dtype),
        'fortran_order': False,
        'shape': (self._rows[name], *shape),
      },
    )


def _save(cache: pathlib.Path, source, fill: Callable[[Store], None]) -> None:
  """Writes a cache in one step, or nothing if that is not possible."""
  try:
    if not is_writable(cache.parent):
      return
    with _work_folder(cache) as work:
      _write(work / 'new', source, fill)
      # A folder can only replace an empty one. If another process comes between
      # these two steps, its cache stays, and this one is removed.
      if cache.exists():
        cache.rename(work / 'old')
      (work / 'new').rename(cache)
  except OSError:
    pass  # The disk is read-only or full; the arrays can be made in memory.


@contextlib.contextmanager
def _work_folder(cache: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes a folder for a new cache; removes those that killed processes left.

  A process locks its folder while the folder is empty. The system unlocks it
  when the process ends, in whatever way. So a folder that is neither empty nor
  locked belongs to nobody.
  """
  prefix = f'.{cache.name}.'
  for path in list(cache.parent.iterdir()):
    if path.name.startswith(prefix):
      _remove_abandoned(path)
  work = pathlib.Path(tempfile.mkdtemp(dir=cache.parent, prefix=prefix))
  try:
    with _locked(work):
      yield work
  finally:
    shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[bool]:
  """Locks a folder if possible; yields whether it is locked."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      locked = True
    except OSError:  # Another process has it, or the file system has no locks.
      locked = False
    yield locked
  finally:
    os.close(descriptor)


def _remove_abandoned(work: pathlib.Path) -> None:
  # Another process may remove it at the same time.
  with contextlib.suppress(OSError):
    if any(work.iterdir()):
      with _locked(work) as locked:
        if locked:
          shutil.rmtree(work, ignore_errors=True)


def _write(folder: pathlib.Path, source, fill: Callable[[Store], None]) -> None:
  folder.mkdir()
  with _OnDisk(folder) as store:
    fill(store)
  about = json.dumps(_describe(folder, source), indent=2)
  (folder / 'about.json').write_text(about, encoding='ascii')


def _describe(folder: pathlib.Path, source) -> dict:
  """Returns what `about.json` must hold beside the folder's present arrays."""
  return {
    'source': source,
    'crc32': {
      path.name: zlib.crc32(np.memmap(path, np.uint8, 'r'))
      for path in sorted(folder.glob('*.npy'))
    },
  }
