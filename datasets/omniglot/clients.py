"""Omniglot, with the drawers of each alphabet as clients.

Lake, Salakhutdinov, Tenenbaum: Human-level concept learning through
probabilistic program induction, Science 350 (2015). 1,623 characters of 50
alphabets, each drawn once by 20 people. Drawers are numbered within their
alphabet, so 'Greek/07' and 'Latin/07' are two people.

The 964 background classes are the n classes. The first drawers of each
background alphabet are the training clients (480 with the default 16); the
other drawers' images are the top-1 test (3,856 with the default). The 659
evaluation classes are never trained on. Their 13,180 images are the retrieval
test, with labels of their own from 0 to 658.
"""

import os

import numpy as np
import tensorflow as tf

from datasets.omniglot import files as omniglot_files
from tff_xc import errors
from tff_xc.data import client_data

# Drawings are decoded in chunks of this size, which limits memory to 60 MB.
_CHUNK = 1024


def load(
  data_dir: str | os.PathLike,
  *,
  image_size: int = 28,
  train_drawers: int = 16,
  expected: omniglot_files.Counts = omniglot_files.OFFICIAL,
) -> client_data.FederatedDataset:
  """Loads Omniglot; images are decoded on demand.

  Args:
    data_dir: the directory that holds `omniglot_1623.npz`, or
      `images_background` and `images_evaluation` as folders or zips, or a
      folder `omniglot` with these files.
    image_size: pixels of an image's side, 1 to 105.
    train_drawers: the number of drawers of each alphabet that train; the other
      drawers are for the test.
    expected: the counts that the files must have.

  Returns:
    The data set; `x` is uint8 [image_size, image_size], ink 255 on 0.

  Raises:
    InputError: a bad argument; data that are missing, damaged or incomplete.
  """
  if not 1 <= image_size <= omniglot_files.SIDE:
    raise errors.InputError(
      f'image_size is {image_size}; Omniglot takes 1 to {omniglot_files.SIDE}'
    )
  if not 1 <= train_drawers < expected.drawers:
    raise errors.InputError(
      f'train_drawers is {train_drawers}; Omniglot has {expected.drawers} '
      f'drawers of each alphabet, take 1 to {expected.drawers - 1}'
    )
  drawings = omniglot_files.find(data_dir, expected)
  num_classes, drawers = expected.background, expected.drawers

  def test() -> client_data.Examples:
    numbers = np.arange(num_classes * drawers)
    numbers = numbers[numbers % drawers >= train_drawers]
    return _examples(drawings, numbers, image_size)

  def retrieval() -> client_data.Examples:
    numbers = np.arange(num_classes * drawers, expected.images)
    x, y = _examples(drawings, numbers, image_size)
    return client_data.Examples(x, y - num_classes)

  return client_data.FederatedDataset(
    name='omniglot',
    num_classes=num_classes,
    train=Drawers(drawings, train_drawers, image_size),
    test=test,
    retrieval=retrieval,
  )


class Drawers(client_data.LabelledClientData):
  """The first drawers of each background alphabet, one client each."""

  def __init__(
    self,
    drawings: omniglot_files.Drawings,
    train_drawers: int,
    image_size: int,
  ):
    self._drawings = drawings
    self._image_size = image_size
    alphabets = {}
    for label in range(drawings.counts.background):
      alphabet = drawings.class_names[label].split('/')[0]
      alphabets.setdefault(alphabet, []).append(label)
    self._numbers = {
      f'{alphabet}/{drawer:02d}': np.array(labels) * drawings.counts.drawers
      + drawer
      - 1
      for alphabet, labels in alphabets.items()
      for drawer in range(1, train_drawers + 1)
    }
    super().__init__(
      list(self._numbers), tf.TensorSpec([image_size, image_size], tf.uint8)
    )

  def labels(self, client_id: str) -> np.ndarray:
    return _labels(self._drawings, self._numbers[client_id])

  def examples(self, client_id: str) -> client_data.Examples:
    return _examples(self._drawings, self._numbers[client_id], self._image_size)


def _labels(
  drawings: omniglot_files.Drawings, numbers: np.ndarray
) -> np.ndarray:
  return (numbers // drawings.counts.drawers).astype(np.int32)


def _examples(
  drawings: omniglot_files.Drawings, numbers: np.ndarray, image_size: int
) -> client_data.Examples:
  """Decodes, shrinks and labels some drawings."""
  x = np.empty([len(numbers), image_size, image_size], np.uint8)
  for start in range(0, len(numbers), _CHUNK):
    chunk = slice(start, start + _CHUNK)
    x[chunk] = shrink(drawings.read(numbers[chunk]), image_size)
  return client_data.Examples(x, _labels(drawings, numbers))


def shrink(ink: np.ndarray, size: int) -> np.ndarray:
  """Resizes by area averaging, exactly.

  A new pixel is the mean of the area of the old image that it covers. An old
  pixel at its border counts with its covered part (OpenCV calls this
  INTER_AREA). In units of 1/size of an old pixel these parts are whole numbers,
  and so are all sums below, which float32 holds exactly. The result therefore
  depends neither on the machine nor on the batches.

  Args:
    ink: uint8 [k, side, side] of 0 and 1.
    size: the new side, at most the old.

  Returns:
    uint8 [k, size, size]: 255 times the share of ink, rounded.
  """
  side = ink.shape[-1]
  new, old = np.arange(size)[:, None] * side, np.arange(side) * size
  parts = np.minimum(new + side, old + size) - np.maximum(new, old)
  parts = np.maximum(parts, 0).astype(np.float32)  # [size, side]
  area = (parts @ ink.astype(np.float32) @ parts.T).astype(np.int64)
  return ((255 * area + side * side // 2) // (side * side)).astype(np.uint8)
