"""Landmarks-User-160k: the clean images of Google Landmarks v2, with authors as clients.

  train.csv              id,url,landmark_id
  train_attribution.csv  id,url,author,license,title
  train_clean.csv        landmark_id,images; the second column has the ids of all images of the
                         landmark, with spaces between them

Each file may be compressed with gzip (`.gz`). An image's user is its author. Weyand et
al.: Google Landmarks Dataset v2, CVPR 2020;
https://github.com/cvdfoundation/google-landmark.

Hsu, Qi and Brown (2020) keep landmarks with at least 30 images by at least 10
authors, and authors with at least 30 images of at least 5 landmarks. They do not say
which filter they apply first. After one filter has removed images, landmarks or authors
may fail the other filter. This module therefore repeats both filters until nothing
changes. The order of the filters does not matter: the result is always the largest set of
images that passes both filters.
"""

import pathlib

import numpy as np
import pandas as pd

from datasets import examples as examples_lib
from datasets.readers import tables
from datasets.splits import hold_out, partitions
from tff_xc import errors

TRAIN, AUTHORS, CLEAN = 'train.csv', 'train_attribution.csv', 'train_clean.csv'
# Keys of `Examples.facts`.
IMAGES = f'images in {TRAIN}'
CLEAN_IMAGES = f'images in {CLEAN}'
CLEAN_LANDMARKS = f'landmarks in {CLEAN}'
NOT_IN_TRAIN = f'images in {CLEAN} and not as such in {TRAIN}'
NO_AUTHOR = f'images in {CLEAN} without author'


def read(path: pathlib.Path) -> examples_lib.Examples:
  """Lists the images of train_clean.csv; classes are landmark ids, and users are authors.

  An image without an author, or with the author `NA`, has no user. Raises
  `errors.InputError` if a file is missing or damaged, an image is listed twice, or
  no image has an author.
  """
  files = {name: _find(path, name) for name in (CLEAN, AUTHORS, TRAIN)}
  clean = _columns(files[CLEAN], ['landmark_id', 'images'])
  clean = clean.assign(id=clean['images'].str.split()).explode('id')
  if not len(clean) or clean['id'].isna().any() or (clean['landmark_id'] == '').any():
    raise errors.InputError(f'{files[CLEAN]} has a line without landmark or images; get it again')
  landmark = _by_image(files[CLEAN], clean)['landmark_id']
  in_train = _by_image(files[TRAIN], _columns(files[TRAIN], ['id', 'landmark_id']))['landmark_id']
  is_misplaced = in_train.reindex(landmark.index).to_numpy() != landmark.to_numpy()
  authors = _by_image(files[AUTHORS], _columns(files[AUTHORS], ['id', 'author']))['author']
  authors = authors[~authors.isin(['', tables.NOBODY])]
  codes, names = pd.factorize(authors)
  codes = pd.Series(codes, authors.index).reindex(landmark.index, fill_value=-1).to_numpy()
  some, users = np.unique(codes[codes >= 0], return_inverse=True)
  if not len(some):
    raise errors.InputError(
      f'{path}: no image of {CLEAN} has an author in {AUTHORS}; give files of one data set'
    )
  codes[codes >= 0] = users
  class_names = examples_lib.in_order(landmark.unique())
  return examples_lib.Examples(
    pd.Index(class_names).get_indexer(landmark).astype(np.int32),
    class_names,
    examples_lib.texts([landmark.index]),
    codes.astype(np.int32),
    names[some].tolist(),
    facts={
      IMAGES: len(in_train),
      CLEAN_IMAGES: len(landmark),
      CLEAN_LANDMARKS: len(class_names),
      NOT_IN_TRAIN: int(is_misplaced.sum()),
      NO_AUTHOR: int((codes < 0).sum()),
    },
  )


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  for file in (path / name, path / f'{name}.gz'):
    if file.is_file():
      return file
  raise errors.InputError(
    f'--input={path} has no {name} or {name}.gz; give the folder with {TRAIN},'
    f' {AUTHORS} and {CLEAN} of https://github.com/cvdfoundation/google-landmark'
  )


def _columns(path: pathlib.Path, names: list[str]) -> pd.DataFrame:
  """Returns columns of a table as text."""
  batches = tables.batches(path, names)
  parts = examples_lib.watched(batches, f'reading {path.name}', lambda batch: len(batch.places))
  frames = [pd.DataFrame({name: batch.texts(name) for name in names}) for batch in parts]
  return pd.concat([pd.DataFrame(columns=names, dtype=object), *frames])


def _by_image(path: pathlib.Path, table: pd.DataFrame) -> pd.DataFrame:
  """Returns a table indexed by image id; raises InputError if an image is listed twice."""
  table = table.set_index('id')
  if not table.index.is_unique:
    twice = table.index[table.index.duplicated()][0]
    raise errors.InputError(f'{path} has the image {twice!r} twice; get it again')
  return table


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
  """Makes a client of each author who passes `fixed_point`, and a test set of other authors.

  The test set has at most `max_test` random images of each landmark that passes
  `fixed_point`, by authors who are not clients. Images by unknown authors are left out.
  Raises `errors.InputError` if no image passes.
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
  """Returns the largest set of images that passes both filters, bool [N].

  `landmarks` and `authors` are int [N]. Images with an author below 0 do not pass. A
  landmark needs at least `of_landmark` (images, authors), and an author needs at least
  `of_author` (images, landmarks).
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
