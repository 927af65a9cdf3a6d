"""Clients that are authors, as Landmarks-User-160k (Hsu, Qi and Brown, 2020).

The paper keeps landmarks with at least 30 images by at least 10 authors, and
authors with at least 30 images of at least 5 landmarks. It does not say in which
order; either filter may undo the other. Here both hold in the end: images are
left out until nothing changes. The result is the largest set of images for which
all four hold, whatever the order.
"""

import numpy as np

from datasets.splits import by_user
from datasets.splits import hold_out
from datasets.splits import listing as listing_lib
from datasets.splits import rule
from tff_xc import errors


def split(
  listing: listing_lib.Listing,
  seed: int,
  *,
  min_landmark_images: int = 30,
  min_landmark_authors: int = 10,
  min_author_images: int = 30,
  min_author_landmarks: int = 5,
  max_test: int = 10,
) -> rule.Split:
  """Makes clients and the test of the landmarks that remain.

  Test examples are images of authors that are no clients, drawn at random. An
  image whose author is unknown is in no part.

  Args:
    listing: `files.read`.
    seed: of the draw of the test.
    min_landmark_images: landmarks with fewer are left out.
    min_landmark_authors: landmarks of fewer are left out.
    min_author_images: authors with fewer are no clients.
    min_author_landmarks: authors with images of fewer are no clients.
    max_test: test examples of a landmark, at most.

  Raises:
    errors.InputError: nothing remains.
  """
  landmarks, authors = listing.labels, listing.users
  kept = fixed_point(
    landmarks,
    authors,
    (min_landmark_images, min_landmark_authors),
    (min_author_images, min_author_landmarks),
  )
  if not kept.any():
    raise errors.InputError(
      f'no image of {len(listing):,} remains: no landmarks with'
      f' {min_landmark_images} images by {min_landmark_authors} authors and'
      f' authors with {min_author_images} images of {min_author_landmarks}'
      ' landmarks; lower the flags --min_...'
    )
  classes, clients = np.unique(landmarks[kept]), np.unique(authors[kept])
  others = (
    (authors >= 0) & ~np.isin(authors, clients) & np.isin(landmarks, classes)
  )
  order, rank, _ = hold_out.ranked_by_class(
    np.where(others, landmarks, -1), np.random.default_rng(seed)
  )
  return rule.Split(
    by_user.of_users(
      np.where(kept, authors, -1), listing.user_names, clients.tolist()
    ),
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

  Args:
    landmarks: int [N], from 0.
    authors: int [N], from 0; below 0: unknown, such images do not pass.
    of_landmark: the least images of a landmark in the set, and authors.
    of_author: the least images of an author in the set, and landmarks.
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
