"""Which files of a folder or an archive are images, and their order."""

from collections.abc import Iterable

import numpy as np

from datasets.splits import listing as listing_lib
from tff_xc import errors

SUFFIXES = ('.jpg', '.jpeg', '.png')


def image(path: str) -> str | None:
  """Returns the id of an image by its path, None for other files."""
  return _visible(path, SUFFIXES)


def tar(path: str) -> str | None:
  """Returns the path of a tar without `./`, None for other files."""
  return _visible(path, ('.tar',))


def _visible(path: str, suffixes: tuple[str, ...]) -> str | None:
  parts = path.removeprefix('./').split('/')
  hidden = any(part.startswith(('.', '__MACOSX')) for part in parts)
  if hidden or not parts[-1].lower().endswith(suffixes):
    return None
  return '/'.join(parts)


def in_order(names: Iterable[str], of) -> tuple[listing_lib.Texts, np.ndarray]:
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
