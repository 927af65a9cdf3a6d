"""Landmarks-User-160k: the clean images of Google Landmarks v2, by author.

  train.csv              id,url,landmark_id
  train_attribution.csv  id,url,author,license,title
  train_clean.csv        landmark_id,images: ids with spaces between them

each also as `.gz`. An image's user is its author. Weyand et al.: Google Landmarks
Dataset v2, CVPR 2020; https://github.com/cvdfoundation/google-landmark.

Hsu, Qi and Brown (2020) keep landmarks with at least 30 images by at least 10
authors, and authors with at least 30 images of at least 5 landmarks. They do not say
in which order; either filter may undo the other. Here both hold in the end: images
are left out until nothing changes. The result is the largest set of images for which
all four hold, whatever the order.
"""

import dataclasses
import itertools
import pathlib

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import tables
from datasets.splits import hold_out, partitions
from tff_xc import errors

TRAIN, AUTHORS, CLEAN = 'train.csv', 'train_attribution.csv', 'train_clean.csv'
# Names of facts.
IMAGES = f'images in {TRAIN}'
CLEAN_IMAGES = f'images in {CLEAN}'
CLEAN_LANDMARKS = f'landmarks in {CLEAN}'
NOT_IN_TRAIN = f'images in {CLEAN} and not as such in {TRAIN}'
NO_AUTHOR = f'images in {CLEAN} without author'


def read(path: pathlib.Path) -> examples_lib.Examples:
  """Lists the images of train_clean.csv; classes are landmark ids, users authors.

  An image without an author, or whose author is `NA`, is nobody's. Raises
  `errors.InputError` if a file is missing or damaged, an image is there twice, or
  no image has an author.
  """
  files = {name: _find(path, name) for name in (CLEAN, AUTHORS, TRAIN)}
  found = _clean(files[CLEAN])
  landmark = _column(files[TRAIN], 'landmark_id')
  found = dataclasses.replace(
    found,
    facts={
      IMAGES: len(landmark),
      CLEAN_IMAGES: len(found),
      CLEAN_LANDMARKS: len(found.class_names),
      NOT_IN_TRAIN: _misplaced(found, landmark),
    },
  )
  del landmark  # 4.1 million ids, and as many follow.
  return _with_authors(found, _column(files[AUTHORS], 'author'), path)


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  for file in (path / name, path / f'{name}.gz'):
    if file.is_file():
      return file
  raise errors.InputError(
    f'--input={path} has no {name} or {name}.gz; give the folder with {TRAIN},'
    f' {AUTHORS} and {CLEAN} of https://github.com/cvdfoundation/google-landmark'
  )


def _clean(path: pathlib.Path) -> examples_lib.Examples:
  landmarks, ids, sizes = examples_lib.Codes(), examples_lib.TextParts(), []
  for batch in tables.batches(path, ['landmark_id', 'images']):
    images = [text.split() for text in batch.columns['images']]
    landmarks.add(batch.columns['landmark_id'])
    for row, found in enumerate(images):
      if not found or not batch.columns['landmark_id'][row]:
        raise errors.InputError(
          f'{batch.where(row)} has no landmark_id or no images; expected both: mend the line'
        )
      sizes.append(len(found))
    ids.add(list(itertools.chain.from_iterable(images)))
  if not sizes:
    raise errors.InputError(f'{path} has no images; get it again')
  _check_once(path, ids)
  labels, names = examples_lib.sorted_codes(landmarks)
  return examples_lib.Examples(np.repeat(labels, sizes), names, ids.texts())


def _column(path: pathlib.Path, column: str) -> examples_lib.Examples:
  """Returns a column of a file by image id: its values are the classes."""
  ids, values = examples_lib.TextParts(), examples_lib.Codes()
  for batch in examples_lib.watched_rows(
    tables.batches(path, ['id', column]), f'reading {path.name}', lambda batch: len(batch.places)
  ):
    ids.add(batch.columns['id'])
    values.add(batch.columns[column])
  _check_once(path, ids)
  return examples_lib.Examples(values.codes(), values.names, ids.texts())


def _of(column: examples_lib.Examples, ids: examples_lib.Texts) -> np.ndarray:
  """Returns int32 [k], the values of these images; -1: not in the file."""
  places = examples_lib.find(column.ids, ids)
  return np.append(column.labels, np.int32(-1))[places]


def _check_once(path: pathlib.Path, ids: examples_lib.TextParts) -> None:
  if twice := ids.repeated():
    raise errors.InputError(f'{path} has the image {twice[0]!r} twice; get it again')


def _misplaced(found: examples_lib.Examples, landmark: examples_lib.Examples) -> int:
  """Returns how many images train.csv lacks, or has for another landmark."""
  place = {name: i for i, name in enumerate(found.class_names)}
  of_name = np.array([place.get(name, -1) for name in landmark.class_names] + [-1])
  return int((of_name[_of(landmark, found.ids)] != found.labels).sum())


def _with_authors(
  found: examples_lib.Examples, authors: examples_lib.Examples, path
) -> examples_lib.Examples:
  codes = _of(authors, found.ids)
  is_nobody = [name in ('', tables.NOBODY) for name in authors.class_names]
  codes[np.isin(codes, np.flatnonzero(is_nobody))] = -1
  if (codes < 0).all():
    raise errors.InputError(
      f'{path}: no image of {CLEAN} has an author in {AUTHORS}; give files of one data set'
    )
  some, users = np.unique(codes[codes >= 0], return_inverse=True)
  codes[codes >= 0] = users
  return dataclasses.replace(
    found,
    users=codes,
    user_names=[authors.class_names[i] for i in some.tolist()],
    facts={**found.facts, NO_AUTHOR: int((codes < 0).sum())},
  )


def split(
  examples: examples_lib.Examples,
  seed: int,
  *,
  min_landmark_images: int,
  min_landmark_authors: int,
  min_author_images: int,
  min_author_landmarks: int,
  max_test: int,
) -> partitions.Split:
  """Makes clients and the test of the landmarks that remain.

  Test examples are images of authors that are no clients, drawn at random: at
  most `max_test` of a landmark. An image whose author is unknown is in no part.
  Raises `errors.InputError` if nothing remains.
  """
  landmarks, authors = examples.labels, examples.users
  kept = fixed_point(
    landmarks,
    authors,
    (min_landmark_images, min_landmark_authors),
    (min_author_images, min_author_landmarks),
  )
  if not kept.any():
    raise errors.InputError(
      f'no image of {len(examples):,} remains: no landmarks with'
      f' {min_landmark_images} images by {min_landmark_authors} authors and'
      f' authors with {min_author_images} images of {min_author_landmarks}'
      ' landmarks; lower the flags --min_...'
    )
  classes, clients = np.unique(landmarks[kept]), np.unique(authors[kept])
  others = (authors >= 0) & ~np.isin(authors, clients) & np.isin(landmarks, classes)
  order, rank, _ = hold_out.ranked_by_class(
    np.where(others, landmarks, -1), np.random.default_rng(seed)
  )
  return partitions.Split(
    partitions.of_users(np.where(kept, authors, -1), examples.user_names, clients.tolist()),
    np.sort(order[rank < max_test]),
    classes,
  )


def fixed_point(
  landmarks: np.ndarray,
  authors: np.ndarray,
  of_landmark: tuple[int, int],
  of_author: tuple[int, int],
) -> np.ndarray:
  """Returns bool [N]: the largest set of images that passes both filters.

  `landmarks` and `authors` are int [N]; images of an author below 0 do not pass.
  `of_landmark` has the least images of a landmark in the set, and authors;
  `of_author` the least images of an author, and landmarks.
  """
  known = authors >= 0
  num_authors = int(authors.max(initial=0)) + 1
  pairs, pair_of, counts = np.unique(
    landmarks[known].astype(np.int64) * num_authors + authors[known],
    return_inverse=True,
    return_counts=True,
  )
  ends = [(pairs // num_authors, of_landmark), (pairs % num_authors, of_author)]
  alive = np.ones(len(pairs), bool)
  before = -1
  while before != alive.sum():
    before = alive.sum()
    for end, (images, others) in ends:
      enough = np.bincount(end, counts * alive) >= images
      enough &= np.bincount(end, alive) >= others
      alive &= enough[end]
  kept = np.zeros(len(landmarks), bool)
  kept[known] = alive[pair_of]
  return kept
