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

import dataclasses
import os

import numpy as np
import tensorflow as tf

from datasets.omniglot import files as omniglot_files
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool

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
  everything = _pool(drawings, image_size)
  numbers = np.arange(expected.images)
  background = numbers < num_classes * drawers
  first = numbers % drawers < train_drawers
  retrieval = everything.subset(numbers[~background])
  train = numbers[background & first]
  owners = [
    f'{drawings.class_names[number // drawers].split("/")[0]}'
    f'/{number % drawers + 1:02d}'
    for number in train
  ]
  return client_data.FederatedDataset(
    name='omniglot',
    num_classes=num_classes,
    train=client_data.PartitionedClientData(
      everything.subset(train), partition.of_owners(np.array(owners))
    ),
    test=everything.subset(numbers[background & ~first]),
    retrieval=dataclasses.replace(retrieval, y=retrieval.y - num_classes),
  )


def _pool(drawings: omniglot_files.Drawings, image_size: int) -> pool.Pool:
  """Returns all drawings, shrunk, with their characters as labels."""

  def read(numbers):
    x = np.empty([len(numbers), image_size, image_size], np.uint8)
    for start in range(0, len(numbers), _CHUNK):
      chunk = slice(start, start + _CHUNK)
      x[chunk] = shrink(drawings.read(numbers[chunk]), image_size)
    return x

  counts = drawings.counts
  return pool.cached(
    pool.Pool(
      y=np.repeat(np.arange(counts.classes, dtype=np.int32), counts.drawers),
      spec=tf.TensorSpec([image_size, image_size], tf.uint8),
      read=read,
    )
  )


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
