"""Files of named arrays: checkpoints, and what clients keep."""

import os
import pathlib
import zipfile
from collections.abc import Collection
from collections.abc import Mapping

import numpy as np

from tff_xc import errors
from tff_xc import npz_headers
from tff_xc.experiment import writing
from tff_xc.report import run_files

# Errors that prevent reading a sound file.
_NOT_DAMAGE = (MemoryError, PermissionError)


class DamagedError(Exception):
  """A file is missing or damaged; the message is one line."""


def write(
  path: pathlib.Path, named: Mapping[str, np.ndarray], durable: bool = True
) -> None:
  """Writes an `.npz` file, whole or not at all.

  Args:
    path: the file.
    named: the arrays.
    durable: see `run_files.replacing`.

  Raises:
    errors.InputError: it cannot be written.
  """
  # `np.savez` leaves its archive open if the disk is full, which then
  # complains when Python destroys it.
  with (
    writing.writing(path),
    run_files.replacing(path, durable) as temporary,
    zipfile.ZipFile(temporary, 'w') as archive,
  ):
    archive.comment = _count(named)
    for name, array in named.items():
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def read(
  path: pathlib.Path, without: str | None = None
) -> dict[str, np.ndarray]:
  """Reads what `write` wrote.

  Args:
    path: the file.
    without: the beginning of the names of arrays that are left out.

  Raises:
    DamagedError: the file is missing or damaged.
    errors.InputError: it may be sound and cannot be read.
  """
  if not path.is_file():  # A pipe would wait for a writer.
    raise DamagedError('there is no such file')
  try:
    with np.load(path, allow_pickle=False) as file:
      # Files of earlier versions have no comment.
      if file.zip.comment not in (b'', _count(file.files)):
        raise DamagedError('its list of arrays is damaged')
      names = [n for n in file.files if not (without and n.startswith(without))]
      npz_headers.check(
        path, names, 'free some, or delete the file if it is damaged'
      )
      return {name: file[name] for name in names}
  except (DamagedError, errors.InputError):
    raise
  except _NOT_DAMAGE as e:
    raise errors.InputError(
      f'{path} cannot be read ({_first_line(e)}); mend that, and start the same'
      ' command again'
    ) from e
  except Exception as e:  # NumPy raises many types for a damaged file.
    raise DamagedError(_first_line(e)) from e


def _count(named: Collection) -> bytes:
  """Returns the archive's comment.

  A bit of the list of an archive's members may hide those that follow it, and all
  others are sound: their number shows it.
  """
  return f'{len(named)} arrays'.encode()


def is_whole(path: str | os.PathLike) -> bool:
  """Whether a file has its beginning and its end; reads little of it."""
  return os.path.isfile(path) and zipfile.is_zipfile(path)


def _first_line(error) -> str:
  return (str(error).strip() or repr(error)).splitlines()[0][:120]
