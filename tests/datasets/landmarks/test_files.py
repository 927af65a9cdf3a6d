"""The files of Google Landmarks v2."""

import numpy as np
import pytest

from datasets.landmarks import files
from datasets.landmarks import rules
from datasets.splits import inputs
from tests.datasets.landmarks import on_disk
from tff_xc import errors


def read(folder):
  return files.read(folder, inputs.Columns())


@pytest.mark.parametrize('packed', [False, True])
def test_images_have_their_landmark_and_author(tmp_path, packed):
  rows = on_disk.images(count=300)
  listing = read(on_disk.write(tmp_path, rows, packed=packed))
  ids = listing.ids.take(np.arange(len(listing)))
  names = [*listing.user_names, '']
  found = [
    (image, listing.class_names[label], names[user])
    for image, label, user in zip(
      ids, listing.labels, listing.users, strict=True
    )
  ]
  assert sorted(found) == sorted(rows)
  assert listing.class_names == sorted({r[1] for r in rows}, key=int)
  assert listing.facts == {
    files.IMAGES: 500,
    files.CLEAN_IMAGES: 300,
    files.CLEAN_LANDMARKS: len(listing.class_names),
    files.NOT_IN_TRAIN: 0,
    files.NO_AUTHOR: sum(not r[2] for r in rows),
  }


def test_what_is_published_is_compared():
  [rule] = rules.RULES.values()
  assert set(rule.published.input) == {
    files.IMAGES,
    files.CLEAN_IMAGES,
    files.CLEAN_LANDMARKS,
  }


def test_images_that_the_other_files_lack_are_counted(tmp_path):
  rows = on_disk.images(count=100)
  on_disk.write(tmp_path, rows)
  clean = tmp_path / 'train_clean.csv'
  clean.write_text(clean.read_text() + '1000,new1 new2\n')
  listing = read(tmp_path)
  assert listing.facts[files.NOT_IN_TRAIN] == 2
  assert listing.users[-2:].tolist() == [-1, -1]


def test_a_landmark_with_more_images_than_a_csv_field_may_have(tmp_path):
  rows = [(f'{i:016x}', '5', f'a{i % 3}') for i in range(9000)]
  assert len(read(on_disk.write(tmp_path, rows))) == 9000


@pytest.mark.parametrize(
  ('name', 'change', 'match'),
  [
    ('train.csv', None, r'has no train\.csv or train\.csv\.gz'),
    ('train_clean.csv', lambda t: t.replace('images', 'ids'), 'no column'),
    (
      'train_clean.csv',
      lambda t: t + '9,\n',
      r'line \d+ has no landmark_id or',
    ),
    ('train_clean.csv', lambda t: t + '9,0 0\n', "has the image '0' twice"),
    ('train_clean.csv', lambda t: t.split('\n')[0], 'has no images'),
    ('train.csv', lambda t: t + t.split('\n')[1], r'train\.csv has the image'),
    (
      'train_attribution.csv',
      lambda t: t + f'{0:016x},u,Another,l,t\n',
      f'has the image {f"{0:016x}"!r} twice',
    ),
    ('train.csv', lambda t: t + 'x,y\n', r'line 502 has 2 fields'),
    ('train_attribution.csv', lambda t: t.split('\n')[0], 'has an author'),
    ('train_attribution.csv', lambda t: t + 'x,"y', 'no CSV text'),
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
    read(tmp_path)
  assert '\n' not in str(e.value)
