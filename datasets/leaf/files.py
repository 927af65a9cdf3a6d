"""Finds the files of LEAF's data sets, and of TFF's versions of these data sets.

LEAF's preprocess.sh writes `<set>/data/all_data/*.json`. After it has split the users, it
also writes `<set>/data/train/*.json` and `<set>/data/test/*.json`. This module sorts the
files of a folder by the numbers in their names. (LEAF reads them in the arbitrary order of
the file system, so nobody can repeat LEAF's split of several files.)
"""

import os
import pathlib
import re
from typing import NamedTuple

from datasets.readers import zipped
from tff_xc import errors

GET_PHOTOGRAPHS = 'get img_align_celeba.zip from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html'
GUTENBERG = ('pg100.txt', 'pg100.txt.gz', '100.txt')

_GET_IT = (
  'run preprocess.sh of https://github.com/TalwalkarLab/leaf, or name another '
  'directory with --data_dir'
)
_PHOTOGRAPHS = 'img_align_celeba'
# The names of TFF's HDF5 files without `_train.h5`, and the name of its SQLite file.
_TFF = {
  'emnist': (('fed_emnist', 'emnist'), 'emnist_all'),
  'celeba': (('celeba', 'fed_celeba'), 'celeba'),
  'shakespeare': (('shakespeare',), 'shakespeare'),
}


class Files(NamedTuple):
  """The JSON files of training users and of test users, or of all users if not yet split."""

  train: tuple[pathlib.Path, ...] = ()
  test: tuple[pathlib.Path, ...] = ()
  all: tuple[pathlib.Path, ...] = ()

  @property
  def folder(self) -> pathlib.Path:
    """The folder of the files of the training users, or of all users if not yet split."""
    return (self.train or self.all)[0].parent


def find(name: str, data_dir: str | os.PathLike) -> Files:
  """Finds the files of a data set such as 'femnist'; opens no file.

  Raises `errors.InputError` if it finds no files, only training files or only test files.
  """
  for place in _places(name, data_dir):
    if found := in_folder(place):
      return found
  raise errors.InputError(
    f'no {name} of LEAF in {data_dir}: looked there and in its folders {name} '
    f'and {os.path.join("leaf", name)} for train/*.json and test/*.json, for '
    f'all_data/*.json and for *.json; {_GET_IT}'
  )


def find_celeba(data_dir: str | os.PathLike) -> tuple[Files, pathlib.Path]:
  """Finds CelebA's JSON with `find`, and the folder or zip of the images."""
  found = find('celeba', data_dir)
  for place in _places('celeba', data_dir):
    for folder in (place, place / 'raw'):
      # Some archives unpack to a folder in a folder.
      for name in (f'{_PHOTOGRAPHS}/{_PHOTOGRAPHS}', _PHOTOGRAPHS, f'{_PHOTOGRAPHS}.zip'):
        if (folder / name).exists():
          return found, folder / name
  raise errors.InputError(
    f'no images beside {found.folder}: expected {_PHOTOGRAPHS} or '
    f'{_PHOTOGRAPHS}.zip in a folder celeba of {data_dir}, or in its data/raw; '
    f'{GET_PHOTOGRAPHS}'
  )


def find_shakespeare(data_dir: str | os.PathLike) -> Files | pathlib.Path:
  """Finds Shakespeare's JSON or, if it is missing, Project Gutenberg's text."""
  try:
    return find('shakespeare', data_dir)
  except errors.InputError as e:
    gutenberg = pathlib.Path(data_dir) / 'gutenberg'
    known = _places('shakespeare', data_dir)
    places = [*known, gutenberg, *(place / 'raw_data' for place in known)]
    for text in (place / name for place in places for name in GUTENBERG):
      if text.is_file():
        return text
    raise errors.InputError(
      f'{e}; or put {" or ".join(GUTENBERG)} of Project Gutenberg there or into {gutenberg}'
    ) from e


def find_tff(name: str, data_dir: str | os.PathLike) -> tuple[pathlib.Path, ...]:
  """Finds TFF's training and test files in HDF5, or TFF's SQLite file.

  `name` is 'emnist', 'celeba' or 'shakespeare'. The files are in `data_dir` or in its
  folder `name` or `fed_<name>`.
  """
  prefixes, sqlite = _TFF[name]
  root = pathlib.Path(data_dir)
  for place in (root / name, root / f'fed_{name}', root):
    for prefix in prefixes:
      paths = tuple(place / f'{prefix}_{p}.h5' for p in ('train', 'test'))
      if all(path.is_file() for path in paths):
        return paths
    database = place / f'{sqlite}.sqlite'
    if database.is_file():
      return (database,)
    if (packed := place / f'{sqlite}.sqlite.lzma').is_file():
      raise errors.InputError(
        f'{packed} is packed; unpack it with: xz --format=lzma --decompress {packed.name}'
      )
  raise errors.InputError(
    f'no {name} of TFF in {root} or its folder {name}: expected '
    f'{prefixes[0]}_train.h5 and {prefixes[0]}_test.h5, or {sqlite}.sqlite '
    f'(tff.simulation.datasets.{name}.load_data downloads it); or name another '
    'directory with --data_dir'
  )


def in_folder(place: pathlib.Path) -> Files | None:
  """Returns the files of a folder, or None if it has no JSON files.

  Raises InputError if the folder has only training files or only test files.
  """
  for ending in ('', '.json'):
    train, test = (place / f'{part}{ending}' for part in ('train', 'test'))
    parts = _json(train), _json(test)
    if all(parts):
      return Files(*parts)
    if any(parts):
      raise errors.InputError(
        f'{place} has only one of the parts train and test; put both there, or {_GET_IT}'
      )
  everything = _json(place / 'all_data') or _json(place)
  return Files(all=everything) if everything else None


def _places(name: str, data_dir: str | os.PathLike) -> list[pathlib.Path]:
  """Returns the existing folders that may contain the data set `name`."""
  root = pathlib.Path(data_dir)
  named = [root / 'leaf' / name, root / name]
  if name == 'femnist':
    named.append(root / 'leaf')
  folders = [f for place in [*named, root] for f in (place / 'data', place)]
  return [folder for folder in folders if folder.is_dir()]


def _json(place: pathlib.Path) -> tuple[pathlib.Path, ...]:
  """Returns a JSON file, or the sorted JSON files of a folder."""
  if place.suffix == '.json' and place.is_file():
    return (place,)
  if not place.is_dir():
    return ()
  found = (p for p in place.glob('*.json') if zipped.is_data(p.name))
  # all_data_2 comes before all_data_10.
  return tuple(
    sorted(
      found,
      key=lambda path: [
        int(p) if i % 2 else p for i, p in enumerate(re.split(r'(\d+)', path.name))
      ],
    )
  )
