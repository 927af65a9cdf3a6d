"""FEMNIST: images of digits and letters, with their writers as clients.

LEAF's data set has 3,550 writers and 805,263 images of 62 classes: 0-9, A-Z, a-z.
White is 1.0.

LEAF's code that groups the images by writer duplicates the first image of every writer
except the very first writer. The two copies are consecutive. Papers that use LEAF's files
train with the duplicates. `drop_duplicates` leaves the second copy out.
"""

import contextlib
import os
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from datasets.leaf import files as leaf_files, users as leaf_users
from tff_xc.data import pool

NUM_CLASSES = 62
SIDE = 28
# LEAF's pixels are k / 255.
_LEVELS = (np.arange(256) / 255).astype(np.float32)


class _OtherLevelsError(Exception):
  """A pixel is not k / 255."""


def read(
  data_dir: str | os.PathLike, *, drop_duplicates: bool = False
) -> tuple[pool.Pool, leaf_users.Users]:
  """Reads LEAF's JSON. Images are memory-mapped from the cache."""
  found = leaf_files.find('femnist', data_dir)

  def read_as(convert):
    def parse(x, y, where):
      y = leaf_users.labels(y, NUM_CLASSES, where)
      return {'x': convert(_pixels(x, where)), 'y': y}

    return leaf_users.read_json(data_dir, found, 'femnist', parse)

  arrays = in_fewest_bytes(read_as)
  users = leaf_users.of_arrays(arrays)
  twice = _duplicates(users, arrays['x'], arrays['y'])
  if twice:
    does = 'the second is left out' if drop_duplicates else 'both are kept'
    leaf_users.say(
      f'femnist: {len(twice):,} of {len(users.names):,} writers have their '
      f'first image twice, as LEAF writes it; {does} (--drop_duplicates)'
    )
  if drop_duplicates:
    users = users._replace(left_out=twice)
  return pool_of(arrays), users


def in_fewest_bytes(read_as: Callable) -> Mapping[str, np.ndarray]:
  """Returns `read_as(convert)`, with the smallest dtype that represents all pixels.

  `convert` takes images in [0, 1]. It converts them to uint8 if all pixels of the data set are
  k / 255, and otherwise to float32.
  """
  try:
    return read_as(_levels)
  except _OtherLevelsError:
    return read_as(np.float32)


def pool_of(arrays: Mapping[str, np.ndarray]) -> pool.Pool:
  """Makes a pool of images, float32 [28, 28] in [0, 1], from the arrays of `in_fewest_bytes`."""
  x = arrays['x']
  levels = x.dtype == np.uint8
  return pool.Pool(
    labels=np.asarray(arrays['y']),
    spec=tf.TensorSpec([SIDE, SIDE], tf.float32),
    read=lambda numbers: _LEVELS[x[numbers]] if levels else x[numbers],
  )


def _levels(x: np.ndarray) -> np.ndarray:
  """Converts pixels k / 255 to uint8 k; raises _OtherLevelsError for other pixels."""
  k = np.rint(x * 255).astype(np.uint8)
  if (_LEVELS[k] != x.astype(np.float32)).any():
    raise _OtherLevelsError
  return k


def _duplicates(users: leaf_users.Users, x: np.ndarray, y: np.ndarray) -> list[int]:
  """Returns the indices of second images that equal their user's first image and its label."""
  first = np.asarray(users.starts)[users.sizes >= 2]
  first = first[y[first] == y[first + 1]]
  return [i + 1 for i in first if (x[i] == x[i + 1]).all()]


def _pixels(x: list, where: str) -> np.ndarray:
  """Returns a user's images, float64 [k, 28, 28]."""
  with contextlib.suppress(ValueError):  # The lists have different lengths.
    pixels = np.array(x)
    numbers = pixels.dtype.kind in 'if' and pixels.shape[1:] == (SIDE * SIDE,)
    # NumPy converts true in a list of numbers to 1.
    numbers = numbers and not any(bool in set(map(type, row)) for row in x)
    if numbers and 0 <= pixels.min() <= pixels.max() <= 1:
      return pixels.astype(np.float64).reshape(-1, SIDE, SIDE)
  expected = f'lists of {SIDE * SIDE} numbers from 0 to 1'
  leaf_users.refuse(where, 'x has', x, expected)
