"""CIFAR-10 and CIFAR-100 as their owners, or TFDS, write them to disk.

Four forms are read: the official binary and Python versions, each unpacked or
as the `.tar.gz` that is distributed, and a directory that TensorFlow Datasets
has prepared. Nothing is downloaded and nothing is written.
"""

import functools
import os
import pathlib
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datasets.cifar import pickles as cifar_pickles
from datasets.cifar import places as cifar_places
from datasets.cifar import tfds as cifar_tfds
from tff_xc import errors
from tff_xc.data import pool

SIDE = 32
_PIXELS = 3 * SIDE * SIDE


class Counts(NamedTuple):
  """The required numbers of images; each class has an equal share of them."""

  train: int = 50_000
  test: int = 10_000


OFFICIAL = Counts()


class Splits(NamedTuple):
  """The official two splits, in the order of the source.

  `x` is uint8 [k, 32, 32, 3] and `y` int32 [k].
  """

  train: pool.Examples
  test: pool.Examples


def read(
  data_dir: str | os.PathLike, name: str, expected: Counts = OFFICIAL
) -> Splits:
  """Reads the first form found in `data_dir` or `data_dir`/`name`.

  Args:
    data_dir: the folder, archive or prepared directory, or its parent.
    name: 'cifar10' or 'cifar100'.
    expected: the numbers of images that the files must have.

  Raises:
    errors.InputError: nothing is found, or it is damaged or incomplete.
  """
  return find(data_dir, name)(expected)


def find(data_dir: str | os.PathLike, name: str) -> Callable[[Counts], Splits]:
  """Finds the files for `read` and returns the function that reads them.

  Raises:
    errors.InputError: nothing is found.
  """
  path, form = cifar_places.find(data_dir, name)
  layout = cifar_places.LAYOUTS[name]
  if form == cifar_places.PREPARED:
    return functools.partial(_prepared, path, layout)
  return functools.partial(_official, path, layout, form == cifar_places.BINARY)


def _official(
  path, layout: cifar_places.Layout, binary: bool, expected: Counts
) -> Splits:
  """Reads a folder or an archive."""
  suffix = '.bin' if binary else ''
  names = [f'{name}{suffix}' for name in (*layout.train, layout.test)]
  from_path = _from_archive if path.is_file() else _from_folder
  contents = from_path(path, names)
  sizes = [expected.train // len(layout.train)] * len(layout.train)
  parse = _parse_binary if binary else cifar_pickles.parse
  parts = []
  for name, size in zip(names, [*sizes, expected.test], strict=True):
    if name not in contents:
      raise errors.InputError(
        f'{path} has no {name}; expected {", ".join(names)}: get {path.name}'
        ' anew'
      )
    where = str(path / name)
    x, y = parse(contents.pop(name), where, layout, size)
    check_labels(y, layout.num_classes, where)
    parts.append((x, y))
  x, y = (np.concatenate(a) for a in zip(*parts[:-1], strict=True))
  return _splits(path, layout, (x, y), parts[-1])


def _from_folder(path, names) -> dict[str, bytes]:
  return {
    name: (path / name).read_bytes()
    for name in names
    if (path / name).is_file()
  }


def _from_archive(path, names) -> dict[str, bytes]:
  """Reads an archive in its own order, since seeking back unpacks it again."""
  contents = {}
  try:
    with tarfile.open(path, 'r:gz') as archive:
      for member in archive:
        name = pathlib.PurePosixPath(member.name).name
        if member.isfile() and name in names:
          contents[name] = archive.extractfile(member).read()
  except (tarfile.TarError, OSError, EOFError, ValueError) as e:
    raise errors.InputError(
      f'{path} is no whole .tar.gz ({e}); get it anew'
    ) from e
  return contents


def _parse_binary(
  content: bytes, where: str, layout: cifar_places.Layout, size: int
):
  record = layout.label_bytes + _PIXELS
  if len(content) != size * record:
    raise errors.InputError(
      f'{where} has {len(content):,} bytes; expected {size * record:,}, which'
      f' is {size:,} records of {record:,} bytes: get the file anew'
    )
  records = np.frombuffer(content, np.uint8).reshape(size, record)
  return (
    records[:, layout.label_bytes :],
    records[:, layout.label_bytes - 1].astype(np.int64),
  )


def check_labels(y: np.ndarray, num_classes: int, where: str) -> None:
  """Raises InputError, naming the first bad image, unless 0 <= y < n."""
  bad = np.flatnonzero((y < 0) | (y >= num_classes))
  if len(bad):
    raise errors.InputError(
      f'{where}: image {bad[0]} (counted from 0) has label {y[bad[0]]};'
      f' expected 0 to {num_classes - 1}: get the file anew'
    )


def _prepared(path, layout: cifar_places.Layout, expected: Counts) -> Splits:
  train, test = (
    cifar_tfds.read(path, split, size, SIDE)
    for split, size in expected._asdict().items()
  )
  for split, (_, y) in {'train': train, 'test': test}.items():
    check_labels(y, layout.num_classes, f'{path}, split {split}')
  return _splits(path, layout, train, test)


def _splits(path, layout: cifar_places.Layout, *parts) -> Splits:
  """Checks that classes have equal shares; reshapes rows to images."""
  splits = []
  for split, (x, y) in zip(('training', 'test'), parts, strict=True):
    counts = np.bincount(y, minlength=layout.num_classes)
    share = len(y) // layout.num_classes
    wrong = np.flatnonzero(counts != share)
    if len(wrong):
      raise errors.InputError(
        f'{path}: class {wrong[0]} has {counts[wrong[0]]:,} {split} images;'
        f' expected {share:,} as of every class: get the data anew'
      )
    if x.ndim == 2:  # Red, green and blue planes, one after the other.
      x = x.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    splits.append(pool.Examples(np.ascontiguousarray(x), y.astype(np.int32)))
  return Splits(*splits)
