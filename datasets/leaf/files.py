"""Finds LEAF's JSON files.

LEAF's preprocess.sh leaves `<set>/data/train/*.json` and `test/*.json`, and
before its split `<set>/data/all_data/*.json`. The files of a folder are taken in
the order of the numbers in their names. (LEAF takes them in the file system's
order, which is arbitrary, so its split of several files cannot be repeated.)
"""

import os
import pathlib
import re
from typing import NamedTuple

from datasets import never_data
from datasets.leaf import gutenberg
from datasets.leaf import json_users
from tff_xc import errors

_GET_IT = (
  'run preprocess.sh of https://github.com/TalwalkarLab/leaf, or name another '
  'directory with --data_dir'
)
_PHOTOGRAPHS = 'img_align_celeba'
GET_PHOTOGRAPHS = (
  'get img_align_celeba.zip from '
  'https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html'
)


class Files(NamedTuple):
  """The JSON files of a set.

  Attributes:
    train: files of training users.
    test: files of test users.
    all: files of users that are not split yet; the other two are empty then.
  """

  train: tuple[pathlib.Path, ...] = ()
  test: tuple[pathlib.Path, ...] = ()
  all: tuple[pathlib.Path, ...] = ()

  @property
  def folder(self) -> pathlib.Path:
    """The folder of the training users' files, or of all."""
    return (self.train or self.all)[0].parent


class CelebaFiles(NamedTuple):
  """LEAF's JSON files, and the folder or zip of the images."""

  json: Files
  images: pathlib.Path


def places(name: str, data_dir: str | os.PathLike) -> list[pathlib.Path]:
  """Returns the folders in which a set may lie, those that exist."""
  root = pathlib.Path(data_dir)
  named = [root / 'leaf' / name, root / name]
  if name == 'femnist':
    named.append(root / 'leaf')
  folders = [f for place in [*named, root] for f in (place / 'data', place)]
  return [folder for folder in folders if folder.is_dir()]


def find(name: str, data_dir: str | os.PathLike) -> Files:
  """Finds the files of a set; opens none.

  Args:
    name: 'femnist', 'celeba' or 'shakespeare'.
    data_dir: the directory of all data.

  Raises:
    errors.InputError: there are none, or only those of one part.
  """
  for place in places(name, data_dir):
    if found := in_folder(place):
      return found
  raise errors.InputError(
    f'no {name} of LEAF in {data_dir}: looked there and in its folders {name} '
    f'and {os.path.join("leaf", name)} for train/*.json and test/*.json, for '
    f'all_data/*.json and for *.json; {_GET_IT}'
  )


def find_celeba(data_dir: str | os.PathLike) -> CelebaFiles:
  """Finds the JSON and the images of CelebA; opens neither.

  Raises:
    errors.InputError: one of them is missing.
  """
  found = find('celeba', data_dir)
  for place in places('celeba', data_dir):
    for folder in (place, place / 'raw'):
      inner = folder / _PHOTOGRAPHS / _PHOTOGRAPHS  # As some archives unpack.
      for images in (
        inner,
        folder / _PHOTOGRAPHS,
        folder / f'{_PHOTOGRAPHS}.zip',
      ):
        if images.is_dir() or (images.suffix and images.is_file()):
          return CelebaFiles(found, images)
  raise errors.InputError(
    f'no images beside {found.folder}: expected {_PHOTOGRAPHS} or '
    f'{_PHOTOGRAPHS}.zip in a folder celeba of {data_dir}, or in its data/raw; {GET_PHOTOGRAPHS}'
  )


def find_shakespeare(data_dir: str | os.PathLike) -> Files | pathlib.Path:
  """Finds the JSON files of Shakespeare, or else the file of Project Gutenberg.

  Raises:
    errors.InputError: there is neither.
  """
  try:
    return find('shakespeare', data_dir)
  except errors.InputError as e:
    root = pathlib.Path(data_dir)
    known = places('shakespeare', data_dir)
    for place in [
      *known,
      root / 'gutenberg',
      *(p / 'raw_data' for p in known),
    ]:
      for name in gutenberg.NAMES:
        if (place / name).is_file():
          return place / name
    raise errors.InputError(
      f'{e}; or put {" or ".join(gutenberg.NAMES)} of Project Gutenberg there or '
      f'into {root / "gutenberg"}'
    ) from e


def count_users(found: Files) -> int | None:
  """Counts the users of files, without reading their data.

  Returns:
    None if a file does not begin with the names of its users.
  """
  users = set()
  for path in (*found.train, *found.test, *found.all):
    names = json_users.first_users(path)
    if names is None:
      return None
    users.update(map(str, names))
  return len(users)


def in_folder(place: pathlib.Path) -> Files | None:
  """Returns the files of one folder, None if it has none.

  Raises:
    errors.InputError: it has only those of one part.
  """
  found = _split(place / 'train', place / 'test', _in_folder)
  found = found or _split(place / 'train.json', place / 'test.json', _file)
  for folder in (place / 'all_data', place):
    if not found and (everything := _in_folder(folder)):
      found = Files(all=everything)
  return found


def _split(train: pathlib.Path, test: pathlib.Path, files_of) -> Files | None:
  parts = files_of(train), files_of(test)
  if any(parts) and not all(parts):
    there, missing = (train, test) if parts[0] else (test, train)
    raise errors.InputError(
      f'{there} has JSON files, and {missing} has none; put both parts there, '
      f'or {_GET_IT}'
    )
  return Files(*parts) if all(parts) else None


def _file(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
  return (path,) if path.is_file() else ()


def _in_folder(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Returns the JSON files of a folder in their order."""
  if not folder.is_dir():
    return ()
  found = (p for p in folder.glob('*.json') if never_data.is_data(p.name))
  return tuple(sorted(found, key=_by_numbers))


def _by_numbers(path: pathlib.Path) -> list:
  """A key of the order in which all_data_2 precedes all_data_10."""
  parts = re.split(r'(\d+)', path.name)
  return [int(p) if i % 2 else p for i, p in enumerate(parts)]
