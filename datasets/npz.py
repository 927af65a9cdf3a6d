"""Arrays of a `.npz` file."""

import os
import zipfile
import zlib
from collections.abc import Container

import numpy as np

from tff_xc import errors


def read(
  path: str | os.PathLike, names: Container[str] | None = None
) -> dict[str, np.ndarray]:
  """Reads the arrays of these names that there are; None: all arrays.

  Raises:
    errors.InputError: the file is no .npz, is damaged, or has Python objects.
  """
  try:
    file = np.load(path, allow_pickle=False)
    if isinstance(file, np.ndarray):
      raise ValueError('it is one array without a name')
    with file:
      return {n: file[n] for n in file.files if names is None or n in names}
  except (
    ValueError,
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    AttributeError,
  ) as e:
    raise errors.InputError(
      f'{path} is no .npz of plain arrays ({e}); write it with np.savez'
    ) from e
