"""Which files of a folder or an archive are images, and their order."""

import collections
import os
import sys
from collections.abc import Iterable

import numpy as np

from datasets import examples as examples_lib
from datasets import never_data
from tff_xc import errors
from tff_xc import wording

SUFFIXES = (
  *('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.webp', '.bmp', '.gif', '.tif'),
  *('.tiff', '.ppm', '.pgm', '.pbm', '.jp2', '.j2k'),
)
# Of a file of one image: 89 million pixels without compression.
MOST_BYTES = 2**28
# Texts that lie beside images and are none; they are not counted.
_TEXTS = (
  '.txt',
  '.md',
  '.csv',
  '.tsv',
  '.json',
  '.xml',
  '.yaml',
  '.yml',
  '.html',
)


class Found:
  """Tells the images of a folder or an archive, and counts what is left out."""

  def __init__(self):
    self._suffixes = collections.Counter()
    self._of_images, self._of_others = set(), set()

  def image(self, path: str) -> str | None:
    """Returns the id of an image by the path of a file, None for other files.

    Like tar, it takes absolute paths as relative ones, and none through `..`.
    """
    name = _clean(path)
    if name is None:
      return None
    folder, _, file = name.rpartition('/')
    suffix = os.path.splitext(file)[1].lower()
    if suffix in SUFFIXES:
      self._of_images.add(folder)
      return name
    self._of_others.add(folder)
    if suffix not in _TEXTS:
      self._suffixes[suffix] += 1
    return None

  def left_out(self) -> str:
    """Says how many files are no images, and which folders have no others."""
    if not self._of_images:
      return ''
    with_images = set()
    for folder in self._of_images:
      while folder not in with_images:
        with_images.add(folder)
        folder = folder.rpartition('/')[0]
    kinds = ', '.join(
      f'{count:,} {wording.shown(suffix) or "without suffix"}'
      for suffix, count in self._suffixes.most_common(5)
    )
    found = []
    if self._suffixes:
      files = wording.count(self._suffixes.total(), 'file')
      found.append(f'leaving out {files} not named as images ({kinds})')
    if lost := sorted(self._of_others - with_images):
      names = ', '.join(repr(wording.shown(name)) for name in lost[:5])
      more = f' and {len(lost) - 5:,} more folders' * (len(lost) > 5)
      found.append(f'there is no image in {names}{more}')
    return '; '.join(found)


def check_size(size: int) -> None:
  """Refuses what is too large for an image, before it is read.

  Raises:
    ValueError: it has too many bytes, as a damaged image.
  """
  if size > MOST_BYTES:
    raise ValueError(
      f'it has {wording.human_bytes(size)}, and the file of an image at most'
      f' {wording.human_bytes(MOST_BYTES)}'
    )


def tell(left_out: str, of) -> None:
  """Tells people what `Found.left_out` says of a folder or an archive."""
  if left_out:
    print(f'note: {of}: {left_out}', file=sys.stderr)


def tar(path: str) -> str | None:
  """Returns the path of a tar without `./`, None for other files."""
  name = _clean(path)
  return name if name and name.lower().endswith('.tar') else None


def _clean(path: str) -> str | None:
  """Returns a path without `./`; None if it is never data."""
  name = '/'.join(part for part in path.split('/') if part not in ('', '.'))
  return name if never_data.is_data(name) else None


def in_order(names: Iterable[str], of) -> tuple[examples_lib.Texts, np.ndarray]:
  """Returns names in the order of their bytes, and where each was, each once.

  Of equal names, the last one counts, as in tar. Arguments and errors are those of
  `all_in_order`.
  """
  names, order = all_in_order(names, of)
  same = equal_to_next(names)
  if same.any():  # Copying very many names takes memory.
    kept = np.flatnonzero(~np.append(same, False))
    names, order = examples_lib.Texts(names.array.take(kept)), order[kept]
  return names, order


def equal_to_next(names: examples_lib.Texts) -> np.ndarray:
  """Returns bool [k - 1]: whether the next name is the same."""
  import pyarrow.compute

  same = pyarrow.compute.equal(names.array[1:], names.array[:-1])
  return same.to_numpy(zero_copy_only=False).astype(bool)


def all_in_order(
  names: Iterable[str], of
) -> tuple[examples_lib.Texts, np.ndarray]:
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
      if len(block) == examples_lib.BLOCK:
        yield block
        block = []
    yield block

  try:
    found = examples_lib.texts(
      examples_lib.watched_rows(blocks(), 'listing', len)
    )
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{of} has the name {e.object!a}, which is not UTF-8; rename it'
    ) from e
  order = pyarrow.compute.sort_indices(found.array)
  return examples_lib.Texts(found.array.take(order)), order.to_numpy()
