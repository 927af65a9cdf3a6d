"""CelebA: who smiles, with celebrities as clients.

LEAF's set has 9,343 celebrities of at least 5 images each, 200,288 images of
two classes: not smiling, smiling. Its JSON names the images; they lie in
`img_align_celeba`, a folder or a zip.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image

from datasets.images import decode
from datasets.images import store as store_lib
from datasets.leaf import files as leaf_files
from datasets.leaf import users as leaf_users
from datasets.splits import listing as listing_lib
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import pool as pool_lib

NUM_CLASSES = 2
SIDE = 84
_IMAGES = 'img_align_celeba'
_LONGEST_NAME = 64  # bytes
# LEAF's preprocessing leaves out celebrities with fewer images (-k 5).
_LEAST = 5
# The images of LEAF's test, which are evaluated in every round, fit.
CACHE = 2**29
_GET_IT = (
  'get img_align_celeba.zip from '
  'https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html'
)


class Files(NamedTuple):
  """LEAF's JSON files, and the folder or zip of the images."""

  json: leaf_files.Files
  images: pathlib.Path


def find(data_dir: str | os.PathLike) -> Files:
  """Finds the JSON and the images; opens neither.

  Raises:
    errors.InputError: one of them is missing.
  """
  found = leaf_files.find('celeba', data_dir)
  for place in leaf_files.places('celeba', data_dir):
    for folder in (place, place / 'raw'):
      inner = folder / _IMAGES / _IMAGES  # As some archives unpack.
      for images in (inner, folder / _IMAGES, folder / f'{_IMAGES}.zip'):
        if images.is_dir() or (images.suffix and images.is_file()):
          return Files(found, images)
  raise errors.InputError(
    f'no images beside {found.folder}: expected {_IMAGES} or {_IMAGES}.zip in '
    f'a folder celeba of {data_dir}, or in its data/raw; {_GET_IT}'
  )


def load(
  data_dir: str | os.PathLike,
  *,
  min_examples: int = 8,
  test_examples: int = 0,
) -> client_data.FederatedDataset:
  """Loads CelebA from LEAF's JSON; an image is decoded when it is used.

  A damaged image raises `errors.InputError` then.

  Args:
    data_dir: the directory of all data, see `find`.
    min_examples: users with fewer examples are dropped, see
      `leaf_users.federated`.
    test_examples: the size of a sample of the test; 0: all of it.

  Returns:
    The data set; `x` is uint8 [84, 84, 3], as LEAF resizes images (bicubic).

  Raises:
    errors.InputError: files are missing or malformed, an image is missing, or
      no user remains.
  """
  found = find(data_dir)
  users, arrays = leaf_users.read_json(data_dir, found.json, 'celeba', _parse)
  store = store_lib.open_store(found.images)
  places = _places(arrays['x'], store, found)
  return leaf_users.federated(
    'celeba',
    NUM_CLASSES,
    _pool(places, arrays['y'], store),
    users,
    leaf_users.split(users, _LEAST),
    min_examples=min_examples,
    test_examples=test_examples,
    exact=False,  # Decoders of JPEG differ in the last bit.
  )


def _parse(x: list, y: list, where: str) -> dict[str, np.ndarray]:
  for number, name in enumerate(x, 1):
    # An S array drops NULs, and lone surrogates cannot be encoded; neither is
    # printable.
    if (
      type(name) is not str
      or not name.isprintable()
      or not 0 < len(name.encode()) <= _LONGEST_NAME
    ):
      raise errors.InputError(
        f'{where}, example {number}: x is {leaf_users.shown(name)}, expected '
        'the name of an image such as 000001.jpg; mend the file'
      )
  names = np.array([name.encode() for name in x], f'S{_LONGEST_NAME}')
  y = leaf_users.labels(y, NUM_CLASSES, where, kinds=(int, float))
  return {'x': names, 'y': y}


def _places(x: np.ndarray, store: store_lib.Store, found: Files) -> np.ndarray:
  """Returns int64 [N], the images' numbers in the store."""
  ids = listing_lib.texts([[name.decode() for name in x]])
  places = store_lib.find(store, ids)
  missing = sorted(set(ids.take(np.flatnonzero(places < 0))))
  if missing:
    raise errors.InputError(
      f'{found.images}: {len(missing):,} of the {len(x):,} images that '
      f'{found.json.folder} names are missing: '
      f'{", ".join(missing[:3])}{" ..." if len(missing) > 3 else ""}; {_GET_IT}'
    )
  return places


def _pool(places, y, store: store_lib.Store) -> pool_lib.Pool:
  def read(numbers: np.ndarray) -> np.ndarray:
    decoded = np.empty([len(numbers), SIDE, SIDE, 3], np.uint8)
    for row, place in zip(decoded, places[numbers], strict=True):
      row[:] = _decode(store, place)
    return decoded

  spec = tf.TensorSpec([SIDE, SIDE, 3], tf.uint8)
  pool = pool_lib.Pool(
    np.asarray(y), spec, read, files=store.watched(np.asarray(places))
  )
  return pool_lib.cached(pool, CACHE)


def _decode(store: store_lib.Store, place: int) -> np.ndarray:
  """Returns uint8 [84, 84, 3]."""
  try:
    image = decode.rgb(store.read(place))
  except decode.DAMAGE as e:
    raise errors.InputError(
      f'{store.where(place)} is not a readable image{decode.reason(e)}; {_GET_IT}'
    ) from e
  return np.asarray(image.resize((SIDE, SIDE), Image.BICUBIC))
