"""Small inputs of every kind for `launch.make_splits`, and splits of them."""

import csv
import json
import tarfile

import numpy as np
import pandas as pd

from datasets.splits import rules
from launch import make_splits
from tests.datasets.cifar import on_disk as cifar_on_disk
from tests.datasets.leaf import on_disk as leaf_on_disk


def table(form, write):
  """Returns (folder) -> a table of 48 rows, 6 classes and 10 users."""

  def written(folder):
    rows = [
      {'class': f'c{i % 6}', 'user_id': f'u{i % 10}', 'image_id': f'{i}.jpg'}
      for i in range(48)
    ]
    write(pd.DataFrame(rows), path := folder / f'table.{form}')
    return path

  written.__name__ = f'as_{form}'
  return written


as_csv = table('csv', lambda frame, path: frame.to_csv(path, index=False))
as_parquet = table('parquet', pd.DataFrame.to_parquet)
as_json_lines = table(
  'jsonl', lambda frame, path: frame.to_json(path, orient='records', lines=True)
)


def as_images(folder):
  for i in range(48):
    path = folder / 'images' / f'c{i % 6}' / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
  return folder / 'images'


def as_tar(folder):
  with tarfile.open(folder / 'images.tar', 'w') as file:
    file.add(as_images(folder), 'images')
  return folder / 'images.tar'


def as_npz(folder):
  y = np.arange(48) % 6
  np.savez(folder / 'a.npz', y=y, client=np.arange(48) % 10)
  return folder / 'a.npz'


def as_cifar(folder):
  return cifar_on_disk.write(folder, cifar_on_disk.files('cifar10', 'binary'))


def as_leaf(folder):
  data = {f'w{k}': leaf_on_disk.writer(k, 5, 6) for k in range(10)}
  leaf_on_disk.write(folder / 'all_data' / 'all_data.json', data)
  return folder


def as_xc(folder):
  random = np.random.default_rng(0)
  content = ['60 5 8']
  for i in range(60):
    labels = sorted(set((random.zipf(1.5, 3) % 8).tolist())) if i else []
    content.append(f'{",".join(map(str, labels))} {i % 5}:1')
  (folder / 'set_train.txt').write_text('\n'.join(content) + '\n')
  return folder


INPUTS = (as_csv, as_parquet, as_json_lines, as_images, as_tar, as_npz)
INPUTS += (as_cifar, as_leaf, as_xc)
COLUMNS = {'label': 'class', 'user': None, 'id': None}
WITHOUT_USERS = (as_images, as_tar, as_cifar, as_xc)


def request(rule, seed=0, test_fraction=0.0, test_per_class=0, **changes):
  settings = rules.get(rule).settings(**changes)
  return rules.Request(rule, settings, seed, test_fraction, test_per_class)


def make(rule, source, output, columns=COLUMNS, **options):
  asked = request(rule, **options)
  return make_splits.make(asked, str(source), columns, str(output))


def lines(path):
  with open(path, newline='') as file:
    return list(csv.DictReader(file))


def summary(output):
  return json.loads((output / 'summary.json').read_text())
