"""Landmarks-User-160k: filters to a fixed point, and its test, against loops."""

import numpy as np
import pytest

from datasets.landmarks import by_author
from datasets.landmarks import files
from datasets.splits import inputs
from tests.datasets.landmarks import on_disk
from tff_xc import errors

SMALL = {
  'min_landmark_images': 12,
  'min_landmark_authors': 4,
  'min_author_images': 12,
  'min_author_landmarks': 4,
  'max_test': 3,
}


def read(tmp_path, rows):
  return files.read(on_disk.write(tmp_path / 'gld', rows), inputs.Columns())


def fails(images):
  """Whether a group's images are too few, or come from too few others."""
  return len(images) < 12 or len({other for _, other in images}) < 4


def by_loops(rows):
  """Leaves out one landmark or author at a time, until none has to go."""
  kept = {image: (place, who) for image, place, who in rows if who}
  while True:
    groups = {}
    for image, (place, who) in kept.items():
      groups.setdefault(('place', place), []).append((image, who))
      groups.setdefault(('who', who), []).append((image, place))
    bad = [key for key, images in groups.items() if fails(images)]
    if not bad:
      return kept
    # The last one: another order than that of the code under test.
    for image, _ in groups[bad[-1]]:
      del kept[image]


@pytest.mark.parametrize('seed', range(6))
def test_the_split_is_that_of_loops(tmp_path, seed):
  rows = on_disk.images(seed)
  listing = read(tmp_path, rows)
  split = by_author.split(listing, 0, **SMALL)
  expected = by_loops(rows)
  assert 100 < len(expected) < len(rows) - 100
  ids = listing.ids.take(np.arange(len(listing)))
  place = {ids[i]: listing.class_names[c] for i, c in enumerate(listing.labels)}
  found = {
    ids[i]: (place[ids[i]], name)
    for k, name in enumerate(split.train.client_ids)
    for i in split.train.numbers[
      split.train.offsets[k] : split.train.offsets[k + 1]
    ].tolist()
  }
  assert found == expected
  kept = {place for place, _ in expected.values()}
  assert {listing.class_names[c] for c in split.classes} == kept
  people = {who for _, who in expected.values()}
  might = {}
  for image, where, who in rows:
    if who and who not in people and where in kept:
      might.setdefault(where, set()).add(image)
  tests = {}
  for i in split.test.tolist():
    tests.setdefault(place[ids[i]], set()).add(ids[i])
  assert might and set(tests) == set(might)
  for where, images in tests.items():
    assert images <= might[where]
    assert len(images) == min(3, len(might[where]))


def test_either_filter_may_undo_the_other():
  """A chain: each author holds the next landmark, and all fall one by one."""
  links = 50
  landmarks = np.repeat(np.arange(links), 2)
  authors = np.repeat(np.arange(links + 1), 2)[1:-1]
  kept = by_author.fixed_point(landmarks, authors, (2, 2), (2, 2))
  assert not kept.any()
  # The same as a circle stays.
  circle = np.append(authors[:-1], 0)
  assert by_author.fixed_point(landmarks, circle, (2, 2), (2, 2)).all()


def test_another_seed_draws_another_test_only(tmp_path):
  listing = read(tmp_path, on_disk.images(1))
  splits = [by_author.split(listing, seed, **SMALL) for seed in (0, 0, 1)]
  np.testing.assert_array_equal(splits[0].test, splits[1].test)
  assert len(splits[0].test) == len(splits[2].test)
  assert (splits[0].test != splits[2].test).any()
  np.testing.assert_array_equal(
    splits[0].train.numbers, splits[2].train.numbers
  )


def test_nothing_remains(tmp_path):
  listing = read(tmp_path, on_disk.images(0, 30))
  with pytest.raises(errors.InputError, match='no image of 30 remains'):
    by_author.split(listing, 0, **SMALL)
