"""Finds images by their file names, sorts them, and derives their classes from folders.

  CLASS/NAME.jpg           CLASS may contain folders
  train/CLASS/NAME.jpg     beside test/CLASS/NAME.jpg or val/CLASS/NAME.jpg. `_KINDS` lists
                           all names of such folders, in upper or lower case

The class of an image is its outermost folder. If all outermost folders are named like
train, test or val, the class is the next folder. A single folder around all images, which
archives often have, is ignored. If there are test images, validation images are left out.
Otherwise, validation images are the test images. An image's id is its path in the folder or
archive. Ids are sorted by their bytes, so that a folder and its archive have the same ids in
the same order.
"""

import collections
import itertools
import os
import re
import sys
from collections.abc import Iterable

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import zipped
from tff_xc import errors, wording

SUFFIXES = (
  '.jpg',
  '.jpeg',
  '.jpe',
  '.jfif',
  '.png',
  '.webp',
  '.bmp',
  '.gif',
  '.tif',
  '.tiff',
  '.ppm',
  '.pgm',
  '.pbm',
  '.jp2',
  '.j2k',
)
# Files with these suffixes often lie beside images. The readers ignore them without a note.
_TEXTS = ['.txt', '.md', '.csv', '.tsv', '.json', '.xml', '.yaml', '.yml', '.html']
_TRAIN, _TEST, _VALIDATION = range(3)
# The usual names of the folders of training, test and validation images.
_KINDS = {
  **dict.fromkeys(('train', 'training'), _TRAIN),
  **dict.fromkeys(('test', 'testing'), _TEST),
  **dict.fromkeys(('val', 'valid', 'validation', 'dev'), _VALIDATION),
}
# Finds the names in `_KINDS` inside other names, such as `seg_train` or `test2017`.
_PART = re.compile(f'(?<![a-z])({"|".join(sorted(_KINDS, key=len, reverse=True))})(?![a-z])')
_BY_TABLE = (
  'list them with their classes in a CSV and make a --split of it with `launch.make_splits`'
)


class Found:
  """Recognizes the images of a folder or archive, and counts the other files."""

  def __init__(self):
    self._suffixes = collections.Counter()

  def image(self, path: str) -> str | None:
    """Returns the id of the image at `path`, or None if the file is not an image.

    Like tar, the function makes absolute paths relative and leaves out paths with `..`.
    """
    if (name := clean(path)) is None:
      return None
    suffix = os.path.splitext(name)[1].lower()
    if suffix in SUFFIXES:
      return name
    if suffix not in _TEXTS:
      self._suffixes[suffix] += 1
    return None

  def tell(self, of) -> None:
    """Prints how many files of the folder or archive `of` are not images."""
    if self._suffixes:
      kinds = ', '.join(
        f'{count:,} {wording.shown(suffix) or "without suffix"}'
        for suffix, count in self._suffixes.most_common(5)
      )
      files = wording.count(self._suffixes.total(), 'file')
      print(f'note: {of}: leaving out {files} not named as images ({kinds})', file=sys.stderr)


def clean(path: str) -> str | None:
  """Returns a path without `./`, or None if the path is not data (`zipped.is_data`)."""
  name = '/'.join(part for part in path.split('/') if part not in ('', '.'))
  return name if name and zipped.is_data(name) else None


def in_order(names: Iterable[str], of) -> tuple[examples_lib.Texts, np.ndarray]:
  """Sorts names by their bytes; returns the sorted names and their old indices.

  Raises `errors.InputError` if a name is not UTF-8.
  """
  import pyarrow.compute

  rest = iter(names)
  blocks = iter(lambda: list(itertools.islice(rest, examples_lib.BLOCK)), [])
  try:
    found = examples_lib.texts(examples_lib.watched(blocks, 'listing', len))
  except UnicodeEncodeError as e:
    raise errors.InputError(f'{of} has the name {e.object!a}, which is not UTF-8; rename it') from e
  order = pyarrow.compute.sort_indices(found.array)
  return examples_lib.Texts(found.array.take(order)), order.to_numpy()


def equal_to_next(names: examples_lib.Texts) -> np.ndarray:
  """Returns whether each name equals the next name, bool [k - 1]."""
  import pyarrow.compute

  same = pyarrow.compute.equal(names.array[1:], names.array[:-1])
  return same.to_numpy(zero_copy_only=False).astype(bool)


def last_of_equal(
  names: examples_lib.Texts, order: np.ndarray
) -> tuple[examples_lib.Texts, np.ndarray]:
  """Removes duplicates from the result of `in_order`; like tar, keeps the last duplicate."""
  same = equal_to_next(names)
  if not same.any():  # Avoid a copy of millions of names.
    return names, order
  kept = np.flatnonzero(~np.append(same, False))
  return examples_lib.Texts(names.array.take(kept)), order[kept]


def of_ids(path: str | os.PathLike, ids: examples_lib.Texts) -> examples_lib.Examples:
  """Returns the examples with these ids, with classes from the folders in the ids.

  `ids` are the ids of all images in `path`. Raises `errors.InputError` if an image is in no
  class folder, or if it is unclear whether a folder such as `train` is a class.
  """
  codes = examples_lib.Codes()
  for numbers in examples_lib.blocks(len(ids)):
    codes.add(name.rpartition('/')[0] for name in ids.take(numbers))
  label_names, tests = _meaning(codes.names, path)
  class_names = examples_lib.in_order({c for c in label_names if c is not None})
  place = {name: i for i, name in enumerate(class_names)}
  folder = codes.codes()
  labels = np.array([place.get(c, -1) for c in label_names], np.int32)[folder]
  is_test = np.array(tests, bool)[folder]
  if (unused := np.flatnonzero(labels < 0)).size:
    [name] = ids.take(unused[:1])
    print(
      f'note: {path}: leaving out {wording.count(len(unused), "image")} for'
      f' validation, first {name!r}; the test part is that named test',
      file=sys.stderr,
    )

  def part(rows):
    rows = np.flatnonzero(rows & (labels >= 0))
    texts = examples_lib.Texts(ids.array.take(rows))
    return examples_lib.Examples(labels[rows], class_names, texts)

  test = part(is_test) if is_test.any() else None
  return examples_lib.of_parts(part(~is_test), test)


def _meaning(folders: list[str], path) -> tuple[list[str | None], list[bool]]:
  """Returns two lists with an entry for each folder.

  The first list has the folder's class, or None if the folder is left out. The second list
  is true for folders of test or validation images.
  """
  split = [folder.split('/') if folder else [] for folder in folders]
  outer = {parts[0] for parts in split if parts}
  if len(outer) == 1 and all(len(parts) > 1 for parts in split):
    split = [parts[1:] for parts in split]
  kinds = _kinds(split, path)
  used = {_TRAIN, _TEST if _TEST in kinds.values() else _VALIDATION}
  depth = 1 if kinds else 0
  label_names, tests = [], []
  for folder, parts in zip(folders, split, strict=True):
    if len(parts) <= depth:
      raise errors.InputError(
        f'{path} has images in no class folder, in {folder or "the top"}; put'
        f' them into a folder named as their class, or {_BY_TABLE}'
      )
    kind = kinds[parts[0]] if kinds else _TRAIN
    name = examples_lib.nfc(parts[depth].strip())
    label_names.append(name if kind in used else None)
    tests.append(kind != _TRAIN)
  inner = {''.join(parts[depth + 1 : depth + 2]) for parts in split}
  _check_classes({name for name in label_names if name}, inner, path)
  return label_names, tests


def _kinds(split: list[list[str]], path) -> dict[str, int]:
  """Maps each top folder to _TRAIN, _TEST or _VALIDATION.

  Returns {} if the top folders are classes.
  """
  tops = {parts[0] for parts in split if parts}
  kinds = {top: _KINDS[top.lower()] for top in tops if top.lower() in _KINDS}
  if others := sorted(tops - kinds.keys()):
    below = any(len(parts) > 1 and parts[0] in kinds for parts in split)
    if below or {*kinds.values()} - {_TRAIN}:
      raise errors.InputError(
        f'{path} has {" and ".join(map(repr, sorted(kinds)))}, which are named like parts'
        f' of a data set, beside {others[0]!r}, which is not; remove one or the other,'
        ' or rename the folder of a class'
      )
    return {}  # The folder `train` is a class, perhaps of trains (the vehicles).
  if kinds and _TRAIN not in kinds.values():
    raise errors.InputError(
      f'{path} has {" and ".join(map(repr, sorted(kinds)))} and no part to train on;'
      ' name the folder of that train, or give one of these folders'
    )
  return kinds


def _check_classes(names: set[str], inner: set[str], path) -> None:
  """Raises InputError if class folders, or the folders in them, are named like train and test.

  Otherwise, clients would train on test images.
  """
  words = [match[1] for name in names for match in _PART.finditer(name.lower())]
  of_classes = {_KINDS[word] for word in words} if len(names) < 4 else set()
  of_inner = {_KINDS.get(name.lower()) for name in inner}
  for found, kinds in ((names, of_classes), (inner, of_inner)):
    if None not in kinds and _TRAIN in kinds and len(kinds) > 1:
      raise errors.InputError(
        f'{path} has {" and ".join(map(repr, sorted(found)))}, which seem to be parts'
        ' of a data set; put the classes into two folders train and test, as'
        f' train/CLASS and test/CLASS, or {_BY_TABLE}'
      )
