"""Lists the clean images of Google Landmarks v2 (GLDv2), from its own files.

  train.csv              id,url,landmark_id
  train_attribution.csv  id,url,author,license,title
  train_clean.csv        landmark_id,images: ids with spaces between them

each also as `.gz`. An image's user is its author. Weyand et al.: Google Landmarks
Dataset v2, CVPR 2020; https://github.com/cvdfoundation/google-landmark.
"""

import contextlib
import csv
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from datasets import tables
from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import own
from tff_xc import errors

TRAIN, AUTHORS, CLEAN = 'train.csv', 'train_attribution.csv', 'train_clean.csv'
# Names of facts.
IMAGES = f'images in {TRAIN}'
CLEAN_IMAGES = f'images in {CLEAN}'
CLEAN_LANDMARKS = f'landmarks in {CLEAN}'
NOT_IN_TRAIN = f'images in {CLEAN} and not as such in {TRAIN}'
NO_AUTHOR = f'images in {CLEAN} without author'
# The landmark with the most images has more than the csv module's 131,072
# characters in one field.
_LONGEST_FIELD = 2**24


class _Column(NamedTuple):
  """A column of a file by image id.

  Attributes:
    ids: [N], texts.
    codes: int32 [N], places in `names`.
    names: the values, each once.
  """

  ids: listing_lib.Texts
  codes: np.ndarray
  names: list[str]

  def of(self, ids: listing_lib.Texts) -> np.ndarray:
    """Returns int32 [k], the codes of these images; -1: not in the file."""
    return np.append(self.codes, np.int32(-1))[own.find(self.ids, ids)]


def read(path: pathlib.Path, columns: inputs.Columns) -> listing_lib.Listing:
  """Lists the images of train_clean.csv, with their authors as users.

  Classes are landmark ids. An image without an author, or whose author is `NA`,
  is nobody's.

  Args:
    path: the folder of the three files.
    columns: ignored.

  Raises:
    errors.InputError: a file is missing or damaged, an image is there twice, or no
      image has an author.
  """
  del columns
  files = {name: _find(path, name) for name in (CLEAN, AUTHORS, TRAIN)}
  listing = _clean(files[CLEAN])
  landmark = _column(files[TRAIN], 'landmark_id')
  listing = dataclasses.replace(
    listing,
    facts={
      IMAGES: len(landmark.ids),
      CLEAN_IMAGES: len(listing),
      CLEAN_LANDMARKS: len(listing.class_names),
      NOT_IN_TRAIN: _misplaced(listing, landmark),
    },
  )
  del landmark  # 4.1 million ids, and as many follow.
  return _with_authors(listing, _column(files[AUTHORS], 'author'), path)


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  for file in (path / name, path / f'{name}.gz'):
    if file.is_file():
      return file
  raise errors.InputError(
    f'--input={path} has no {name} or {name}.gz; give the folder with {TRAIN},'
    f' {AUTHORS} and {CLEAN} of https://github.com/cvdfoundation/google-landmark'
  )


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
  before = csv.field_size_limit(_LONGEST_FIELD)
  try:
    yield
  finally:
    csv.field_size_limit(before)


def _clean(path: pathlib.Path) -> listing_lib.Listing:
  landmarks, ids, sizes = listing_lib.Codes(), listing_lib.TextParts(), []
  with _long_fields():
    for batch in tables.batches(path, ['landmark_id', 'images']):
      images = [text.split() for text in batch.columns['images']]
      landmarks.add(batch.columns['landmark_id'])
      for row, found in enumerate(images):
        if not found or not batch.columns['landmark_id'][row]:
          raise errors.InputError(
            f'{batch.where(row)} has no landmark_id or no images; expected both:'
            ' mend the line'
          )
        sizes.append(len(found))
      ids.add(list(itertools.chain.from_iterable(images)))
  if not sizes:
    raise errors.InputError(f'{path} has no images; get it again')
  _check_once(path, ids)
  labels, names = listing_lib.sorted_codes(landmarks)
  return listing_lib.Listing(np.repeat(labels, sizes), names, ids.texts())


def _column(path: pathlib.Path, column: str) -> _Column:
  ids, values = listing_lib.TextParts(), listing_lib.Codes()
  for batch in listing_lib.watched_rows(
    tables.batches(path, ['id', column]),
    f'reading {path.name}',
    lambda batch: len(batch.places),
  ):
    ids.add(batch.columns['id'])
    values.add(batch.columns[column])
  _check_once(path, ids)
  return _Column(ids.texts(), values.codes(), values.names)


def _check_once(path: pathlib.Path, ids: listing_lib.TextParts) -> None:
  if twice := ids.repeated():
    name = ids.texts().take(np.array(twice[:1]))[0]
    raise errors.InputError(
      f'{path} has the image {name!r} twice; get it again'
    )


def _misplaced(listing: listing_lib.Listing, landmark: _Column) -> int:
  """Returns how many images train.csv lacks, or has for another landmark."""
  place = {name: i for i, name in enumerate(listing.class_names)}
  of_name = np.array([place.get(name, -1) for name in landmark.names] + [-1])
  return int((of_name[landmark.of(listing.ids)] != listing.labels).sum())


def _with_authors(
  listing: listing_lib.Listing, authors: _Column, path
) -> listing_lib.Listing:
  codes = authors.of(listing.ids)
  nobody = [
    i for i, name in enumerate(authors.names) if name in ('', inputs.NOBODY)
  ]
  codes[np.isin(codes, nobody)] = -1
  if (codes < 0).all():
    raise errors.InputError(
      f'{path}: no image of {CLEAN} has an author in {AUTHORS}; give files of one'
      ' data set'
    )
  some, users = np.unique(codes[codes >= 0], return_inverse=True)
  codes[codes >= 0] = users
  return dataclasses.replace(
    listing,
    users=codes,
    user_names=[authors.names[i] for i in some.tolist()],
    facts={**listing.facts, NO_AUTHOR: int((codes < 0).sum())},
  )
