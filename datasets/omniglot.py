"""Omniglot, with the people who drew each alphabet ("drawers") as clients.

Lake, Salakhutdinov, Tenenbaum: Human-level concept learning through probabilistic
program induction, Science 350 (2015). The data set has 1,623 characters of 50 alphabets.
Each of 20 people drew each character once. Drawers are numbered within each alphabet, so
'Greek/07' and 'Latin/07' are two clients.

Each character is a class. Omniglot divides the alphabets into 30 background alphabets with 964
classes, which the model learns, and 20 evaluation alphabets with 659 classes, on which nobody
trains. The first 16 drawers (by default) of each background alphabet are the 480 training
clients. The 3,856 background images by other drawers are the test set for top-1 accuracy. The
13,180 evaluation images are the retrieval set, with labels from 0.

The module reads the drawings from one of two sources. `omniglot_1623.npz` is one file of
packed bits (see `_of_npz`). The official `images_background` and `images_evaluation` are
each a folder or `.zip` of `<Alphabet>/character<NN>/<id>_<drawer>.png`, 105×105 pixels,
black on white. A drawing has the same index in both sources: background drawings come
first, sorted by alphabet and character as strings, and then by drawer.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from datasets.readers import arrays, decode
from tff_xc import errors
from tff_xc.data import partition

if TYPE_CHECKING:
  from tff_xc.data import client_data

SIDE = 105  # The width and height of every drawing, in pixels.
NPZ = 'omniglot_1623.npz'
PARTS = ('images_background', 'images_evaluation')
# The number of drawings that are decoded at a time, which limits memory to 60 MB.
_CHUNK = 1024
_DRAWING = re.compile(r'(?:^|/)([^/]+/character\d+)/\d+_(\d+)\.png$')
_GET_IT = (
  'get images_background.zip and images_evaluation.zip again from '
  'https://github.com/brendenlake/omniglot'
)


class Counts(NamedTuple):
  """The required numbers of classes, of alphabets, and of drawers of each alphabet."""

  background: int = 964
  evaluation: int = 659
  alphabets: int = 50
  drawers: int = 20

  @property
  def images(self) -> int:
    return (self.background + self.evaluation) * self.drawers


OFFICIAL = Counts()
_Found = tuple[list[str], Callable[[np.ndarray], np.ndarray]]


def load(
  data_dir: str | os.PathLike,
  *,
  image_size: int = 28,
  train_drawers: int = 16,
  expected: Counts = OFFICIAL,
) -> 'client_data.FederatedDataset':
  """Loads Omniglot; images are decoded on demand.

  `x` is uint8 [image_size, image_size], 255 for ink and 0 for paper. `image_size` is 1 to
  105. The first `train_drawers` drawers of each background alphabet are the training
  clients, and the images by other drawers are the test set. Raises `errors.InputError` if
  the data are missing, are damaged or do not have the `expected` numbers.
  """
  # `find` does not need these modules.
  import tensorflow as tf

  from tff_xc.data import client_data, pool

  drawers, num_classes = expected.drawers, expected.background
  class_names, read_ink = find(data_dir, expected)
  numbers = np.arange(expected.images)
  labels = (numbers // drawers).astype(np.int32)

  def read(numbers):
    x = np.empty([len(numbers), image_size, image_size], np.uint8)
    for start in range(0, len(numbers), _CHUNK):
      chunk = slice(start, start + _CHUNK)
      x[chunk] = shrink(read_ink(numbers[chunk]), image_size)
    return x

  spec = tf.TensorSpec([image_size, image_size], tf.uint8)
  everything = pool.cached(pool.Pool(labels, spec, read))
  background = labels < num_classes
  first = numbers % drawers < train_drawers
  retrieval = everything.subset(numbers[~background])
  train = numbers[background & first]
  owners = [
    f'{class_names[number // drawers].split("/")[0]}/{number % drawers + 1:02d}' for number in train
  ]
  return client_data.FederatedDataset(
    name='omniglot',
    num_classes=num_classes,
    train=client_data.PartitionedClientData(
      everything.subset(train), partition.of_owners(np.array(owners))
    ),
    test=everything.subset(numbers[background & ~first]),
    retrieval=dataclasses.replace(retrieval, labels=retrieval.labels - num_classes),
  )


def shrink(ink: np.ndarray, size: int) -> np.ndarray:
  """Resizes images, uint8 [k, side, side] with 1 for ink and 0 for paper, by area averaging.

  Returns uint8 [k, size, size]. A new pixel is 255 times the mean of the old pixels that it
  covers. The weight of an old pixel in this mean is the part of its area that the new pixel
  covers (OpenCV's INTER_AREA). In units of 1/size of an old pixel, all weights and sums are whole
  numbers, which float32 represents exactly. So the result depends neither on the machine
  nor on the batches.
  """
  side = ink.shape[-1]
  new, old = np.arange(size)[:, None] * side, np.arange(side) * size
  parts = np.minimum(new + side, old + size) - np.maximum(new, old)
  parts = np.maximum(parts, 0).astype(np.float32)  # [size, side]
  area = (parts @ ink.astype(np.float32) @ parts.T).astype(np.int64)
  return ((255 * area + side * side // 2) // (side * side)).astype(np.uint8)


def find(data_dir: str | os.PathLike, expected: Counts = OFFICIAL) -> _Found:
  """Finds Omniglot in `<data_dir>/omniglot` or `<data_dir>`; decodes nothing.

  The `.npz` has precedence over folders, and folders have precedence over zip files.
  Returns the class names 'Alphabet/characterNN', background first, and a function that
  decodes drawings. The function takes the drawings' indices, int [k], and returns uint8
  [k, 105, 105], with 1 for ink. A drawing's index is class · drawers + drawer − 1. Raises
  the errors of `load`.
  """
  places = [pathlib.Path(data_dir) / 'omniglot', pathlib.Path(data_dir)]
  for place in places:
    if (place / NPZ).is_file():
      return _of_npz(place / NPZ, expected)
  for place in places:
    forms = [(place / part, place / f'{part}.zip') for part in PARTS]
    parts = [[path for path in form if path.exists()] for form in forms]
    if all(parts):
      return _of_pngs([found[0] for found in parts], expected)
  raise errors.InputError(
    f'no Omniglot in {places[0]} or {places[1]}: expected {NPZ}, or '
    f'{PARTS[0]} and {PARTS[1]} as folders or .zip files; {_GET_IT}, '
    'or name another directory with --data_dir'
  )


def _of_npz(path: pathlib.Path, expected: Counts) -> _Found:
  """Reads the file of packed bits, about 45 MB, and keeps the bits packed in memory.

  The file has these arrays: `bits`, uint8 [N, 105, 14], with 1 for ink and each row of
  pixels padded to whole bytes; `label` [N], indices into `class_names`; `drawer` [N], from
  1; and `is_evaluation`, bool [N].
  """
  found = arrays.read(path)
  try:
    bits, names = found['bits'], found['class_names']
    columns = (found[name].tolist() for name in ('is_evaluation', 'label', 'drawer'))
    keys = [(bool(e), str(names[c]), int(d)) for e, c, d in zip(*columns, strict=True)]
    is_sound = (bits.dtype, bits.shape) == (np.uint8, (len(keys), SIDE, 14))
  except (LookupError, ValueError, TypeError):
    is_sound = False
  if not is_sound:
    raise errors.InputError(
      f'{path} is damaged or not an Omniglot file: expected bits, uint8'
      f' [N, {SIDE}, 14], label, drawer and is_evaluation [N], and class_names;'
      f' copy it again, or {_GET_IT}'
    )
  class_names, order = _numbered(path, keys, expected)
  return class_names, lambda numbers: np.unpackbits(bits[order[numbers]], axis=-1, count=SIDE)


def _of_pngs(parts: list[pathlib.Path], expected: Counts) -> _Found:
  """Lists the images of both `PARTS`; reads a PNG file only when its image is used."""
  from datasets.readers import images as store_lib

  keys, places = [], []
  for is_evaluation, part in enumerate(parts):
    store = store_lib.open_store(part)
    for number, name in enumerate(store.names):
      if match := _DRAWING.search(name):
        keys.append((bool(is_evaluation), match[1], int(match[2])))
        places.append((store, number))
  where = f'{parts[0]} and {parts[1]}'
  class_names, order = _numbered(where, keys, expected)

  def read(numbers):
    ink = np.empty([len(numbers), SIDE, SIDE], np.uint8)
    for row, number in zip(ink, order[numbers], strict=True):
      store, place = places[number]
      row[:] = store.used(place, _ink, _GET_IT)
    return ink

  return class_names, read


def _ink(data: bytes) -> np.ndarray:
  """Decodes a PNG to uint8 [105, 105], with 1 for ink."""
  image = decode.rgb(data).convert('L')
  if image.size != (SIDE, SIDE):
    raise ValueError(f'{image.height}×{image.width} pixels, expected {SIDE}×{SIDE}')
  return (np.asarray(image) < 128).astype(np.uint8)


def _numbered(
  source, keys: list[tuple[bool, str, int]], expected: Counts
) -> tuple[list[str], np.ndarray]:
  """Sorts the drawings by their keys (is_evaluation, class name, drawer).

  Returns the class names and, for each drawing in the new order, its index in `keys`, int64
  [N]. Each key must occur exactly once.
  """
  classes = sorted({key[:2] for key in keys})
  evaluation = sum(is_evaluation for is_evaluation, _ in classes)
  alphabets = {name.split('/')[0] for _, name in classes}
  found = len(classes) - evaluation, evaluation, len(alphabets), len(keys)
  order = sorted(range(len(keys)), key=keys.__getitem__)
  wanted = [(*of, drawer) for of in classes for drawer in range(1, expected.drawers + 1)]
  if found != (*expected[:3], expected.images) or [keys[i] for i in order] != wanted:
    say = '{:,} background and {:,} evaluation classes, {} alphabets, {:,} images'.format
    raise errors.InputError(
      f'{source}: found {say(*found)}; expected {say(*expected[:3], expected.images)}, one by each'
      f' of {expected.drawers} drawers; the copy is incomplete or has files that do not belong,'
      f' {_GET_IT}'
    )
  return [name for _, name in classes], np.array(order, np.int64)
