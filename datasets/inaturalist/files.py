"""Lists the images of iNaturalist 2017, from its own files.

  train2017.json, val2017.json   COCO's form: images (id, file_name), categories
                                 (id, name, supercategory), annotations (image_id,
                                 category_id); or train_val2017.zip with both
  inat2017_locations.zip         train2017_locations.json, or that file: an array
                                 of {id, lat, lon, date, user_id}, null for unknown

All are read as streams. An image's id in splits is its file's name without folder
and suffix, as in TFF's files. https://github.com/visipedia/inat_comp, 2017.
"""

import dataclasses
import pathlib

import numpy as np

from datasets import zip_members
from datasets.inaturalist import coco
from datasets.inaturalist import locations
from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import published_files
from tff_xc import errors

TRAIN, VALIDATION = 'train2017.json', 'val2017.json'
LOCATIONS = 'train2017_locations.json'
# Archives in which a file may lie, as it is distributed.
_ARCHIVES = {
  TRAIN: 'train_val2017.zip',
  VALIDATION: 'train_val2017.zip',
  LOCATIONS: 'inat2017_locations.zip',
}
# Names of facts.
IMAGES = f'images in {TRAIN}'
TEST_IMAGES = f'images in {VALIDATION}'
CLASSES = f'categories in {TRAIN}'
CHECKSUM = f'md5 of {_ARCHIVES[LOCATIONS]}'
NO_USER, NO_POSITION = 'images without user', 'images without coordinates'


def read(
  path: pathlib.Path, columns: inputs.Columns, *, positions: bool = False
) -> listing_lib.Listing:
  """Lists the images of train2017.json; those of val2017.json are the test.

  Classes are in the order of their ids. A name that two classes have is followed
  by the id.

  Args:
    path: the folder of the files.
    columns: ignored.
    positions: whether to read where images were taken, in place of by whom.

  Raises:
    errors.InputError: a file is missing or damaged, an image has no category or
      several, two images have one name, or the files do not fit each other.
  """
  del columns
  files = {name: _find(path, name) for name in _ARCHIVES}
  train, test = coco.read(files[TRAIN]), coco.read(files[VALIDATION])
  if unknown := sorted(set(test.names) - set(train.names)):
    raise errors.InputError(
      f'{files[VALIDATION]} has the category {unknown[0]}, which'
      f' {files[TRAIN]} has not; give files of one year'
    )
  found = locations.read(files[LOCATIONS], train.ids)
  class_ids = sorted(train.names)
  names = _class_names(train.names, class_ids)
  facts = {
    IMAGES: len(train.ids),
    TEST_IMAGES: len(test.ids),
    CLASSES: len(names),
    NO_USER: int((found.users < 0).sum()),
    NO_POSITION: int(np.isnan(found.positions[:, 0]).sum()),
  }
  if archive := zip_members.find(files[LOCATIONS]):
    facts[CHECKSUM] = published_files.md5(archive.archive)
  listing = listing_lib.Listing(
    np.searchsorted(class_ids, train.categories).astype(np.int32),
    names,
    train.stems,
    test=listing_lib.Listing(
      np.searchsorted(class_ids, test.categories).astype(np.int32),
      names,
      test.stems,
    ),
    facts=facts,
  )
  if positions:
    return dataclasses.replace(listing, positions=found.positions)
  return dataclasses.replace(
    listing, users=found.users, user_names=found.user_names
  )


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  """Returns where a file is: in the folder, or in a zip there."""
  for place in (path / name, path / _ARCHIVES[name] / name):
    if zip_members.is_file(place):
      return place
  raise errors.InputError(
    f'--input={path} has no {name}, nor {_ARCHIVES[name]} with it; give the folder'
    f' with {", ".join(sorted(set(_ARCHIVES.values())))} of'
    ' https://github.com/visipedia/inat_comp/tree/master/2017'
  )


def _class_names(names: dict[int, str], ids: list[int]) -> list[str]:
  found = [names[i] for i in ids]
  seen = listing_lib.Codes()
  seen.add(found)
  twice = np.bincount(seen.codes())[seen.codes()] > 1
  return [
    f'{name} {i}' if again else name
    for i, name, again in zip(ids, found, twice.tolist(), strict=True)
  ]
