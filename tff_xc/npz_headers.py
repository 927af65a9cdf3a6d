"""What an `.npz` file announces, read from the headers of its arrays alone.

A file of a few kilobytes may announce, and unpack to, more than any memory holds.
"""

import math
import os
import zipfile
from collections.abc import Container

import numpy as np

from tff_xc import memory

_MAGIC_BYTES = np.lib.format.MAGIC_LEN
# NumPy refuses longer headers, once it has read them.
_MOST_HEADER_BYTES = 10_000


def check(path: str | os.PathLike, names: Container[str] | None, advice: str) -> None:
  """Refuses arrays of these (or all) names that the free memory cannot hold.

  `advice`, what to do, ends the sentence. Exceptions of `announced` go through.
  """
  size = announced(path, names)
  memory.require_unpacked(size, os.path.getsize(path), f'{path}: what its headers announce', advice)


def announced(path: str | os.PathLike, names: Container[str] | None = None) -> int:
  """Returns the bytes of memory that these (or all) arrays take, at least.

  ValueError for a damaged header or one of Python objects; `zipfile`'s for no archive.
  """
  with zipfile.ZipFile(path) as archive:
    return sum(
      _bytes_of(archive, member)
      for member in archive.infolist()
      if names is None or member.filename.removesuffix('.npy') in names
    )


def _bytes_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
  name, form = member.filename, np.lib.format
  with archive.open(member) as file:
    beginning = file.read(_MAGIC_BYTES)
    if not beginning.startswith(form.MAGIC_PREFIX):
      return member.file_size  # `np.load` returns it as it is.
    short = tuple(beginning[-2:]) == (1, 0)
    length = int.from_bytes(file.read(2 if short else 4), 'little')
    if length > _MOST_HEADER_BYTES:
      raise ValueError(f'the header of {name} has {length} bytes')
    file.seek(_MAGIC_BYTES)
    read = form.read_array_header_1_0 if short else form.read_array_header_2_0
    try:
      shape, _, dtype = read(file)
    except Exception as e:  # Of many types, since NumPy parses it as Python.
      raise ValueError(f'the header of {name} is damaged') from e
  if dtype.hasobject:
    raise ValueError(f'{name} has Python objects')
  if any(size < 0 for size in shape):
    raise ValueError(f'{name} has the shape {shape}')
  # NumPy counts those of no bytes, too.
  return math.prod(shape) * max(dtype.itemsize, 1)
