"""Which files of a folder or an archive are images, and their order."""

from collections.abc import Iterable

import numpy as np

from datasets.splits import listing as listing_lib
from tff_xc import errors

SUFFIXES = ('.jpg', '.jpeg', '.png')


def image(path: str) -> str | None:
  """Returns the id of an image by its path, None for other files.

  Like tar, it takes absolute paths as relative ones, and none through `..`.
  """
  return _visible(path, SUFFIXES)


def tar(path: str) -> str | None:
  """Returns the path of a tar without `./`, None for other files."""
  return _visible(path, ('.tar',))


def _visible(path: str, suffixes: tuple[str, ...]) -> str | None:
  parts = [part for part in path.split('/') if part not in ('', '.')]
  hidden = any(part.startswith(('.', '__MACOSX')) for part in parts)
  clean = '/'.join(parts)
  return clean if clean.lower().endswith(suffixes) and not hidden else None


def in_order(names: Iterable[str], of) -> tuple[listing_lib.Texts, np.ndarray]:
  """Returns names in the order of their bytes, and where each was, each once.

  Of equal names, the last one counts, as in tar. Arguments and errors are those of
  `all_in_order`.
  """
  names, order = all_in_order(names, of)
  same = equal_to_next(names)
  if same.any():  # Copying very many names takes memory.
    kept = np.flatnonzero(~np.append(same, False))
    names, order = listing_lib.Texts(names.array.take(kept)), order[kept]
  return names, order


def equal_to_next(names: listing_lib.Texts) -> np.ndarray:
  """Returns bool [k - 1]: whether the next name is the same."""
  import pyarrow.compute

  same = pyarrow.compute.equal(names.array[1:], names.array[:-1])
  return same.to_numpy(zero_copy_only=False).astype(bool)


def all_in_order(
  names: Iterable[str], of
) -> tuple[listing_lib.Texts, np.ndarray]:
  """Returns names in the order of their bytes, and where each one was.

  Args:
    names: any number of them.
    of: the folder or archive, for errors.

  Raises:
    errors.InputError: a name is not UTF-8.
  """
  import pyarrow.compute

  def blocks():
    block = []
    for name in names:
      block.append(name)
      if len(block) == listing_lib.BLOCK:
        yield block
        block = []
    yield block

  try:
    found = listing_lib.texts(
      listing_lib.watched_rows(blocks(), 'listing', len)
    )
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{of} has the name {e.object!a}, which is not UTF-8; rename it'
    ) from e
  order = pyarrow.compute.sort_indices(found.array)
  return listing_lib.Texts(found.array.take(order)), order.to_numpy()
