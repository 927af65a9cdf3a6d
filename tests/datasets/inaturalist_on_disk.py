"""Writes small files in the format of iNaturalist 2017."""

import json
import zipfile

import numpy as np

CATEGORIES = 12


def content(seed=0, train=600, validation=60):
  """Returns the JSON content of each file by the file's name."""
  random = np.random.default_rng(seed)
  found = {}
  categories = [
    {'id': 5 * c + 3, 'name': f'Genus {c % 11}', 'supercategory': 'Aves'}
    for c in reversed(range(CATEGORIES))
  ]  # Two categories have the same name.
  for part, count in (('train', train), ('val', validation)):
    ids = random.permutation(count).tolist()
    label = np.minimum(random.geometric(0.2, count), CATEGORIES) - 1
    found[f'{part}2017.json'] = {
      'info': {'year': 2017, 'description': ['{"', None, 1.5]},
      'images': [
        {
          'id': i,
          'width': 800,
          'height': 600,
          'file_name': f'train_val_images/Aves/Genus/{part}{i:08x}.jpg',
          'license': 3,
          'rights_holder': 'Zoë "]}" Ö',
        }
        for i in ids
      ],
      'categories': categories,
      'annotations': [
        {'id': i, 'image_id': i, 'category_id': 5 * int(label[i]) + 3}
        for i in random.permutation(count).tolist()
      ],
      'licenses': [{'id': 3, 'name': 'CC', 'url': 'https://x'}],
    }
    positions = places(random, count)
    found[f'{part}2017_locations.json'] = [
      {
        'id': i,
        'lat': None if i % 20 == 7 else positions[i][0],
        'lon': None if i % 20 == 7 else positions[i][1],
        'date': '2015-06-01 12:00:00+00:00',
        'user_id': None if i % 50 == 9 else int(random.geometric(0.05)),
      }
      for i in random.permutation(count).tolist()
    ]
  return found


def places(random, count):
  """Returns positions: clusters, corners of the earth, and many examples at one place."""
  centres = np.stack([random.uniform(-80, 80, 8), random.uniform(-170, 170, 8)])
  found = centres.T[random.integers(0, 8, count)] + random.normal(0, 1.5, (count, 2))
  found[::9] = [12.5, -70.25]
  found[1:6] = [[90, 0], [-90, 180], [0, 180], [0, -180], [45, 45]]
  return found.tolist()


def write(folder, found, zipped=True):
  """Writes the zips that iNaturalist distributes, or unpacked files. Returns the folder."""
  folder.mkdir(exist_ok=True)
  if not zipped:
    for name, value in found.items():
      (folder / name).write_text(json.dumps(value))
    return folder
  archives = {'train_val2017.zip': '', 'inat2017_locations.zip': '_locations'}
  for archive, suffix in archives.items():
    with zipfile.ZipFile(folder / archive, 'w', zipfile.ZIP_DEFLATED) as file:
      for part in ('train', 'val'):
        name = f'{part}2017{suffix}.json'
        # One of the archives contains a folder.
        inside = f'inat/{name}' if suffix else name
        file.writestr(inside, json.dumps(found[name], ensure_ascii=False))
  return folder
