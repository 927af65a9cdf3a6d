"""Reads the data sets that TFF hosts, which have the same sources as LEAF's data sets.

emnist-tff       has 3,400 writers and 749,068 images. LEAF has 3,550 writers and 805,263
                 images.
celeba-tff       has the same 9,343 celebrities as LEAF, and the same 200,288 images,
                 already resized to 84 by 84. TFF splits the celebrities into 8,408 for
                 training and 935 for testing.
shakespeare-tff  has 715 roles and 2,585,814 windows, because TFF keeps only roles
                 with at least two snippets of text. LEAF has 1,129 roles and 4,226,158
                 windows.

In EMNIST and Shakespeare, TFF splits each client's examples into training and test
examples. This module joins both, training examples first. Then it sorts the clients by id,
and splits them into training and test clients by LEAF's rule.

The module reads the files of TFF's load_data, in one of two formats. HDF5:
`<name>_train.h5` and `<name>_test.h5`, with `examples/<client>/<column>`. SQLite: a table
`examples` with the columns split_name, client_id and serialized_example_proto, a
`tf.train.Example`.
"""

import contextlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from datasets import photographs
from datasets.leaf import celeba, femnist, files as leaf_files, shakespeare, users as leaf_users
from datasets.readers import parsed_cache
from tff_xc import errors
from tff_xc.data import hdf5, pool

# Increase this when the cached arrays change.
VERSION = 3

# For each SQLite file, the names of the training and test splits, and the columns as
# features of `tf.io.parse_example`.
_feature = tf.io.FixedLenFeature
_SQLITE = {
  'emnist': (
    ('all_train', 'all_test'),
    {'pixels': _feature([28, 28], tf.float32), 'label': _feature([], tf.int64)},
  ),
  'celeba': (
    ('split_by_clients_train', 'split_by_clients_test'),
    {'image': _feature([84, 84, 3], tf.int64), 'smiling': _feature([], tf.int64)},
  ),
  'shakespeare': (('train', 'test'), {'snippets': _feature([], tf.string)}),
}


class Client(NamedTuple):
  """A client's training or test examples in a file."""

  name: str
  part: int  # 0: training examples; 1: test examples.
  rows: np.ndarray  # int64 [k], the rows of the examples in the file.
  where: str  # The file and the client, for error messages.


def read_shakespeare(data_dir: str | os.PathLike) -> tuple[pool.Pool, leaf_users.Users]:
  """Reads TFF's Shakespeare; returns what `shakespeare.read` returns.

  Joins each client's snippets with newlines.
  """
  paths = leaf_files.find_tff('shakespeare', data_dir)

  def texts() -> dict[str, str]:
    found = {}
    source = opened('shakespeare', paths)
    for client in source.clients():
      for snippet in source.read(client, 'snippets'):
        line = snippet.decode('utf-8', 'replace') + '\n'
        found[client.name] = found.get(client.name, '') + line
    return found

  return shakespeare.from_texts('shakespeare-tff', list(paths), lambda: texts().items())


def read_emnist(data_dir: str | os.PathLike) -> tuple[pool.Pool, leaf_users.Users]:
  """Reads TFF's EMNIST with 62 classes; returns what `femnist.read` returns."""
  paths = leaf_files.find_tff('emnist', data_dir)

  def make(convert):
    sizes: dict[str, int] = {}
    images, labels = [], []
    source = opened('emnist', paths)
    for client in source.clients():
      x = source.read(client, 'pixels')
      _check(client, 'pixels', x, [femnist.SIDE, femnist.SIDE], 'f')
      if not ((x >= 0) & (x <= 1)).all():
        raise errors.InputError(f'{client.where}: a pixel is outside [0, 1]; download it again')
      images.append(convert(x))
      labels.append(_labels(source, client, 'label', femnist.NUM_CLASSES))
      sizes[client.name] = sizes.get(client.name, 0) + len(x)
    fields = leaf_users.put(paths[0], list(sizes), list(sizes.values()))
    return {**fields, 'x': np.concatenate(images), 'y': np.concatenate(labels)}

  arrays = femnist.in_fewest_bytes(
    lambda convert: parsed_cache.of_files(
      paths[0], 'emnist-tff', VERSION, paths, lambda: make(convert)
    )
  )
  return femnist.pool_of(arrays), leaf_users.of_arrays(arrays)


def read_celeba(data_dir: str | os.PathLike) -> tuple[pool.Pool, leaf_users.Users]:
  """Reads TFF's CelebA; returns what `celeba.read` returns. Images are read when they are used."""
  paths = leaf_files.find_tff('celeba', data_dir)
  source = opened('celeba', paths)

  def make():
    clients = list(source.clients())
    names = [client.name for client in clients]
    if len(set(names)) < len(names):
      raise errors.InputError(
        f'{paths[0]}: clients are both in train and in test; give the files that '
        'are split by clients'
      )
    sizes = [len(client.rows) for client in clients]
    is_test = [client.part == 1 for client in clients]
    fields = leaf_users.put(paths[0], names, sizes, is_test=is_test)
    y = [_labels(source, client, 'smiling', celeba.NUM_CLASSES) for client in clients]
    rows = [client.rows for client in clients]
    return {**fields, 'y': np.concatenate(y), 'rows': np.concatenate(rows)}

  arrays = parsed_cache.of_files(paths[0], 'celeba-tff', VERSION, paths, make)
  users, rows = leaf_users.of_arrays(arrays), arrays['rows']
  shape = [celeba.SIDE, celeba.SIDE, 3]

  def read(numbers: np.ndarray) -> np.ndarray:
    x = np.empty([len(numbers), *shape], np.uint8)
    owners = np.searchsorted(users.starts, numbers, 'right') - 1
    for user in np.unique(owners):  # Read all images of a user at once.
      mine = np.flatnonzero(owners == user)
      name, part = users.names[user], int(users.is_test[user])
      where = f'{paths[-part]}, client {name}'
      client = Client(name, part, np.asarray(rows[numbers[mine]]), where)
      images = source.read(client, 'image')
      _check(client, 'images', images, shape, 'iu')
      x[mine] = images
    return x

  spec = tf.TensorSpec(shape, tf.uint8)
  images = pool.Pool(np.asarray(arrays['y']), spec, read, files=paths)
  return pool.cached(images, photographs.CACHE), users


def _labels(source, client: Client, column: str, n: int) -> np.ndarray:
  y = source.read(client, column)
  _check(client, 'labels', y, [], 'biu')
  errors.check_labels(y.astype(np.int64), n, client.where)
  return y.astype(np.int32)


def _check(client: Client, what: str, found, shape, kinds: str) -> None:
  if list(found.shape[1:]) != shape or found.dtype.kind not in kinds:
    raise errors.InputError(
      f'{client.where}: {what} are {found.dtype} {list(found.shape[1:])}, '
      f'expected {shape}; give the file that TFF distributes'
    )


def opened(name: str, paths: tuple[pathlib.Path, ...]):
  """Opens the files that `find_tff` found.

  The result has two methods. `clients()` yields each `Client`, sorted by name and then by
  part. `read(client, column)` returns a column and is thread-safe.
  """
  return _Hdf5(paths) if paths[0].suffix == '.h5' else _Sqlite(paths[0], *_SQLITE[name])


@contextlib.contextmanager
def _damage(path: pathlib.Path) -> Iterator[None]:
  """Turns the errors that readers raise for damaged files into an InputError."""
  try:
    yield
  except (errors.InputError, MemoryError):
    raise
  except Exception as e:  # The readers raise errors of almost any type.
    reason = str(e).splitlines()[0].split(' [Op:')[0]
    raise errors.InputError(
      f'{path} is damaged or has another form ({reason}); download it again'
    ) from e


class _Hdf5:
  """The two HDF5 files of a data set. A client's rows are indices into its columns."""

  def __init__(self, paths: tuple[pathlib.Path, ...]):
    import h5py

    self._paths, self._parts = paths, []
    for path in paths:
      with _damage(path):
        file = h5py.File(path, 'r')
        hdf5.check(file, path)
        self._parts.append(file['examples'])

  def clients(self) -> Iterator[Client]:
    listed = [(name, part) for part, examples in enumerate(self._parts) for name in examples]
    for name, part in sorted(listed):
      path = self._paths[part]
      with _damage(path):
        # The assignment raises an error if the file is damaged and columns differ in length.
        [rows] = {len(values) for values in self._parts[part][name].values()}
      yield Client(name, part, np.arange(rows), f'{path}, client {name}')

  def read(self, client: Client, column: str) -> np.ndarray:
    with _damage(self._paths[client.part]):
      return self._parts[client.part][client.name][column][()][client.rows]


class _Sqlite:
  """The SQLite database of a data set. A client's rows are row ids of the database."""

  def __init__(self, path: pathlib.Path, splits: tuple[str, str], columns):
    self._path, self._splits, self._columns = path, splits, columns
    self._lock = threading.Lock()
    with _damage(path):
      self._database = sqlite3.connect(
        f'{path.resolve().as_uri()}?mode=ro', uri=True, check_same_thread=False
      )

  def clients(self) -> Iterator[Client]:
    rows: dict[tuple[str, int], list[int]] = {}
    with _damage(self._path), self._lock:
      for name, split, row in self._database.execute(
        'SELECT client_id, split_name, rowid FROM examples WHERE split_name IN (?, ?)', self._splits
      ):
        rows.setdefault((name, self._splits.index(split)), []).append(row)
    for (name, part), found in sorted(rows.items()):
      yield Client(name, part, np.array(found, np.int64), f'{self._path}, client {name}')

  def read(self, client: Client, column: str) -> np.ndarray:
    query = 'SELECT serialized_example_proto FROM examples WHERE rowid = ?'
    with _damage(self._path), self._lock:
      rows = [self._database.execute(query, [row]).fetchone() for row in client.rows.tolist()]
    with _damage(self._path):
      form = {column: self._columns[column]}
      return tf.io.parse_example([proto for [proto] in rows], form)[column].numpy()
