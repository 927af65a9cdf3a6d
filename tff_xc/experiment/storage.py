"""Reads and writes a run's arrays, explains write errors, and detects changed data files."""

import contextlib
import os
import pathlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_xc import errors, files, memory


class DamagedError(Exception):
  """A file is missing or damaged; the message is one line."""


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
  """Raises InputError with `path` if the block cannot write, for example to a full disk."""
  try:
    yield
  except (OSError, tf.errors.OpError) as e:
    if isinstance(e, OSError):
      why = e.strerror
    else:  # The message is 'FILE; REASON', or REASON and more lines. Keep REASON.
      why = (e.message.splitlines() or [''])[0].split('; ')[-1]
    raise errors.InputError(
      f'{path} cannot be written ({why}); mend that, and the same command goes on'
      ' from the last checkpoint'
    ) from e


def write_arrays(path: pathlib.Path, named: Mapping[str, np.ndarray], durable: bool = True) -> int:
  """Writes an `.npz` file completely or not at all; see `files.replacing`.

  Returns a checksum of the content. `checksum` computes the same number from the file.
  """
  # Do not use `np.savez`. If the disk is full, `np.savez` leaves its archive open, and Python
  # prints an error when it deletes the archive.
  with (
    writing(path),
    files.replacing(path, durable) as temporary,
    zipfile.ZipFile(temporary, 'w') as archive,
  ):
    archive.comment = _comment(len(named))
    for name, array in named.items():
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)
    return _checksum(archive)


def read_arrays(
  path: pathlib.Path, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, np.ndarray]:
  """Reads a file of `write_arrays`. Returns the arrays with a name for which `wanted` is true.

  Raises DamagedError for a missing or damaged file. Raises `errors.InputError` if the file
  cannot be read for another reason, such as too little memory.
  """
  if not path.is_file():  # If `path` is a named pipe, reading would never end.
    raise DamagedError('there is no such file')
  try:
    with np.load(path, allow_pickle=False) as file:
      is_stored = all(m.file_size == m.compress_size for m in file.zip.infolist())
      if file.zip.comment != _comment(len(file.files)) or not is_stored:
        raise DamagedError('its list of arrays is damaged')
      names = list(filter(wanted, file.files))
      advice = 'free some, or delete the file if it is damaged'
      memory.require_arrays(file.zip, names, f'{path}', advice)
      return {name: _read(file, name) for name in names}
  except (DamagedError, errors.InputError):
    raise
  except Exception as e:  # NumPy raises many types of errors for damaged files.
    told = (str(e).strip() or repr(e)).splitlines()[0][:120]
    if not isinstance(e, MemoryError | PermissionError):
      raise DamagedError(told) from e
    raise errors.InputError(
      f'{path} cannot be read ({told}); mend that, and start the same command again'
    ) from e


def _read(file, name: str) -> np.ndarray:
  try:
    return file[name]
  except SystemError:
    # CPython 3.11 raises this error if another thread parses Python code while NumPy parses
    # the header. A second attempt works:
    # https://github.com/python/cpython/issues/106905
    return file[name]


def _comment(count: int) -> bytes:
  """Returns an archive's comment: the number of arrays, with which a reader checks the list."""
  return f'{count} arrays'.encode()


def named(structure) -> list[tuple[str, Any]]:
  """Returns (path, leaf) pairs of a structure, in order."""
  return [('/'.join(map(str, path)), leaf) for path, leaf in tree.flatten_with_path(structure)]


def checksum(path: str | os.PathLike) -> int | None:
  """Returns the checksum that `write_arrays` returned; None if the file is missing or truncated.

  The function reads only the archive's list of arrays. The list has a checksum of each array.
  """
  if not os.path.isfile(path):
    return None
  try:
    with zipfile.ZipFile(path) as archive:
      return _checksum(archive)
  except (OSError, zipfile.BadZipFile):
    return None


def _checksum(archive: zipfile.ZipFile) -> int:
  told = [f'{member.filename} {member.CRC}' for member in archive.infolist()]
  return zlib.crc32('\n'.join(told).encode())


class Watch:
  """Remembers the `os.stat` of files, and later detects files that have changed."""

  def __init__(self, files: Iterable[str | os.PathLike]):
    self._were = {os.fspath(file): _stamp(file) for file in files}

  def check(self) -> None:
    """Raises InputError for the first file that has changed since `__init__`."""
    for file, was in self._were.items():
      if _stamp(file) != was:
        raise errors.InputError(
          f'{file} has changed since this run began to read it, so the rounds'
          ' since the last checkpoint may have used other data; restore it, if its'
          ' content is different, and the same command goes on from that checkpoint'
        )


def _stamp(file) -> tuple[int, ...]:
  try:
    status = os.stat(file)
  except OSError:
    return ()
  # The device number is left out, because it changes when a network drive is remounted.
  return status.st_ino, status.st_size, status.st_mtime_ns
