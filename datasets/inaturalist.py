"""iNaturalist-User-120k and iNaturalist-Geo: photographs of iNaturalist 2017.

  train2017.json, val2017.json   annotations in COCO's format: images (id, file_name),
                                 categories (id, name, supercategory) and annotations
                                 (image_id, category_id). train_val2017.zip may contain
                                 both files
  train2017_locations.json       an array of {id, lat, lon, date, user_id}, null if
                                 unknown. inat2017_locations.zip may contain this file

The files come from https://github.com/visipedia/inat_comp, folder 2017. The module reads all
files as streams. An image's id in split files is its file name without folder and suffix, as
in TFF's files.

A split samples 100 training images from each class that has at least 100. The clients are
the users who took the images, or cells of the earth's surface (Hsu, Qi and Brown:
Federated Visual Classification with Real-World Data Distribution, ECCV 2020). S2, Google's
division of the sphere, defines the cells. The cells of level 0 are the six faces of a
cube, and each cell has four children, down to level 30. A cell's id has 64 bits: three for
the face, two for each level, then a one and zeros. So a cell's bits for face and levels begin
with its parent's bits. https://s2geometry.io.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from datasets import examples as examples_lib
from datasets.readers import json_stream, tables, zipped
from datasets.splits import hold_out, partitions, split_files
from tff_xc import errors
from tff_xc.data import partition as partition_lib

TRAIN, VALIDATION = 'train2017.json', 'val2017.json'
LOCATIONS = 'train2017_locations.json'
# The archive in which each file is distributed.
_ARCHIVES = {
  TRAIN: 'train_val2017.zip',
  VALIDATION: 'train_val2017.zip',
  LOCATIONS: 'inat2017_locations.zip',
}
_SITE = 'https://github.com/visipedia/inat_comp/tree/master/2017'
_GET_IT = f'get it from {_SITE}'
_LEVELS = 30  # The deepest level of S2's cells.


def read(path: pathlib.Path, *, positions: bool = False) -> examples_lib.Examples:
  """Lists the training images of train2017.json and the test images of val2017.json.

  Classes are sorted by their ids. If two classes have the same name, the function appends
  their ids to the names. With `positions`, the result has the images' positions instead of
  their users. Raises `errors.InputError` if a file is missing or damaged, an image does not
  have exactly one category, two images have the same name, or the files do not fit each
  other.
  """
  files = {name: _find(path, name) for name in _ARCHIVES}
  (train, named), (test, of_test) = _annotations(files[TRAIN]), _annotations(files[VALIDATION])
  if unknown := sorted(of_test.keys() - named.keys()):
    raise errors.InputError(
      f'{files[VALIDATION]} has the category {unknown[0]}, which'
      f' {files[TRAIN]} has not; give files of one year'
    )
  taken_at, users, user_names = _locations(files[LOCATIONS], train['id'])
  class_ids, times = sorted(named), collections.Counter(named.values())
  names = [f'{named[i]} {i}' if times[named[i]] > 1 else named[i] for i in class_ids]
  facts = {
    f'images in {TRAIN}': len(train),
    f'images in {VALIDATION}': len(test),
    f'categories in {TRAIN}': len(names),
    'images without user': int((users < 0).sum()),
    'images without coordinates': int(np.isnan(taken_at[:, 0]).sum()),
  }
  if archive := zipped.find(files[LOCATIONS]):
    facts[f'md5 of {_ARCHIVES[LOCATIONS]}'] = split_files.md5(archive[0])
  parts = []
  for part in (train, test):
    labels = np.searchsorted(class_ids, part['category_id']).astype(np.int32)
    ids = examples_lib.texts([part['stem']])
    parts.append(examples_lib.Examples(labels, names, ids, facts=facts))
  found = examples_lib.of_parts(*parts)
  if not positions:
    users = np.append(users, np.full(len(test), -1, np.int32))
    return dataclasses.replace(found, users=users, user_names=user_names)
  nowhere = np.full((len(test), 2), np.nan)
  return dataclasses.replace(found, positions=np.concatenate([taken_at, nowhere]))


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the path of the file `name` in a folder, or in a zip file of the folder."""
  for place in (path / name, path / _ARCHIVES[name] / name):
    if zipped.is_file(place):
      return place
  raise errors.InputError(
    f'--input={path} has no {name}, nor {_ARCHIVES[name]} with it; give the folder'
    f' with {", ".join(sorted(set(_ARCHIVES.values())))} of {_SITE}'
  )


def _table(path: pathlib.Path, prefix: str, *keys: str) -> pd.DataFrame:
  """Reads a JSON array of objects; returns a column for each of `keys`, None for missing keys."""
  rows = json_stream.values(path, prefix, _GET_IT)
  rows = examples_lib.watched(rows, f'reading {path.name}, {prefix}')
  try:
    return pd.DataFrame([[row.get(key) for key in keys] for row in rows], columns=keys)
  except AttributeError as e:
    raise errors.InputError(f'{path}: {prefix} is no array of objects; {_GET_IT}') from e


def _annotations(path: pathlib.Path) -> tuple[pd.DataFrame, dict[int, str]]:
  """Reads annotations in COCO's format; the file's keys may come in any order.

  Returns each image's id, file name without suffix (`stem`) and category_id, and a dict
  from category ids to names.
  """
  images = _table(path, 'images.item', 'id', 'file_name')
  of_images = _table(path, 'annotations.item', 'image_id', 'category_id')
  categories = _table(path, 'categories.item', 'id', 'name').set_index('id')['name']
  try:
    images['stem'] = images['file_name'].map(lambda name: pathlib.PurePosixPath(name).stem)
    found = images.merge(of_images, left_on='id', right_on='image_id', validate='1:1')
    is_sound = len(found) == len(images) == len(of_images) > 0 and images['stem'].is_unique
    is_sound &= found['category_id'].isin(categories.index).all()
  except (ValueError, TypeError):  # Ids or names have wrong types or occur twice.
    is_sound = False
  if not is_sound:
    raise errors.InputError(
      f'{path}: expected "images" of different ids and names, each with one annotation, of one of'
      f' the "categories"; {_GET_IT} (not the bounding boxes)'
    )
  return found, categories.str.strip().to_dict()


def _locations(path: pathlib.Path, ids: pd.Series) -> tuple[np.ndarray, np.ndarray, list[str]]:
  """Reads the positions and the users of the images with these ids.

  Returns three values: the latitudes and longitudes in degrees, float64 [N, 2], NaN if
  unknown or out of range; the users, int32 [N], -1 if unknown; and the users' names.
  """
  rows = _table(path, 'item', 'id', 'lat', 'lon', 'user_id')
  rows = rows[rows['id'].isin(ids)].set_index('id')
  try:
    where = rows[['lat', 'lon']].astype(np.float64).reindex(ids).to_numpy()
  except (ValueError, TypeError):  # A coordinate is text, or an id occurs twice.
    where = np.zeros(0)
  if not len(rows) or not len(where):
    raise errors.InputError(
      f'{path} does not have each of the {len(ids):,} images once, with numbers "lat" and "lon" or'
      ' null; give files of one year'
    )
  where[~(np.abs(where) <= [90, 180]).all(axis=1)] = np.nan
  names = [tables.plain(str(value)) for value in rows['user_id']]
  names = [None if name in ('', 'None', 'nan', tables.NOBODY) else name for name in names]
  users, user_names = pd.factorize(np.array(names, object))
  users = pd.Series(users, rows.index).reindex(ids, fill_value=-1)
  return where, users.to_numpy(np.int32), user_names.tolist()


def by_user(
  examples: examples_lib.Examples, seed: int, *, images_per_class: int
) -> partitions.Split:
  """Samples images of each class; each user who took some of these images is a client."""
  numbers, classes = _balanced(examples, seed, images_per_class)
  users = np.full(len(examples), -1, np.int32)
  users[numbers] = examples.users[numbers]
  drawn = dataclasses.replace(examples, users=users)
  return partitions.Split(partitions.users(drawn), classes=classes)


def by_cell(
  examples: examples_lib.Examples,
  seed: int,
  *,
  images_per_class: int,
  least_share: float,
  most: int,
) -> partitions.Split:
  """Samples images of each class; the clients are cells, as described in `of_cells`."""
  numbers, classes = _balanced(examples, seed, images_per_class)
  clients = of_cells(examples.positions, numbers, most, least_share * most)
  return partitions.Split(clients, classes=classes)


def _balanced(examples, seed: int, images_per_class: int):
  """Samples `images_per_class` images of each class. Classes with fewer images are left out.

  Returns the indices of the images, ascending, and the classes.
  """
  order, rank, sizes = hold_out.ranked_by_class(examples.labels, np.random.default_rng(seed))
  drawn = order[(rank < images_per_class) & (sizes >= images_per_class)]
  if not len(drawn):
    raise errors.InputError(f'no class has {images_per_class:,} images; lower --images_per_class')
  return np.sort(drawn), np.unique(examples.labels[drawn])


def leaves(positions: np.ndarray) -> np.ndarray:
  """Returns the cell of level 30 at each position, uint64 [N].

  `positions` float64 [N, 2] has latitudes and longitudes in degrees.
  """
  import s2geometry as s2

  point = s2.S2LatLng.FromDegrees
  ids = (s2.S2CellId(point(*both)).id() for both in positions.tolist())
  return np.fromiter(ids, np.uint64, len(positions))


def parents(cells: np.ndarray, level: int) -> np.ndarray:
  """Returns the cells of level `level` that contain these cells of level 30, uint64 [N]."""
  lowest = np.uint64(1) << np.uint64(2 * (_LEVELS - level))
  return (cells & (~lowest + np.uint64(1))) | lowest


def token(cell: int) -> str:
  """Returns S2's token of a cell: its id in hexadecimal, without trailing zeros."""
  return f'{cell:016x}'.rstrip('0')


def divide(cells: np.ndarray, most: int) -> np.ndarray:
  """Assigns points to cells with at most `most` points each; returns uint64 [N].

  `cells` are the points' cells of level 30. A cell of level 30 has no children, so it may
  have more than `most` points.
  """
  found = np.empty(len(cells), np.uint64)
  rest = np.arange(len(cells))
  for level in range(_LEVELS + 1):
    above = parents(cells[rest], level)
    _, code, counts = np.unique(above, return_inverse=True, return_counts=True)
    small = (counts <= most)[code] | (level == _LEVELS)
    found[rest[small]] = above[small]
    rest = rest[~small]
  return found


def of_cells(
  positions: np.ndarray, numbers: Sequence[int], most: int, least: float
) -> partition_lib.Partition:
  """Divides the earth into cells; each cell with at least `least` examples is a client.

  The client's id is the cell's token. `numbers` are the indices of the examples.
  `positions` is float64 [N, 2], latitude and longitude. Examples with the position NaN go
  to no client. A client has at most `most` examples, except a cell of level 30, which
  cannot be divided. Raises `errors.InputError` if no cell has enough examples.
  """
  numbers = np.asarray(numbers)
  numbers = numbers[~np.isnan(positions[numbers, 0])]
  cells = divide(leaves(positions[numbers]), most)
  ids, code, counts = np.unique(cells, return_inverse=True, return_counts=True)
  enough = counts >= least
  if not enough.any():
    raise errors.InputError(
      f'no S2 cell has {least:g} of the {len(numbers):,} images whose place is'
      ' known; lower --least_share'
    )
  owners = np.full(len(positions), -1)
  owners[numbers[enough[code]]] = (np.cumsum(enough) - 1)[code[enough[code]]]
  return partition_lib.of_places(owners, list(map(token, ids[enough].tolist())))
