"""A cache of arrays that were parsed from files, in the user's cache folder.

Parsing the largest sets takes many minutes. The cache folder (`cache_folder`) holds one
folder for each cache: a file for each array, and `about.json`, which says what they are
and what they were made from. A cache is valid for that source only; any other is made
again and replaced. Caches may be deleted at any time. Arrays are mapped, not read, so
that processes that load the same files share the memory.
"""

import collections
import contextlib
import hashlib
import json
import math
import os
import pathlib
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from datasets import cache_folder

_ABOUT = 'about.json'
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Store:
  """A folder in which arrays are put while they are made."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._rows = collections.Counter()
    self._specs = {}

  def append(self, name: str, rows: np.ndarray) -> None:
    """Adds rows [k, ...], all of one shape and dtype, to the end of an array."""
    spec = rows.dtype.str, rows.shape[1:]
    assert self._specs.setdefault(name, spec) == spec, name
    with (self._folder / name).open('ab') as file:
      file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
    self._rows[name] += len(rows)

  def close(self, source: Any) -> None:
    """Writes what the arrays are, and what they are made from."""
    arrays_ = {
      name: [dtype, [self._rows[name], *shape]] for name, (dtype, shape) in self._specs.items()
    }
    about = json.dumps({'source': source, 'arrays': arrays_})
    (self._folder / _ABOUT).write_text(about, encoding='ascii')


def arrays(
  cache: pathlib.Path, source: Any, fill: Callable[[Store], None]
) -> Mapping[str, np.ndarray]:
  """Returns the read-only arrays of a cache; makes them if there is no valid one.

  `cache` is from `path`, and `source` describes, in values of JSON, what they are made
  from. `fill` runs in memory of constant size if it appends a few rows at a time. If
  the cache cannot be written, the arrays are made in a temporary folder each time.
  """
  source = json.loads(json.dumps(source))
  with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
    return _mapped(cache, source)
  if is_writable(cache.parent):
    with contextlib.suppress(OSError):  # The disk is full, perhaps.
      return _made(cache.parent, cache, source, fill)
  return _made(None, None, source, fill)


def _made(
  place: pathlib.Path | None, cache: pathlib.Path | None, source, fill
) -> Mapping[str, np.ndarray]:
  """Makes arrays in a new folder in `place`, which then becomes the cache, if any."""
  with tempfile.TemporaryDirectory(dir=place, prefix='.new.', ignore_cleanup_errors=True) as work:
    new = pathlib.Path(work) / 'new'
    os.mkdir(new)
    store = Store(new)
    fill(store)
    store.close(source)
    found = _mapped(new, source)  # Files that are mapped may be deleted.
    if cache:
      # A folder can only replace an empty one. If another process comes between these
      # two steps, its cache stays.
      with contextlib.suppress(OSError):
        if cache.exists():
          cache.rename(pathlib.Path(work) / 'old')
        new.rename(cache)
  return found


def _mapped(cache: pathlib.Path, source: Any) -> Mapping[str, np.ndarray]:
  """Maps the arrays of a folder; raises ValueError for another source, and more."""
  folder = os.stat(cache).st_ino
  about = json.loads((cache / _ABOUT).read_text(encoding='ascii'))
  if about['source'] != source:
    raise ValueError('another source')
  found = {}
  for name, (dtype, shape) in about['arrays'].items():
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if os.stat(cache / name).st_size != size:
      raise ValueError(f'{name} is damaged')
    # Nothing cannot be mapped.
    found[name] = (
      np.memmap(cache / name, dtype, 'r', shape=tuple(shape)) if size else np.zeros(shape, dtype)
    )
    found[name].setflags(write=False)
  # If another process replaced the folder meanwhile, these may be files of both.
  if os.stat(cache).st_ino != folder:
    raise ValueError('another cache')
  return found


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
  """Returns `arrays` made from files by code of a version, cached as `path` says.

  The files count by path, size and modification time.
  """
  described = []
  for file in files:
    status = os.stat(file)
    where = str(pathlib.Path(file).resolve())
    described.append([where, status.st_size, status.st_mtime_ns])
  source = {'version': version, 'files': described, **settings}
  return arrays(path(data, form), source, fill)


def is_writable(folder: pathlib.Path) -> bool:
  """Makes a folder of caches; returns whether its mode, which root ignores, lets
  one write."""
  try:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return bool(folder.stat().st_mode & _WRITABLE)
  except OSError:
    return False
