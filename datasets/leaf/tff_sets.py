"""Sets that TFF hosts, in place of LEAF's: EMNIST, CelebA and Shakespeare.

They are made of the same sources, and differ from LEAF's sets:

emnist-tff       3,400 writers and 749,068 images, in place of 3,550 and
                 805,263.
celeba-tff       the same 9,343 celebrities, whom TFF splits into 8,408 and 935
                 itself, and the same 200,288 images, already 84 by 84.
shakespeare-tff  715 roles and 2,585,814 windows, in place of 1,129 and
                 4,226,158: TFF keeps roles of at least two snippets of text.

TFF splits each client's examples of EMNIST and Shakespeare into train and test.
Here the two are joined, train first, and clients are split as LEAF does:
`random.Random(0)` samples 90 % of the clients, in the order of their ids.
"""

import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from datasets import parsed_cache
from datasets.leaf import celeba
from datasets.leaf import femnist
from datasets.leaf import shakespeare
from datasets.leaf import tff_files
from datasets.leaf import users as leaf_users
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import pool

# Increase this when the arrays of a cache change.
VERSION = 1


def load_shakespeare(
  data_dir: str | os.PathLike, *, min_examples: int = 64, test_examples: int = 0
) -> client_data.FederatedDataset:
  """As `shakespeare.load`, of TFF's snippets.

  A client's snippets are joined by newlines, and then become windows as the
  texts of LEAF do.
  """
  paths = tff_files.find('shakespeare', data_dir)
  users, examples = shakespeare.from_texts(
    'shakespeare-tff', list(paths), lambda: _texts(paths)
  )
  return leaf_users.federated(
    'shakespeare-tff',
    shakespeare.NUM_CLASSES,
    examples,
    users,
    leaf_users.split(users),
    min_examples=min_examples,
    test_examples=test_examples,
  )


def _texts(paths: tuple[pathlib.Path, ...]) -> Iterator[tuple[str, str]]:
  """Yields each client and its snippets, each with a newline."""
  with tff_files.opened('shakespeare', paths) as source:
    name, text = '', ''
    for client in source.clients():
      if client.name != name:
        if name:
          yield name, text
        name, text = client.name, ''
      for snippet in source.read(client, 'snippets'):
        text += snippet.decode('utf-8', 'replace') + '\n'
    if name:
      yield name, text


def load_emnist(
  data_dir: str | os.PathLike, *, min_examples: int = 64, test_examples: int = 0
) -> client_data.FederatedDataset:
  """As `femnist.load`, of TFF's EMNIST of 62 classes."""
  paths = tff_files.find('emnist', data_dir)

  arrays = femnist.in_fewest_bytes(
    'emnist-tff',
    paths[0],
    parsed_cache.describe_files(VERSION, paths),
    lambda store, convert: _store_emnist(store, paths, convert),
  )
  users = _users(arrays)
  return leaf_users.federated(
    'emnist-tff',
    femnist.NUM_CLASSES,
    femnist.pool_of(arrays['x'], arrays['y']),
    users,
    leaf_users.split(users),
    min_examples=min_examples,
    test_examples=test_examples,
  )


def _users(arrays) -> leaf_users.Users:
  sizes = arrays['sizes']
  names = [str(name) for name in arrays['names']]
  return leaf_users.Users(names, np.cumsum(sizes) - sizes, sizes, None)


def _store_emnist(store: parsed_cache.Store, paths, convert) -> None:
  sizes: dict[str, int] = {}
  with tff_files.opened('emnist', paths) as source:
    for client in source.clients():
      where = f'{paths[-1 if client.part else 0]}, client {client.name}'
      x, y = (source.read(client, column) for column in ('pixels', 'label'))
      _check(where, 'pixels', x, [femnist.SIDE, femnist.SIDE], 'f')
      if not ((x >= 0) & (x <= 1)).all():
        raise errors.InputError(
          f'{where}: a pixel is outside [0, 1]; download the file again'
        )
      store.append('x', convert(x))
      store.append('y', _labels(y, femnist.NUM_CLASSES, where))
      sizes[client.name] = sizes.get(client.name, 0) + len(y)
  _store_sizes(store, paths, sizes)


def _store_sizes(store: parsed_cache.Store, paths, sizes) -> None:
  if not sizes:
    raise errors.InputError(
      f'{paths[0]} has no clients of the splits that are used; download it again'
    )
  store.append('names', np.array(list(sizes), np.str_))
  store.append('sizes', np.array(list(sizes.values()), np.int64))


def _labels(y: np.ndarray, num_classes: int, where: str) -> np.ndarray:
  _check(where, 'labels', y, [], 'biu')
  errors.check_labels(y.astype(np.int64), num_classes, where)
  return y.astype(np.int32)


def _check(where: str, what: str, found: np.ndarray, shape, kinds: str) -> None:
  if list(found.shape[1:]) != shape or found.dtype.kind not in kinds:
    raise errors.InputError(
      f'{where}: {what} are {found.dtype} {list(found.shape[1:])}, expected '
      f'{shape}; give the file that TFF distributes'
    )


def load_celeba(
  data_dir: str | os.PathLike, *, min_examples: int = 8, test_examples: int = 0
) -> client_data.FederatedDataset:
  """As `celeba.load`, of TFF's files; images are read when they are used."""
  paths = tff_files.find('celeba', data_dir)
  source = tff_files.open_source('celeba', paths)
  arrays = parsed_cache.arrays(
    parsed_cache.path(paths[0], 'celeba-tff'),
    parsed_cache.describe_files(VERSION, paths),
    lambda store: _store_celeba(store, paths, source),
  )
  is_test = arrays['part'] == 1
  users = _users(arrays)._replace(is_test=is_test)
  return leaf_users.federated(
    'celeba-tff',
    celeba.NUM_CLASSES,
    _images(users, arrays, source, paths),
    users,
    leaf_users.split(users),
    min_examples=min_examples,
    test_examples=test_examples,
  )


def _store_celeba(store: parsed_cache.Store, paths, source) -> None:
  clients, sizes = [], []
  for client in source.clients():
    where = f'{paths[-1 if client.part else 0]}, client {client.name}'
    y = _labels(source.read(client, 'smiling'), celeba.NUM_CLASSES, where)
    store.append('y', y)
    store.append('rows', client.rows)
    clients.append(client)
    sizes.append(len(y))
  names = [client.name for client in clients]
  if len(set(names)) < len(names):
    raise errors.InputError(
      f'{paths[0]}: clients are both in train and in test; give the files that '
      'are split by clients'
    )
  _store_sizes(store, paths, dict(zip(names, sizes, strict=True)))
  store.append('part', np.array([client.part for client in clients], np.uint8))


def _images(users, arrays, source, paths) -> pool.Pool:
  """Returns the pool of images, of which each client's are read at once."""
  shape = [celeba.SIDE, celeba.SIDE, 3]
  rows, part = arrays['rows'], arrays['part']

  def read(numbers: np.ndarray) -> np.ndarray:
    x = np.empty([len(numbers), *shape], np.uint8)
    owners = np.searchsorted(users.starts, numbers, 'right') - 1
    for user in np.unique(owners):
      mine = np.flatnonzero(owners == user)
      client = tff_files.Client(
        users.names[user], int(part[user]), np.asarray(rows[numbers[mine]])
      )
      images = source.read(client, 'image')
      where = f'{paths[-1 if client.part else 0]}, client {client.name}'
      _check(where, 'images', images, shape, 'iu')
      x[mine] = images
    return x

  spec = tf.TensorSpec(shape, tf.uint8)
  return pool.cached(
    pool.Pool(np.asarray(arrays['y']), spec, read, files=paths), celeba.CACHE
  )
