"""FEMNIST: digits and letters, with their writers as clients.

LEAF's set has 3,550 writers and 805,263 images of 62 classes: 0-9, A-Z, a-z.
White is 1.0.

LEAF's grouping by writer puts the first image of every writer but the very
first into the set twice, one after the other. The papers trained on the data
as they are; `drop_duplicates` leaves the second copy out.
"""

import os
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from datasets import parsed_cache
from datasets.leaf import files as leaf_files
from datasets.leaf import users as leaf_users
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import pool

NUM_CLASSES = 62
SIDE = 28
# LEAF's pixels are k / 255.
_LEVELS = (np.arange(256) / 255).astype(np.float32)


class _OtherLevelsError(Exception):
  """A pixel is not k / 255."""


def find(data_dir: str | os.PathLike) -> leaf_files.Files:
  """Finds the JSON files; raises `errors.InputError` if there are none."""
  return leaf_files.find('femnist', data_dir)


def load(
  data_dir: str | os.PathLike,
  *,
  min_examples: int = 64,
  drop_duplicates: bool = False,
  test_examples: int = 0,
) -> client_data.FederatedDataset:
  """Loads FEMNIST from LEAF's JSON; its images are mapped from the cache.

  Args:
    data_dir: the directory of all data, see `leaf_files.find`.
    min_examples: users with fewer examples are dropped, see
      `leaf_users.federated`.
    drop_duplicates: whether to leave out the second of a writer's first two
      images where they and their labels are equal.
    test_examples: the size of a sample of the test; 0: all of it.

  Returns:
    The data set; `x` is float32 [28, 28], ink 0.0 on white 1.0.

  Raises:
    errors.InputError: files are missing or malformed, or no user remains.
  """
  found = find(data_dir)

  def fill(store, convert):
    leaf_users.fill(store, found, lambda *user: _parse(*user, convert))

  source = leaf_users.describe(found)
  arrays = in_fewest_bytes('femnist', data_dir, source, fill)
  users = leaf_users.of_arrays(arrays)
  images = pool_of(arrays['x'], arrays['y'])
  twice = duplicates(users, arrays['x'], arrays['y'])
  if len(twice):
    does = 'the second is' if drop_duplicates else 'both are'
    leaf_users.say(
      f'femnist: {len(twice):,} of {len(users.names):,} writers have their '
      f'first image twice, as LEAF writes it; {does} '
      f'{"left out" if drop_duplicates else "kept"} (--drop_duplicates)'
    )
  return leaf_users.federated(
    'femnist',
    NUM_CLASSES,
    images,
    users,
    leaf_users.split(users),
    min_examples=min_examples,
    test_examples=test_examples,
    left_out=twice if drop_duplicates else None,
  )


def pool_of(x: np.ndarray, y: np.ndarray) -> pool.Pool:
  """Returns a pool of float32 [28, 28] in [0, 1].

  Args:
    x: uint8 k [N, 28, 28] for k / 255, or float32 [N, 28, 28].
    y: int32 [N].
  """
  levels = x.dtype == np.uint8
  return pool.Pool(
    y=np.asarray(y),
    spec=tf.TensorSpec([SIDE, SIDE], tf.float32),
    read=lambda numbers: _LEVELS[x[numbers]] if levels else x[numbers],
  )


def duplicates(
  users: leaf_users.Users, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
  """Returns the numbers of second images that equal the first, int64."""
  first = np.asarray(users.starts)[users.sizes >= 2]
  first = first[y[first] == y[first + 1]]
  same = [i + 1 for i in first if (x[i] == x[i + 1]).all()]
  return np.array(same, np.int64)


def in_fewest_bytes(
  name: str, data: str | os.PathLike, source: Any, fill: Callable
) -> Mapping[str, np.ndarray]:
  """Caches images in bytes, if all pixels are k / 255, or else in float32.

  Args:
    name: of the set.
    data: what names the cache, see `parsed_cache.path`.
    source: as of `parsed_cache.arrays`.
    fill: (store, images in [0, 1] -> images to store) -> None.

  Returns:
    The arrays, as of `parsed_cache.arrays`.
  """
  in_bytes, in_floats = (
    parsed_cache.path(data, f'{name}-{dtype}') for dtype in ('uint8', 'float32')
  )
  # First, or files with other pixels would be parsed in every run to find one.
  if found := parsed_cache.load(in_floats, source):
    return found
  try:
    return parsed_cache.arrays(
      in_bytes, source, lambda store: fill(store, _levels)
    )
  except _OtherLevelsError:
    return parsed_cache.arrays(
      in_floats, source, lambda store: fill(store, np.float32)
    )


def _levels(x: np.ndarray) -> np.ndarray:
  """Returns uint8 k of pixels that are k / 255 in float32."""
  k = np.rint(x * 255).astype(np.uint8)
  if (_LEVELS[k] != x.astype(np.float32)).any():
    raise _OtherLevelsError
  return k


def _parse(x: list, y: list, where: str, convert) -> dict[str, np.ndarray]:
  return {
    'x': convert(_pixels(x, where)),
    'y': leaf_users.labels(y, NUM_CLASSES, where),
  }


def _pixels(x: list, where: str) -> np.ndarray:
  """Returns a user's images, float64 [k, 28, 28].

  Raises:
    errors.InputError: an image is no list of 784 numbers in [0, 1].
  """
  size = SIDE * SIDE
  try:
    pixels = np.array(x)
  except ValueError:  # Lists of several lengths.
    pixels = np.zeros(0)
  numbers = (
    pixels.dtype.kind in 'if'
    and pixels.shape == (len(x), size)
    # NumPy takes true among numbers for 1.
    and not any(bool in set(map(type, image)) for image in x)
  )
  if numbers and 0 <= pixels.min() <= pixels.max() <= 1:
    return pixels.astype(np.float64).reshape(-1, SIDE, SIDE)
  for number, image in enumerate(x, 1):
    if problem := _problem(image, size):
      raise errors.InputError(
        f'{where}, example {number}: {problem}; mend the file'
      )
  raise AssertionError(f'{where}: all images are right one by one.')


def _problem(image, size: int) -> str:
  """Says what is wrong with an image, '' if nothing."""
  if type(image) is not list:
    return f'x is {leaf_users.shown(image)}, expected a list of {size} numbers'
  if len(image) != size:
    return f'x has {len(image)} numbers, expected {size}'
  for place, value in enumerate(image, 1):
    if type(value) not in (int, float) or not 0 <= value <= 1:
      return (
        f'pixel {place} is {leaf_users.shown(value)}, expected a number from 0 '
        'to 1'
      )
  return ''
