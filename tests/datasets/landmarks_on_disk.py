"""Writes small files in the format of Google Landmarks v2."""

import csv
import gzip

import numpy as np

AUTHORS = [f'Author, "{k}"' for k in range(40)] + ['Zoë\nLine 2', '12', '']


def images(seed=0, count=1500, landmarks=25):
  """Returns rows (id, landmark, author), with few frequent authors and landmarks."""
  random = np.random.default_rng(seed)
  places = np.minimum(random.geometric(0.12, count), landmarks) - 1
  people = np.minimum(random.geometric(0.08, count), len(AUTHORS)) - 1
  return [
    (f'{i:016x}', str(7 * place + 1), AUTHORS[person])
    for i, (place, person) in enumerate(zip(places.tolist(), people.tolist(), strict=True))
  ]


def write(folder, rows, unclean=200, packed=False):
  """Writes the three files of images (id, landmark, author), and returns the folder.

  The files also contain `unclean` images that are missing from the cleaned list.
  """
  folder.mkdir(exist_ok=True)
  clean = {}
  for image, landmark, _ in rows:
    clean.setdefault(landmark, []).append(image)
  others = [(f'f{i:015x}', str(i % 40), 'Author, "0"') for i in range(unclean)]
  every = sorted([*rows, *others], key=lambda row: row[0][::-1])
  url, title = 'https://upload.wikimedia.org/a,b.jpg', 'File:A "b", c.jpg'
  for name, header, lines in (
    ('train', 'id,url,landmark_id', [(i, url, of) for i, of, _ in every]),
    (
      'train_attribution',
      'id,url,author,license,title',
      [(image, url, author, 'CC', title) for image, _, author in every],
    ),
    (
      'train_clean',
      'landmark_id,images',
      [(landmark, ' '.join(found)) for landmark, found in clean.items()],
    ),
  ):
    path = folder / f'{name}.csv{".gz" * packed}'
    with (gzip.open if packed else open)(path, 'wt', newline='') as file:
      csv.writer(file).writerows([header.split(','), *lines])
  return folder
