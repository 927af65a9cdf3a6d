"""Writes small data sets in the file formats that TFF distributes: HDF5 and SQLite."""

import sqlite3

import h5py
import numpy as np
import tensorflow as tf

# split ('train' or 'test') -> client -> column -> array [k, ...]
SPLITS = {
  'emnist': {'train': 'all_train', 'test': 'all_test'},
  'celeba': {'train': 'split_by_clients_train', 'test': 'split_by_clients_test'},
  'shakespeare': {'train': 'train', 'test': 'test'},
}
PREFIX = {'emnist': 'fed_emnist'}
STEM = {'emnist': 'emnist_all'}


def write_hdf5(folder, name, content):
  for split, clients in content.items():
    path = folder / f'{PREFIX.get(name, name)}_{split}.h5'
    with h5py.File(path, 'w') as file:
      for client, columns in clients.items():
        for column, values in columns.items():
          file[f'examples/{client}/{column}'] = values


def write_sqlite(folder, name, content):
  path = folder / f'{STEM.get(name, name)}.sqlite'
  with sqlite3.connect(path) as database:
    database.execute(
      'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL,'
      ' serialized_example_proto BLOB NOT NULL)'
    )
    rows = [
      (SPLITS[name][split], client, _proto(columns, i))
      for split, clients in content.items()
      for client, columns in clients.items()
      for i in range(len(next(iter(columns.values()))))
    ]
    # Examples of another split are ignored.
    rows += [('another', client, proto) for _, client, proto in rows[:3]]
    database.executemany('INSERT INTO examples VALUES (?, ?, ?)', rows)
  database.close()
  return path


WRITERS = {'hdf5': write_hdf5, 'sqlite': write_sqlite}


def _proto(columns, i) -> bytes:
  features = {c: _feature(np.asarray(v[i])) for c, v in columns.items()}
  example = tf.train.Example(features=tf.train.Features(feature=features))
  return example.SerializeToString()


def _feature(value) -> tf.train.Feature:
  flat = value.reshape(-1)
  if value.dtype.kind == 'f':
    return tf.train.Feature(float_list=tf.train.FloatList(value=flat))
  if value.dtype.kind == 'S':
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes(v) for v in flat]))
  return tf.train.Feature(int64_list=tf.train.Int64List(value=flat.astype(np.int64)))
