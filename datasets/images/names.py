"""The names of images in a folder, a tar or a zip, with a folder for each class.

  CLASS/NAME.jpg           CLASS may have folders of its own
  train/CLASS/NAME.jpg     and test/... or val/...: two parts, see `_KINDS`, in
                           upper or lower case, perhaps seg_train and seg_test,
                           perhaps train/train and test/test

All may lie in one outer folder, as archives often have it. Nothing is decoded.
Beside a test part, validation images are left out. A folder named as a part is
no class, except `train` without folders of its own beside several classes.
An image's id is its path below the folder or in the archive, so that a folder
and its archive have the same ids, in the same order: that of the ids' bytes.
"""

import collections
import os
import pathlib
import re
import sys
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets.images import store as store_lib
from tff_xc import errors

ARCHIVES = ('.zip', '.tar', *store_lib.COMPRESSED)
_TRAIN, _TEST, _VALIDATION = range(3)
# Parts of a data set by the names of their folders.
_KINDS = {
  **dict.fromkeys(('train', 'training'), _TRAIN),
  **dict.fromkeys(('test', 'testing'), _TEST),
  **dict.fromkeys(('val', 'valid', 'validation', 'dev'), _VALIDATION),
}
# The names of all parts may have something in common: `seg_train`, `TrainData`.
_PART = re.compile('|'.join(sorted(_KINDS, key=len, reverse=True)))


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


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Lists the images of a folder or an archive.

  Raises:
    errors.InputError: it cannot be read, has no images, or has images outside a
      class's folder.
  """
  return of_ids(path, store_lib.names_of(path))


def of_ids(
  path: str | os.PathLike, ids: examples_lib.Texts
) -> examples_lib.Examples:
  """Lists the images of these ids, which are all of `path`, as `read` does."""
  codes = examples_lib.Codes()
  for numbers in examples_lib.blocks(len(ids)):
    codes.add(name.rpartition('/')[0] for name in ids.take(numbers))
  folders = _meaning(codes.names, pathlib.Path(path))
  of_folder = np.array([folders.classes[f] for f in codes.names], np.int32)
  in_test = np.array([folders.tests[f] for f in codes.names], bool)
  folder = codes.codes()
  labels, is_test = of_folder[folder], in_test[folder]
  if (unused := np.flatnonzero(labels < 0)).size:
    [name] = ids.take(unused[:1])
    print(
      f'note: {path}: {len(unused):,} images for validation are left out, first'
      f' {name!r}; the test part is that named test',
      file=sys.stderr,
    )
  part = lambda rows: examples_lib.Examples(
    labels[rows],
    folders.class_names,
    examples_lib.Texts(ids.array.take(np.flatnonzero(rows))),
  )
  test = part(is_test & (labels >= 0)) if is_test.any() else None
  return examples_lib.of_parts(part(~is_test & (labels >= 0)), test)


def _meaning(folders: list[str], path: pathlib.Path) -> _Folders:
  """Finds the part and the class of each folder that has images."""
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
  class_of = {}
  for folder, parts in zip(folders, split, strict=True):
    depth = 1 + (parts[:1] != [] and parts[0] in doubled) if kinds else 0
    if len(parts) <= depth:
      alone = ''
      if len(kinds) > 1:
        alone = f' or give the folder {min(kinds, key=kinds.get)!r} alone,'
      raise errors.InputError(
        f'{path} has images in no class folder, in {folder or "the top"}; put'
        f' them into a folder named as their class,{alone} or list them with'
        ' their classes in a CSV, of which `launch.make_splits` makes a --split'
      )
    if not kinds or kinds[parts[0]] in used:
      class_of[folder] = examples_lib.nfc(_check_name(parts[depth], path))
  names = examples_lib.in_order(set(class_of.values()))
  place = {name: i for i, name in enumerate(names)}
  return _Folders(
    names,
    {f: place[class_of[f]] if f in class_of else -1 for f in folders},
    {
      f: bool(kinds) and kinds[parts[0]] != _TRAIN
      for f, parts in zip(folders, split, strict=True)
    },
  )


def _check_name(name: str, path: pathlib.Path) -> str:
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
    if _are_parts(
      {*(''.join(parts[depth : depth + 1]).lower() for parts in split)}
    ):
      return depth
  return 0


def _are_parts(names: set[str]) -> bool:
  kinds = {_KINDS.get(name) for name in names}
  return None not in kinds and _TRAIN in kinds and len(kinds) > 1


def _check_below(split: list[list[str]], path: pathlib.Path) -> None:
  """Refuses classes that have parts: their test would be trained on."""
  below = {parts[1].lower() if len(parts) > 1 else '' for parts in split}
  if split and _are_parts(below):
    raise errors.InputError(
      f'{path} has {"/".join(split[0][:2])!r}, a part of a data set in a class;'
      ' put the classes into the parts, as train/CLASS and test/CLASS, or list the'
      ' images with their classes in a CSV, of which `launch.make_splits` makes a'
      ' --split'
    )


def _kinds(split: list[list[str]], path: pathlib.Path) -> dict[str, int]:
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
