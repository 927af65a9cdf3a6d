"""A run's files: arrays, errors of writing, and data that must not change."""

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
  """Raises InputError with `path` if the block cannot write: a full disk, say."""
  try:
    yield
  except (OSError, tf.errors.OpError) as e:
    if isinstance(e, OSError):
      why = e.strerror
    else:  # Of 'FILE; WHAT', or of WHAT and more lines, what the system said.
      why = (e.message.splitlines() or [''])[0].split('; ')[-1]
    raise errors.InputError(
      f'{path} cannot be written ({why}); mend that, and the same command goes on'
      ' from the last checkpoint'
    ) from e


def write_arrays(path: pathlib.Path, named: Mapping[str, np.ndarray], durable: bool = True) -> int:
  """Writes an `.npz` file, whole or not at all; see `files.replacing`.

  Returns a checksum of its content, as `checksum` does.
  """
  # `np.savez` leaves its archive open if the disk is full, which then
  # complains when Python destroys it.
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
  """Reads what `write_arrays` wrote: the arrays whose names are wanted.

  Raises DamagedError for a missing or damaged file, and `errors.InputError` for one
  that may be sound.
  """
  if not path.is_file():  # A pipe would wait for a writer.
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
  except Exception as e:  # NumPy raises many types for a damaged file.
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
    # CPython 3.11, if another thread parses Python at the same time as NumPy the header:
    # https://github.com/python/cpython/issues/106905
    return file[name]


def _comment(count: int) -> bytes:
  """Returns an archive's comment: its list may hide members, whose number tells."""
  return f'{count} arrays'.encode()


def named(structure) -> list[tuple[str, Any]]:
  """Returns the leaves of a structure in order, with their paths as names."""
  return [('/'.join(map(str, path)), leaf) for path, leaf in tree.flatten_with_path(structure)]


def checksum(path: str | os.PathLike) -> int | None:
  """Returns what `write_arrays` returned for a file; None if it is cut short.

  It reads little of the file: the checksums that the archive has of its arrays.
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
  """Compares files with what they were when the watch began: `os.stat` of each."""

  def __init__(self, files: Iterable[str | os.PathLike]):
    self._were = {os.fspath(file): _stamp(file) for file in files}

  def check(self) -> None:
    """Raises InputError for the first file that is not that of the beginning."""
    for file, was in self._were.items():
      if _stamp(file) != was:
        raise errors.InputError(
          f'{file} has changed since this run began to read it, so that the rounds'
          ' since the last checkpoint may have used other data; restore it, if it'
          ' is not the same, and the same command goes on from that checkpoint'
        )


def _stamp(file) -> tuple[int, ...]:
  try:
    status = os.stat(file)
  except OSError:
    return ()
  # Not the device: a network's file system has another one when mounted anew.
  return status.st_ino, status.st_size, status.st_mtime_ns
