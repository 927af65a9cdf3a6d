"""A cache of parsed files of the Extreme Classification Repository.

The user's cache folder (`cache_folder`) holds one folder for each path and
form: the arrays of `xc_text.Table` as `.npy` files, and `about.json`. A cache
is valid for one size and modification time of the text. If it is invalid or
damaged, the text is parsed again and the cache replaced. Caches may be deleted
at any time. Arrays are mapped from the cache, not read, so that processes that
load the same file share the memory.
"""

import hashlib
import json
import os
import pathlib
import shutil
import stat
import tempfile
import zlib

import numpy as np
import scipy.sparse

from datasets import cache_folder
from datasets.xc import text as xc_text

# Increase this when the files of a cache or the result of `xc_text` change.
VERSION = 3

_ARRAYS = ('data', 'indices', 'indptr')  # the arguments of a csr_matrix
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def read(path: str | os.PathLike, form: str = 'examples') -> xc_text.Table:
  """Reads a file through its cache; writes the cache if that is missing.

  If the cache folder is not writable, the text is parsed each time. Even root
  does not write to a folder whose mode lets nobody write.

  Args:
    path: the text file.
    form: one of `xc_text.FORMS`.

  Returns:
    The file's content; arrays are read-only.

  Raises:
    errors.InputError: as `xc_text.read`.
  """
  path = pathlib.Path(path)
  header = xc_text.read_header(path, form)
  source = _source(path, form, header)
  cache = cache_path(path, form)
  table = _load(cache, source, header)
  if table is None:
    table = xc_text.read(path, form)
    _save(cache, source, table)
    for array in _arrays(table).values():
      array.setflags(write=False)
  return table


def cache_path(path: str | os.PathLike, form: str = 'examples') -> pathlib.Path:
  """Returns the folder of a file's cache, named by the file's absolute path."""
  path = pathlib.Path(path).resolve()
  key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
  return cache_folder.folder() / f'{path.name}.{key}.{form}'


def _source(path: pathlib.Path, form: str, header: xc_text.Header) -> dict:
  """Describes the file and form that a valid cache was made from."""
  status = path.stat()
  return {
    'version': VERSION,
    'path': str(path.resolve()),
    'form': form,
    'size': status.st_size,
    'mtime_ns': status.st_mtime_ns,
    'header': list(header),
  }


def _arrays(table: xc_text.Table) -> dict[str, np.ndarray]:
  """Returns the table's arrays by the names of their files."""
  return {
    f'{part}.{name}.npy': getattr(getattr(table, part), name)
    for part in ('features', 'labels')
    for name in _ARRAYS
    if getattr(table, part) is not None
  }


def _save(cache: pathlib.Path, source: dict, table: xc_text.Table) -> None:
  """Writes a cache in one step, or nothing if that is not possible."""
  work = None
  try:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not cache.parent.stat().st_mode & _WRITABLE:
      return
    prefix = f'.{cache.name}.'
    work = pathlib.Path(tempfile.mkdtemp(dir=cache.parent, prefix=prefix))
    _write(work / 'new', source, table)
    # A folder can only replace an empty one. If another process comes between
    # these two steps, its cache stays, and this one is removed.
    if cache.exists():
      cache.rename(work / 'old')
    (work / 'new').rename(cache)
  except OSError:
    pass  # The disk is read-only or full; the text can be parsed again.
  finally:
    if work is not None:
      shutil.rmtree(work, ignore_errors=True)


def _write(folder: pathlib.Path, source: dict, table: xc_text.Table) -> None:
  folder.mkdir()
  for name, array in _arrays(table).items():
    np.save(folder / name, array)
  about = json.dumps(_describe(folder, source), indent=2)
  (folder / 'about.json').write_text(about, encoding='ascii')


def _describe(folder: pathlib.Path, source: dict) -> dict:
  """Returns what `about.json` must hold beside the folder's present arrays."""
  return {
    'source': source,
    'crc32': {
      path.name: zlib.crc32(np.memmap(path, np.uint8, 'r'))
      for path in sorted(folder.glob('*.npy'))
    },
  }


def _load(
  cache: pathlib.Path, source: dict, header: xc_text.Header
) -> xc_text.Table | None:
  """Returns the content of a cache, or None if there is no valid one."""
  try:
    folder = cache.stat().st_ino
    about = json.loads((cache / 'about.json').read_text(encoding='ascii'))
    if about != _describe(cache, source):
      return None
    table = xc_text.Table(
      header,
      _matrix(cache, 'features', (header.num_examples, header.num_features)),
      _matrix(cache, 'labels', (header.num_examples, header.num_labels)),
    )
    # If another process replaced the folder meanwhile, these are not the files
    # that were checked.
    return table if cache.stat().st_ino == folder else None
  except (OSError, ValueError):
    return None


def _matrix(
  cache: pathlib.Path, part: str, shape: tuple[int, int]
) -> scipy.sparse.csr_matrix | None:
  paths = [cache / f'{part}.{name}.npy' for name in _ARRAYS]
  if not paths[0].exists():
    return None
  arrays = (np.load(path, mmap_mode='r') for path in paths)
  return scipy.sparse.csr_matrix(tuple(arrays), shape, copy=False)
