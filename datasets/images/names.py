"""The names of images: which files are images, their order, and their classes.

  CLASS/NAME.jpg           CLASS may have folders of its own
  train/CLASS/NAME.jpg     and test/... or val/...: two parts, see `_KINDS`, in
                           upper or lower case, perhaps seg_train and seg_test,
                           perhaps train/train and test/test

All may lie in one outer folder, as archives often have it. Beside a test part,
validation images are left out. A folder named as a part is no class, except
`train` without folders of its own beside several classes. An image's id is its
path below the folder or in the archive, so that a folder and its archive have the
same ids, in the same order: that of the ids' bytes.
"""

import collections
import itertools
import os
import re
import sys
from collections.abc import Iterable

import numpy as np

from datasets import examples as examples_lib
from datasets import zip_members
from tff_xc import errors
from tff_xc import wording

SUFFIXES = (
  *('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.webp', '.bmp', '.gif', '.tif'),
  *('.tiff', '.ppm', '.pgm', '.pbm', '.jp2', '.j2k'),
)
# Texts that lie beside images and are none; they are not counted.
_TEXTS = (
  *('.txt', '.md', '.csv', '.tsv', '.json', '.xml', '.yaml', '.yml', '.html'),
)
_TRAIN, _TEST, _VALIDATION = range(3)
# Parts of a data set by the names of their folders.
_KINDS = {
  **dict.fromkeys(('train', 'training'), _TRAIN),
  **dict.fromkeys(('test', 'testing'), _TEST),
  **dict.fromkeys(('val', 'valid', 'validation', 'dev'), _VALIDATION),
}
# The names of all parts may have something in common: `seg_train`, `TrainData`.
_PART = re.compile('|'.join(sorted(_KINDS, key=len, reverse=True)))
_BY_TABLE = (
  'list them with their classes in a CSV, of which `launch.make_splits` makes a'
  ' --split'
)


class Found:
  """Tells the images of a folder or an archive, and counts what is left out."""

  def __init__(self):
    self._suffixes = collections.Counter()
    self._of_images, self._of_others = set(), set()

  def image(self, path: str) -> str | None:
    """Returns the id of an image by the path of a file, None for other files; as
    in tar, absolute paths are relative, and none leads through `..`."""
    if (name := clean(path)) is None:
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
    said = []
    if self._suffixes:
      kinds = ', '.join(
        f'{count:,} {wording.shown(suffix) or "without suffix"}'
        for suffix, count in self._suffixes.most_common(5)
      )
      files = wording.count(self._suffixes.total(), 'file')
      said.append(f'leaving out {files} not named as images ({kinds})')
    if lost := sorted(self._of_others - with_images):
      names = ', '.join(repr(wording.shown(name)) for name in lost[:5])
      more = f' and {wording.count(len(lost) - 5, "more folder")}' * (
        len(lost) > 5
      )
      said.append(f'there is no image in {names}{more}')
    return '; '.join(said)


def tell(left_out: str, of) -> None:
  """Tells people what `Found.left_out` says of a folder or an archive."""
  if left_out:
    print(f'note: {of}: {left_out}', file=sys.stderr)


def clean(path: str) -> str | None:
  """Returns a path without `./`; None if it is never data."""
  name = '/'.join(part for part in path.split('/') if part not in ('', '.'))
  return name if name and zip_members.is_data(name) else None


def in_order(names: Iterable[str], of) -> tuple[examples_lib.Texts, np.ndarray]:
  """Returns names in the order of their bytes, and where each was; refuses other
  than UTF-8."""
  import pyarrow.compute

  rest = iter(names)
  blocks = iter(lambda: list(itertools.islice(rest, examples_lib.BLOCK)), [])
  try:
    found = examples_lib.texts(
      examples_lib.watched_rows(blocks, 'listing', len)
    )
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{of} has the name {e.object!a}, which is not UTF-8; rename it'
    ) from e
  order = pyarrow.compute.sort_indices(found.array)
  return examples_lib.Texts(found.array.take(order)), order.to_numpy()


def equal_to_next(names: examples_lib.Texts) -> np.ndarray:
  """Returns bool [k - 1]: whether the next name is the same."""
  import pyarrow.compute

  same = pyarrow.compute.equal(names.array[1:], names.array[:-1])
  return same.to_numpy(zero_copy_only=False).astype(bool)


def last_of_equal(
  names: examples_lib.Texts, order: np.ndarray
) -> tuple[examples_lib.Texts, np.ndarray]:
  """Returns what `in_order` does, each name once: as in tar, the last one counts."""
  same = equal_to_next(names)
  if not same.any():  # Copying very many names takes memory.
    return names, order
  kept = np.flatnonzero(~np.append(same, False))
  return examples_lib.Texts(names.array.take(kept)), order[kept]


def of_ids(
  path: str | os.PathLike, ids: examples_lib.Texts
) -> examples_lib.Examples:
  """Lists the images of these ids, which are all of `path`.

  Raises `errors.InputError` if an image is in no class's folder, or parts of a
  data set and classes cannot be told apart.
  """
  codes = examples_lib.Codes()
  for numbers in examples_lib.blocks(len(ids)):
    codes.add(name.rpartition('/')[0] for name in ids.take(numbers))
  class_of, tests = _meaning(codes.names, path)
  class_names = examples_lib.in_order({c for c in class_of if c is not None})
  place = {name: i for i, name in enumerate(class_names)}
  folder = codes.codes()
  labels = np.array([place.get(c, -1) for c in class_of], np.int32)[folder]
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
  """Returns each folder's class, None if it is of no part, and if it is the test."""
  split = [folder.split('/') if folder else [] for folder in folders]
  outer = {parts[0] for parts in split if parts}
  for name in outer:
    _check_name(name, path)
  if len(outer) == 1 and all(len(parts) > 1 for parts in split):
    split = [parts[1:] for parts in split]
  depth = _outer(split)
  split = [parts[depth:] for parts in split]
  kinds = _kinds(split, path)
  if not kinds:
    _check_below(split, path)
  used = {_TRAIN, _TEST if _TEST in kinds.values() else _VALIDATION}
  first = lambda top: [parts[1:2] for parts in split if parts[:1] == [top]]
  doubled = {top for top in kinds if all(f == [top] for f in first(top))}
  class_of, tests = [], []
  for folder, parts in zip(folders, split, strict=True):
    depth = 1 + (parts[:1] != [] and parts[0] in doubled) if kinds else 0
    if len(parts) <= depth:
      alone = ''
      if len(kinds) > 1:
        alone = f' or give the folder {min(kinds, key=kinds.get)!r} alone,'
      raise errors.InputError(
        f'{path} has images in no class folder, in {folder or "the top"}; put'
        f' them into a folder named as their class,{alone} or {_BY_TABLE}'
      )
    kind = kinds[parts[0]] if kinds else _TRAIN
    tests.append(kind != _TRAIN)
    is_used = kind in used
    class_of.append(
      examples_lib.nfc(_check_name(parts[depth], path)) if is_used else None
    )
  return class_of, tests


def _check_name(name: str, path) -> str:
  if name != name.strip():
    raise errors.InputError(
      f'{path}: the folder {name!r} begins or ends with a space; rename it'
    )
  return name


def _outer(split: list[list[str]]) -> int:
  """Returns in how many folders more all is, below which are parts, or 0."""
  for depth in range(1, min(map(len, split), default=0) + 1):
    tops = {parts[depth - 1].lower() for parts in split}
    if len(tops) > 1 or tops & set(_KINDS):
      break
    if _are_parts({''.join(parts[depth : depth + 1]) for parts in split}):
      return depth
  return 0


def _are_parts(names: set[str]) -> bool:
  kinds = {_KINDS.get(name.lower()) for name in names}
  return None not in kinds and _TRAIN in kinds and len(kinds) > 1


def _check_below(split: list[list[str]], path) -> None:
  """Refuses classes that have parts: their test would be trained on."""
  if _are_parts({''.join(parts[1:2]) for parts in split}):
    raise errors.InputError(
      f'{path} has {"/".join(split[0][:2])!r}, a part of a data set in a class;'
      f' put the classes into the parts, as train/CLASS and test/CLASS, or'
      f' {_BY_TABLE}'
    )


def _kinds(split: list[list[str]], path) -> dict[str, int]:
  """Returns the folders at the top that are parts, if all are, and their kinds."""
  tops = {parts[0] for parts in split if parts}
  by_rest = collections.defaultdict(dict)
  for top in sorted(tops):
    lower = top.lower()
    for match in _PART.finditer(lower):
      rest = lower[: match.start()], lower[match.end() :]
      by_rest[rest][top] = _KINDS[match[0]]
  for rest, kinds in by_rest.items():
    present = set(kinds.values())
    if any(rest) and not (_TRAIN in present and len(present) > 1):
      continue  # `test-1` and `test-2` may be classes.
    if len(kinds) == 1 == len(tops):
      return dict.fromkeys(kinds, _TRAIN)  # It is all there is.
    parts = ' and '.join(map(repr, kinds))
    others = sorted(tops - set(kinds))
    if not others and _TRAIN in present:
      return kinds
    if not others:
      raise errors.InputError(
        f'{path} has {parts} and no part to train on; name the folder of that'
        ' train, or give one of these folders'
      )
    below = any(top in kinds for top, *below in filter(None, split) if below)
    if present != {_TRAIN} or below or len(others) < 2:
      raise errors.InputError(
        f'{path} has {parts}, which are parts of a data set by their names, beside'
        f' {others[0]!r}, which is none; take one or the other away, or rename a'
        ' folder of a class'
      )
    print(
      f'note: {path}: the folder {parts} is taken for a class, as {others[0]} is',
      file=sys.stderr,
    )
  return {}
