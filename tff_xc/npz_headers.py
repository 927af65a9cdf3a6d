"""What an `.npz` file announces, read from the headers of its arrays alone.

A file of a few kilobytes may announce, and unpack to, more than any memory holds.
"""

import os
import zipfile
from collections.abc import Container

import numpy as np

from tff_xc import memory

_MAGIC_BYTES = np.lib.format.MAGIC_LEN
# NumPy refuses longer headers, once it has read them.
_MOST_HEADER_BYTES = 10_000


def check(
  path: str | os.PathLike, names: Container[str] | None, advice: str
) -> None:
  """Refuses arrays that the free memory cannot hold, before they are read.

  Args:
    path: the file.
    names: the arrays; None: all.
    advice: what to do, which ends the sentence.

  Raises:
    errors.InputError: they are too large, or unpack to far more than the file has.
    Exception: as `announced`.
  """
  size = announced(path, names)
  memory.require_unpacked(
    size, os.path.getsize(path), f'{path}: what its headers announce', advice
  )


def announced(
  path: str | os.PathLike, names: Container[str] | None = None
) -> int:
  """Returns the bytes of memory that arrays of an `.npz` file take, at least.

  Args:
    path: the file.
    names: the arrays; None: all.

  Raises:
    ValueError: a header is damaged, or announces Python objects.
    Exception: as `zipfile.ZipFile` for a file that is no sound archive.
  """
  with zipfile.ZipFile(path) as archive:
    return sum(
      _bytes_of(archive, member)
      for member in archive.infolist()
      if names is None or member.filename.removesuffix('.npy') in names
    )


def _bytes_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
  with archive.open(member) as file:
    beginning = file.read(_MAGIC_BYTES)
    if not beginning.startswith(np.lib.format.MAGIC_PREFIX):
      return member.file_size  # `np.load` returns it as it is.
    short = tuple(beginning[-2:]) == (1, 0)
    length = int.from_bytes(file.read(2 if short else 4), 'little')
    if length > _MOST_HEADER_BYTES:
      raise ValueError(f'the header of {member.filename} has {length} bytes')
    file.seek(_MAGIC_BYTES)
    form = np.lib.format
    read = form.read_array_header_1_0 if short else form.read_array_header_2_0
    try:
      shape, _, dtype = read(file)
    except Exception as e:  # Of many types, since NumPy parses it as Python.
      raise ValueError(f'the header of {member.filename} is damaged') from e
  if dtype.hasobject:
    raise ValueError(f'{member.filename} has Python objects')
  count = 1
  for size in shape:
    if size < 0:
      raise ValueError(f'{member.filename} has the shape {shape}')
    count *= size
  return count * max(dtype.itemsize, 1)  # NumPy counts those of no bytes, too.
