"""Caches the arrays that were parsed from files, in the user's cache folder.

Parsing the largest data sets takes many minutes. The cache folder (`cache_folder`) has one
folder for each data set, with a .npy file for each array. The folder's name includes a hash
of the source files, so that changed files get a new cache. Users may delete caches at any
time. The arrays are memory-mapped, so that processes that load the same files share memory.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from datasets import cache_folder


def of_files(
  data: str | os.PathLike,
  form: str,
  version: int,
  files: Iterable[str | os.PathLike],
  make: Callable[[], Mapping[str, np.ndarray]],
  /,
  **settings,
) -> Mapping[str, np.ndarray]:
  """Returns the cached arrays of `files`, read-only; calls `make` if there is no valid cache.

  A cache is valid for one `version` of the code, the same `settings`, and files with the
  same path, size and modification time. If the cache cannot be written, each call makes the
  arrays again. A new cache replaces older caches of the same `data`.
  """
  status = [(os.path.realpath(file), os.stat(file)) for file in files]
  described = [[name, s.st_size, s.st_mtime_ns] for name, s in status]
  older = path(data, form)
  cache = older.with_name(f'{older.name}.{_hash([version, described, settings])}')
  with contextlib.suppress(OSError, ValueError):  # There is no cache, or a file is cut short.
    return _mapped(cache)
  made = make()
  with contextlib.suppress(OSError):  # The folder cannot be written to, or the disk is full.
    with tempfile.TemporaryDirectory(dir=cache.parent, prefix='.new.') as work:
      new = pathlib.Path(work) / cache.name
      new.mkdir()
      for name, array in made.items():
        np.save(new / f'{name}.npy', array)
      for old in cache.parent.glob(f'{older.name}.*'):
        shutil.rmtree(old, ignore_errors=True)
      new.rename(cache)
    return _mapped(cache)
  return made


def _mapped(cache: pathlib.Path) -> Mapping[str, np.ndarray]:
  return {file.stem: np.load(file, mmap_mode='r') for file in cache.iterdir()}


def path(data: str | os.PathLike, form: str) -> pathlib.Path:
  """Returns the path of a file or folder in the cache.

  Its name has a hash of the data's absolute path. Makes the cache folder if possible.
  """
  data, folder = pathlib.Path(data).resolve(), cache_folder.folder()
  with contextlib.suppress(OSError):
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  return folder / f'{form}.{_hash(os.fspath(data))}'


def _hash(value) -> str:
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
