"""The names of images in a folder, a tar or a zip, with a folder for each class.

  CLASS/NAME.jpg           CLASS may have folders of its own
  train/CLASS/NAME.jpg     and test/... (or val/..., validation/...): two parts,
                           in upper or lower case

All may lie in one outer folder, as archives often have it. Nothing is decoded.
An image's id is its path below the folder or in the archive, so that a folder
and its archive have the same ids, in the same order: that of the ids' bytes.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np

from datasets.images import store as store_lib
from datasets.splits import listing as listing_lib
from datasets.splits import names as names_lib
from tff_xc import errors

ARCHIVES = ('.zip', '.tar', *store_lib.COMPRESSED)
_TEST = ('test', 'val', 'validation')


class _Folders(NamedTuple):
  """What the images' folders mean.

  Attributes:
    class_names: of all folders, in order.
    classes: by folder, the place of its class; -1: of no part.
    tests: by folder, whether it belongs to the test part.
  """

  class_names: list[str]
  classes: dict[str, int]
  tests: dict[str, bool]


def read(path: str | os.PathLike) -> listing_lib.Listing:
  """Lists the images of a folder or an archive.

  Raises:
    errors.InputError: it cannot be read, has no images, or has images outside a
      class's folder.
  """
  return of_ids(path, store_lib.names_of(path))


def of_ids(
  path: str | os.PathLike, ids: listing_lib.Texts
) -> listing_lib.Listing:
  """Lists the images of these ids, which are all of `path`, as `read` does."""
  codes = listing_lib.Codes()
  for numbers in listing_lib.blocks(len(ids)):
    codes.add(name.rpartition('/')[0] for name in ids.take(numbers))
  folders = _meaning(codes.names, pathlib.Path(path))
  of_folder = np.array([folders.classes[f] for f in codes.names], np.int32)
  in_test = np.array([folders.tests[f] for f in codes.names], bool)
  folder = codes.codes()
  labels, is_test = of_folder[folder], in_test[folder]
  part = lambda rows: listing_lib.Listing(
    labels[rows],
    folders.class_names,
    listing_lib.Texts(ids.array.take(np.flatnonzero(rows))),
  )
  test = part(is_test & (labels >= 0)) if is_test.any() else None
  train = part(~is_test & (labels >= 0))
  return listing_lib.Listing(
    train.labels, train.class_names, train.ids, test=test
  )


def _meaning(folders: list[str], path: pathlib.Path) -> _Folders:
  """Finds the part and the class of each folder that has images."""
  split = [folder.split('/') if folder else [] for folder in folders]
  start = 0
  if len({parts[0] for parts in split if parts}) == 1 and all(
    len(parts) > 1 for parts in split
  ):
    start = 1  # One outer folder.
  part_of = lambda parts: parts[start].lower()
  tops = {part_of(parts) for parts in split if len(parts) > start}
  test = next((name for name in _TEST if name in tops), None)
  in_parts = (
    'train' in tops
    and test is not None
    and tops <= {'train', *_TEST}
    and all(len(parts) > start + 1 for parts in split)
  )
  depth = start + in_parts
  if any(len(parts) <= depth for parts in split):
    raise errors.InputError(
      f'{path} has images in no class folder, in'
      f' {folders[[len(p) <= depth for p in split].index(True)] or "the top"};'
      ' put them into a folder named as their class, or list them with their'
      ' classes in a CSV, of which `launch.make_splits` makes a --split'
    )
  used = ('train', test)
  class_of = {
    folder: parts[depth]
    for folder, parts in zip(folders, split, strict=True)
    if not in_parts or part_of(parts) in used
  }
  outer = (parts[0] for parts in split if parts)
  for name in (*class_of.values(), *outer):
    if name != name.strip():
      raise errors.InputError(
        f'{path}: the folder {name!r} begins or ends with a space; rename it'
      )
  names = names_lib.in_order(set(class_of.values()))
  place = {name: i for i, name in enumerate(names)}
  return _Folders(
    names,
    {f: place[class_of[f]] if f in class_of else -1 for f in folders},
    {
      f: in_parts and part_of(parts) == test
      for f, parts in zip(folders, split, strict=True)
    },
  )
