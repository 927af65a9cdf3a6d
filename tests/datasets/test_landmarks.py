"""Landmarks-User-160k: its files, and its repeated filters compared with loops."""

import numpy as np
import pytest

from datasets import landmarks
from tests.datasets import landmarks_on_disk as on_disk
from tff_xc import errors


@pytest.mark.parametrize('packed', [False, True])
def test_images_have_their_landmark_and_author(tmp_path, packed):
  rows = on_disk.images(count=300)
  found = landmarks.read(on_disk.write(tmp_path, rows, packed=packed))
  ids = list(found.ids)
  names = [*found.user_names, '']
  rows_found = [
    (image, found.class_names[label], names[user])
    for image, label, user in zip(ids, found.labels, found.users, strict=True)
  ]
  assert sorted(rows_found) == sorted(rows)
  assert found.class_names == sorted({r[1] for r in rows}, key=int)
  assert found.facts == {
    landmarks.IMAGES: 500,
    landmarks.CLEAN_IMAGES: 300,
    landmarks.CLEAN_LANDMARKS: len(found.class_names),
    landmarks.NOT_IN_TRAIN: 0,
    landmarks.NO_AUTHOR: sum(not r[2] for r in rows),
  }


def test_images_that_the_other_files_lack_are_counted(tmp_path):
  rows = on_disk.images(count=100)
  on_disk.write(tmp_path, rows)
  clean = tmp_path / 'train_clean.csv'
  clean.write_text(clean.read_text() + '1000,new1 new2\n')
  found = landmarks.read(tmp_path)
  assert found.facts[landmarks.NOT_IN_TRAIN] == 2
  assert found.users[-2:].tolist() == [-1, -1]


@pytest.mark.parametrize(
  ('name', 'change', 'match'),
  [
    ('train.csv', None, r'has no train\.csv or train\.csv\.gz'),
    ('train_clean.csv', lambda t: t + '9,\n', 'a line without'),
    ('train_clean.csv', lambda t: t + '9,0 0\n', "image '0' twice"),
    ('train_clean.csv', lambda t: t.split('\n')[0], 'or images'),
    ('train.csv', lambda t: t + t.split('\n')[1], r'train\.csv has the image'),
    ('train_attribution.csv', lambda t: t + f'{0:016x},u,Another,l,t\n', f'{0:016x}. twice'),
    ('train_attribution.csv', lambda t: t.split('\n')[0], 'has an author'),
  ],
)
def test_damaged_files(tmp_path, name, change, match):
  on_disk.write(tmp_path, on_disk.images(count=300))
  path = tmp_path / name
  if change:
    path.write_text(change(path.read_text()))
  else:
    path.unlink()
  with pytest.raises(errors.InputError, match=match) as e:
    landmarks.read(tmp_path)
  assert '\n' not in str(e.value)


SMALL = {
  'min_landmark_images': 12,
  'min_landmark_authors': 4,
  'min_author_images': 12,
  'min_author_landmarks': 4,
  'max_test': 3,
}


def read(tmp_path, rows):
  return landmarks.read(on_disk.write(tmp_path / 'gld', rows))


def fails(images):
  """Whether a group has too few images, or its images have too few different partners."""
  return len(images) < 12 or len({other for _, other in images}) < 4


def by_loops(rows):
  """Removes one landmark or author at a time, until all of them pass the filters."""
  kept = {image: (place, who) for image, place, who in rows if who}
  while True:
    groups = {}
    for image, (place, who) in kept.items():
      groups.setdefault(('place', place), []).append((image, who))
      groups.setdefault(('who', who), []).append((image, place))
    bad = [key for key, images in groups.items() if fails(images)]
    if not bad:
      return kept
    # Remove the last group first, unlike the tested code.
    for image, _ in groups[bad[-1]]:
      del kept[image]


@pytest.mark.parametrize('seed', range(6))
def test_the_split_is_that_of_loops(tmp_path, seed):
  rows = on_disk.images(seed)
  found = read(tmp_path, rows)
  split = landmarks.split(found, 0, **SMALL)
  expected = by_loops(rows)
  assert 100 < len(expected) < len(rows) - 100
  ids = list(found.ids)
  place = {ids[i]: found.class_names[c] for i, c in enumerate(found.labels)}
  dealt = {
    ids[i]: (place[ids[i]], name)
    for k, name in enumerate(split.train.client_ids)
    for i in split.train.of_client(k).tolist()
  }
  assert dealt == expected
  kept = {place for place, _ in expected.values()}
  assert {found.class_names[c] for c in split.classes} == kept
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
  """In a chain, each author shares a landmark with the next author, so all are removed in turn."""
  links = 50
  places = np.repeat(np.arange(links), 2)
  authors = np.repeat(np.arange(links + 1), 2)[1:-1]
  kept = landmarks.fixed_point(places, authors, (2, 2), (2, 2))
  assert not kept.any()
  # If the chain is closed to a circle, all landmarks and authors stay.
  circle = np.append(authors[:-1], 0)
  assert landmarks.fixed_point(places, circle, (2, 2), (2, 2)).all()


def test_another_seed_draws_another_test_only(tmp_path):
  found = read(tmp_path, on_disk.images(1))
  splits = [landmarks.split(found, seed, **SMALL) for seed in (0, 0, 1)]
  np.testing.assert_array_equal(splits[0].test, splits[1].test)
  assert len(splits[0].test) == len(splits[2].test)
  assert (splits[0].test != splits[2].test).any()
  np.testing.assert_array_equal(splits[0].train.numbers, splits[2].train.numbers)


def test_nothing_remains(tmp_path):
  found = read(tmp_path, on_disk.images(0, 30))
  with pytest.raises(errors.InputError, match='no image of 30 remains'):
    landmarks.split(found, 0, **SMALL)
