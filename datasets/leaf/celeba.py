"""CelebA, with celebrities as clients. The model predicts whether a person smiles.

LEAF's data set has 9,343 celebrities with at least 5 images each. Its 200,288 images have
two classes: not smiling and smiling. LEAF's JSON has the names of the images. The images
are in `img_align_celeba`, a folder or a zip.
"""

import os

import numpy as np

from datasets import examples as examples_lib, photographs
from datasets.leaf import files as leaf_files, users as leaf_users
from datasets.readers import decode, images as store_lib
from tff_xc import errors
from tff_xc.data import pool as pool_lib

NUM_CLASSES = 2
SIDE = 84
_LONGEST_NAME = 64  # bytes
# LEAF's preprocessing leaves out celebrities with fewer images (-k 5).
LEAST = 5


def read(data_dir: str | os.PathLike) -> tuple[pool_lib.Pool, leaf_users.Users]:
  """Reads LEAF's JSON. Images are decoded when they are used."""
  files, images = leaf_files.find_celeba(data_dir)
  arrays = leaf_users.read_json(data_dir, files, 'celeba', _parse)
  store = store_lib.open_store(images)
  ids = examples_lib.texts([[name.decode() for name in arrays['x']]])
  places = store_lib.find(store, ids)
  if missing := sorted(set(ids.take(np.flatnonzero(places < 0)))):
    raise errors.InputError(
      f'{images}: {len(missing):,} of the {len(ids):,} images that '
      f'{files.folder} names are missing: '
      f'{", ".join(missing[:3])}{" ..." if len(missing) > 3 else ""}; '
      f'{leaf_files.GET_PHOTOGRAPHS}'
    )
  pool = photographs.pool_of(
    store,
    places,
    np.asarray(arrays['y']),
    [SIDE, SIDE, 3],
    lambda content: decode.fit(content, SIDE, SIDE, 'stretch'),
    leaf_files.GET_PHOTOGRAPHS,
  )
  return pool, leaf_users.of_arrays(arrays)


def _parse(x: list, y: list, where: str) -> dict[str, np.ndarray]:
  for name in x:
    # `isprintable` also refuses NULs, which NumPy's dtype S drops, and lone surrogates, which
    # cannot be encoded.
    if (
      type(name) is not str or not name.isprintable() or not 0 < len(name.encode()) <= _LONGEST_NAME
    ):
      expected = 'the name of an image such as 000001.jpg'
      leaf_users.refuse(where, 'x has', name, expected)
  names = np.array([name.encode() for name in x], f'S{_LONGEST_NAME}')
  return {'x': names, 'y': leaf_users.labels(y, NUM_CLASSES, where, 'iuf')}
