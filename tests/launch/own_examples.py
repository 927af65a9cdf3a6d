"""Writes the user's own data with the names that the examples in docs use."""

import numpy as np
import pandas as pd

from datasets.splits import rules
from launch import make_splits
from tests.datasets import images_on_disk


def photos(folder):
  images_on_disk.classes(folder / 'photos', {'cat': 12, 'dog': 14, 'emu': 13})
  (folder / 'photos' / 'dog' / '3.jpg').write_bytes(b'no image')
  images_on_disk.tarred(folder / 'photos', folder / 'photos.tar')
  frame = pd.DataFrame(
    [
      (f'user{i % 5}', f'{name}/{i}.jpg', k)
      for k, name in enumerate(('cat', 'dog', 'emu'))
      for i in range(12)
    ],
    columns=['user_id', 'image_id', 'class'],
  )
  frame[:-4].to_csv(folder / 'federated_train.csv', index=False)
  frame[-4:].to_csv(folder / 'test.csv', index=False)


def npz(folder, name='mine.npz', seed=0):
  random = np.random.default_rng(seed)
  np.savez(
    folder / name,
    x=random.integers(0, 256, (20, 12, 10, 3), np.uint8),
    y=np.arange(20) % 4,
    client=np.arange(20) // 5,
  )
  return folder / name


def items(folder):
  random = np.random.default_rng(0)
  frame = pd.DataFrame(random.normal(size=[60, 3]), columns=['a', 'b', 'c'])
  frame['item'] = [f'item {i % 4}' for i in range(60)]
  frame['colour'] = 'red'
  frame.to_parquet(folder / 'items.parquet')
  frame[:9].to_parquet(folder / 'later.parquet')
  frame['user'] = [f'u{i % 7}' for i in range(60)]
  frame['part'] = ['test' if i % 6 == 5 else 'train' for i in range(60)]
  frame.to_csv(folder / 'items.csv', index=False)


def embeddings(folder):
  random = np.random.default_rng(0)
  x, y = random.normal(size=[60, 5]).astype(np.float16), np.arange(60) % 4
  np.savez(folder / 'embeddings.npz', x=x, y=y, client=np.arange(60) % 7)
  frame = pd.DataFrame({'item': y, 'user': np.arange(60) % 7, 'rank': y})
  frame['embedding'] = list(x.astype(np.float32))
  frame.to_parquet(folder / 'embeddings.parquet')


def text(folder):
  for part, size in (('train', 60), ('test', 12)):
    lines = [f'{i % 6},{6 + i % 5} {i % 9}:1 {9 + i % 4}:0.5' for i in range(size)]
    header = f'{size} 13 11'
    (folder / f'{part}.txt').write_text('\n'.join([header, *lines, '']))
  settings = rules.get('dirichlet').settings(clients=10)
  (folder / 'splits').mkdir()
  make_splits.make(
    rules.Request('dirichlet', settings),
    str(folder / 'train.txt'),
    {},
    str(folder / 'splits' / 'text'),
  )
