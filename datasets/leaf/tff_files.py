"""Reads federated sets in the files that TFF's load_data downloads.

HDF5: `<name>_train.h5` and `<name>_test.h5` with `examples/<client>/<column>`.
SQLite: `<name>.sqlite`, or `.sqlite.lzma`, with the table `examples` of
split_name, client_id and serialized_example_proto, a `tf.train.Example`.
"""

import contextlib
import lzma
import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple
from typing import Protocol

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import hdf5


class Known(NamedTuple):
  """A set as TFF distributes it.

  Attributes:
    hdf5: names before `_train.h5`.
    sqlite: the name before `.sqlite`.
    splits: names of the train and of the test split in SQLite.
    columns: in SQLite, name -> form of `tf.io.parse_example`.
  """

  hdf5: tuple[str, ...]
  sqlite: str
  splits: tuple[str, str]
  columns: Mapping[str, tf.io.FixedLenFeature]


def _column(dtype: tf.DType, *shape: int) -> tf.io.FixedLenFeature:
  return tf.io.FixedLenFeature(shape, dtype)


SETS: Mapping[str, Known] = {
  'emnist': Known(
    ('fed_emnist', 'emnist'),
    'emnist_all',
    ('all_train', 'all_test'),
    {'pixels': _column(tf.float32, 28, 28), 'label': _column(tf.int64)},
  ),
  'celeba': Known(
    ('celeba', 'fed_celeba'),
    'celeba',
    ('split_by_clients_train', 'split_by_clients_test'),
    {'image': _column(tf.int64, 84, 84, 3), 'smiling': _column(tf.int64)},
  ),
  'shakespeare': Known(
    ('shakespeare',),
    'shakespeare',
    ('train', 'test'),
    {'snippets': _column(tf.string)},
  ),
}


class Client(NamedTuple):
  """A client's examples of one split.

  Attributes:
    name: of the client.
    part: 0 train, 1 test.
    rows: int64 [k], where the examples are in the file.
  """

  name: str
  part: int
  rows: np.ndarray


class Source(Protocol):
  """An open set. Both methods raise `errors.InputError` for damaged files."""

  def clients(self) -> Iterator[Client]:
    """Yields the clients, sorted by name and then by part."""

  def read(self, client: Client, column: str) -> np.ndarray:
    """Returns a column of a client's rows, [k, ...]; any thread may call it."""


def find(name: str, data_dir: str | os.PathLike) -> tuple[pathlib.Path, ...]:
  """Returns the HDF5 files of train and test, or the SQLite file.

  Args:
    name: a key of `SETS`.
    data_dir: the directory of all data. Files lie there or in its folder `name`
      or `fed_<name>`.

  Raises:
    errors.InputError: there are none.
  """
  known, root = SETS[name], pathlib.Path(data_dir)
  for place in (root / name, root / f'fed_{name}', root):
    for prefix in known.hdf5:
      paths = tuple(place / f'{prefix}_{p}.h5' for p in ('train', 'test'))
      if all(path.is_file() for path in paths):
        return paths
    for ending in ('.sqlite', '.sqlite.lzma'):
      path = place / f'{known.sqlite}{ending}'
      if path.is_file():
        return (path,)
  raise errors.InputError(
    f'no {name} of TFF in {root} or its folder {name}: expected '
    f'{known.hdf5[0]}_train.h5 and {known.hdf5[0]}_test.h5, or '
    f'{known.sqlite}.sqlite (tff.simulation.datasets.{name}.load_data '
    'downloads it); or name another directory with --data_dir'
  )


@contextlib.contextmanager
def opened(name: str, paths: tuple[pathlib.Path, ...]) -> Iterator[Source]:
  """Opens what `find` found; unpacks `.lzma` into a temporary file."""
  if paths[0].suffix != '.lzma':
    yield open_source(name, paths)
    return
  with tempfile.TemporaryDirectory() as folder:
    unpacked = pathlib.Path(folder) / paths[0].stem
    with (
      _damage(paths[0]),
      lzma.open(paths[0]) as packed,
      unpacked.open('wb') as file,
    ):
      shutil.copyfileobj(packed, file)
    yield open_source(name, (unpacked,))


def open_source(name: str, paths: tuple[pathlib.Path, ...]) -> Source:
  """Opens files that are not packed, and leaves them open."""
  if paths[0].suffix == '.h5':
    return _Hdf5(paths)
  if paths[0].suffix == '.lzma':
    raise errors.InputError(
      f'{paths[0]} is packed, and its examples are read one by one; unpack it '
      f'with: xz --format=lzma --decompress {paths[0].name}'
    )
  return _Sqlite(paths[0], SETS[name])


@contextlib.contextmanager
def _damage(path: pathlib.Path) -> Iterator[None]:
  """Turns what readers raise for damaged files into an InputError."""
  try:
    yield
  except (
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    lzma.LZMAError,
    sqlite3.Error,
    tf.errors.OpError,
  ) as e:
    reason = str(e).splitlines()[0].split(' [Op:')[0]
    raise errors.InputError(
      f'{path} is damaged or has another form ({reason}); download it again'
    ) from e


class _Hdf5:
  """The two files of a set; rows are places in a client's columns."""

  def __init__(self, paths: tuple[pathlib.Path, ...]):
    import h5py

    self._paths, self._parts = paths, []
    for path in paths:
      with _damage(path):
        file = h5py.File(path, 'r')
        hdf5.check(file, path)
        self._parts.append(file['examples'])

  def clients(self) -> Iterator[Client]:
    listed = []
    for part, examples in enumerate(self._parts):
      with _damage(self._paths[part]):
        listed.extend((name, part) for name in examples)
    for name, part in sorted(listed):
      with _damage(self._paths[part]):
        columns = self._parts[part][name].items()
        sizes = {column: len(values) for column, values in columns}
        rows = min(sizes.values())
      if rows < max(sizes.values()):
        raise errors.InputError(
          f'{self._paths[part]}, client {name}: the columns have different '
          f'numbers of rows ({sizes}); download the file again'
        )
      yield Client(name, part, np.arange(rows))

  def read(self, client: Client, column: str) -> np.ndarray:
    with _damage(self._paths[client.part]):
      return self._parts[client.part][client.name][column][()][client.rows]


class _Sqlite:
  """The database of a set; rows are its row numbers."""

  def __init__(self, path: pathlib.Path, known: Known):
    self._path, self._known = path, known
    self._lock = threading.Lock()
    with _damage(path):
      self._database = sqlite3.connect(
        f'{path.resolve().as_uri()}?mode=ro', uri=True, check_same_thread=False
      )

  def clients(self) -> Iterator[Client]:
    with _damage(self._path), self._lock:
      listed = self._database.execute(
        'SELECT client_id, split_name, rowid FROM examples'
        ' WHERE split_name IN (?, ?)',
        self._known.splits,
      ).fetchall()
    rows: dict[tuple[str, int], list[int]] = {}
    for name, split, row in listed:
      if type(name) is not str or '\0' in name:
        raise errors.InputError(
          f'{self._path}, row {row} of the table examples: client_id is '
          f'{name!r}, expected text without NUL; download the file again'
        )
      rows.setdefault((name, self._known.splits.index(split)), []).append(row)
    for (name, part), found in sorted(rows.items()):
      yield Client(name, part, np.array(found, np.int64))

  def read(self, client: Client, column: str) -> np.ndarray:
    with _damage(self._path):
      protos = []
      for row in client.rows.tolist():
        with self._lock:
          [proto] = self._database.execute(
            'SELECT serialized_example_proto FROM examples WHERE rowid = ?',
            [row],
          ).fetchone()
        protos.append(proto)
      form = {column: self._known.columns[column]}
      return tf.io.parse_example(protos, form)[column].numpy()
