"""A cache of parsed files of the Extreme Classification Repository.

The user's cache folder (`cache_folder`) holds the arrays of `xc_text.Table`,
one file for each path and form. A cache is valid for one size and modification
time of the text. If it is invalid or damaged, the text is parsed again and the
cache replaced. Caches may be deleted at any time. Features are mapped from the
cache, not read, so that processes that load the same file share the memory.
"""

import hashlib
import json
import os
import pathlib
import stat
import tempfile
import zlib
from typing import BinaryIO

import numpy as np

from datasets import cache_folder
from datasets.xc import text as xc_text
from tff_xc.data import sparse

# Increase this when the layout below or the result of `xc_text` changes.
VERSION = 2

# The layout: MAGIC, the description's length in 8 bytes, the description (JSON,
# see `_describe`), then each array at an offset that is a multiple of 64.
_MAGIC = b'tff_xc\r\n'
_ALIGN = 64

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
  try:
    source = _source(path, form)
  except OSError:
    return xc_text.read(path, form)  # reports the error
  cache = cache_path(path, form)
  table = _load(cache, source)
  if table is None:
    table = xc_text.read(path, form)
    _save(cache, source, table)
    for array in _arrays(table).values():
      array.setflags(write=False)
  return table


def cache_path(path: str | os.PathLike, form: str = 'examples') -> pathlib.Path:
  """Returns the path of a file's cache, named by the file's absolute path."""
  path = pathlib.Path(path).resolve()
  key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
  return cache_folder.folder() / f'{path.name}.{key}.{form}.xc-cache'


def _source(path: pathlib.Path, form: str) -> dict:
  """Describes the file and form that a valid cache was made from."""
  status = path.stat()
  return {
    'version': VERSION,
    'path': str(path.resolve()),
    'form': form,
    'size': status.st_size,
    'mtime_ns': status.st_mtime_ns,
  }


def _arrays(table: xc_text.Table) -> dict[str, np.ndarray]:
  arrays = {}
  for part in ('features', 'labels'):
    if getattr(table, part) is not None:
      for name, array in getattr(table, part)._asdict().items():
        arrays[f'{part}/{name}'] = array
  return arrays


def _save(cache: pathlib.Path, source: dict, table: xc_text.Table) -> None:
  """Writes a cache in one step, or nothing if that is not possible."""
  temporary = None
  try:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not cache.parent.stat().st_mode & _WRITABLE:
      return
    with tempfile.NamedTemporaryFile(
      dir=cache.parent, prefix=f'.{cache.name}.', delete=False
    ) as file:
      temporary = pathlib.Path(file.name)
      _write(file, source, table)
    temporary.chmod(0o644)
    os.replace(temporary, cache)
  except OSError:
    pass  # The disk is read-only or full; the text can be parsed again.
  finally:
    if temporary is not None:
      temporary.unlink(missing_ok=True)


def _write(file: BinaryIO, source: dict, table: xc_text.Table) -> None:
  arrays = {
    name: array.astype(array.dtype.newbyteorder('<'), copy=False)
    for name, array in _arrays(table).items()
  }
  text = json.dumps(
    {
      'source': source,
      'header': list(table.header),
      'arrays': {name: _describe(array) for name, array in arrays.items()},
    }
  ).encode()
  file.write(_MAGIC + len(text).to_bytes(8, 'little') + text)
  file.write(zlib.crc32(text).to_bytes(4, 'little'))
  for array in arrays.values():
    file.write(bytes(-file.tell() % _ALIGN))
    file.write(memoryview(array).cast('B'))


def _describe(array: np.ndarray) -> dict:
  return {
    'dtype': array.dtype.str,
    'length': len(array),
    'crc32': zlib.crc32(array),
  }


def _load(cache: pathlib.Path, source: dict) -> xc_text.Table | None:
  """Returns the content of a cache, or None if there is no valid one."""
  try:
    size = cache.stat().st_size
    with open(cache, 'rb') as file:
      if file.read(len(_MAGIC)) != _MAGIC:
        return None
      length = int.from_bytes(file.read(8), 'little')
      text = file.read(min(length, size))
      if file.read(4) != zlib.crc32(text).to_bytes(4, 'little'):
        return None
      description = json.loads(text)
      if description['source'] != source:
        return None
      arrays = _map(file, description['arrays'])
  except (OSError, ValueError, KeyError, TypeError):
    return None
  if arrays is None:
    return None
  return _table(description['header'], arrays)


def _map(file: BinaryIO, descriptions: dict) -> dict | None:
  """Maps the arrays behind the description; None if one is damaged."""
  arrays, offset = {}, file.tell()
  for name, wanted in descriptions.items():
    offset += -offset % _ALIGN
    if wanted['length']:
      array = np.memmap(
        file, wanted['dtype'], 'r', offset, (wanted['length'],)
      ).view(np.ndarray)
    else:
      array = np.zeros(0, wanted['dtype'])
    if _describe(array) != wanted:
      return None
    arrays[name] = array
    offset += array.nbytes
  return arrays


def _table(header: list[int], arrays: dict) -> xc_text.Table:
  parts = {}
  kinds = {'features': sparse.SparseFeatures, 'labels': sparse.LabelSets}
  for part, kind in kinds.items():
    found = [arrays.get(f'{part}/{field}') for field in kind._fields]
    parts[part] = None if found[0] is None else kind(*found)
  return xc_text.Table(xc_text.Header(*header), **parts)
