"""Reads the inputs of a trained model in blocks: photographs, tables and text.

A `description.Description` says which kind of input the model takes. Training uses the
same readers. The blocks have the raw numbers, features and characters of the file, because
the model standardizes, hashes and encodes them itself (`tff_xc.predictor`). Labels come
from the folders of images, a column of a table, or the labels of sparse text. Readers
of images, tables and text need memory for one block. A .npz and item histories are read as a
whole.
"""

import array
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from datasets import items, photographs as images
from datasets.examples import Block
from datasets.leaf import shakespeare
from datasets.readers import arrays, images as store_lib, rows, tables, zipped
from datasets.xc import text
from tff_xc import errors
from tff_xc.data import description as description_lib

# The kind of input for models of item histories. An example is a user, and the features
# are the user's last items.
_HISTORIES = 'histories'
# For each kind of input, the noun for an example and the files that a model takes.
_KINDS = {
  description_lib.IMAGES: ('image', 'images: a folder, a .tar, a .zip, or single files'),
  description_lib.ROWS: ('row', f'rows of numbers: {", ".join(tables.FORMS)}, or a .npz with x'),
  description_lib.SPARSE: ('line', 'sparse text: lines of feature:value'),
  description_lib.CHARACTERS: ('line', 'text: lines of characters'),
  _HISTORIES: ('user', f'a table of users and their items: {", ".join(tables.FORMS)}'),
}


class Inputs(NamedTuple):
  """The examples of all input files."""

  noun: str  # The word for an example: 'image', 'row', 'line' or 'user'.
  count: int | None  # The number of examples; None: unknown.
  blocks: Iterator[Block]
  # Returns the pixels of an image. The argument is the image's index among all images of
  # the blocks that were read so far. None: the inputs are not images.
  image: Callable[[int], np.ndarray] | None = None
  most_seen: int = 0  # The largest number of classes excluded from an example's predictions.


def read(
  paths: Sequence[str],
  description: description_lib.Description,
  label_column: str = '',
  size: int = 256,
  corrupt: str = '',
  class_names: Sequence[str] | None = None,
) -> Inputs:
  """Opens the inputs `paths`, which must all be of the kind that the model takes.

  A block has at most `size` examples. `label_column` is the column of labels in a table. If
  it is '', the function uses the label column of the training table, if the table has this
  column. `corrupt` says what happens to images that cannot be read: 'skip' or '' leaves
  them out, and 'fail' raises an error. `class_names` are the items that a model of item
  histories knows. Raises `errors.InputError`, immediately or while blocks are read, if an
  input is missing, is damaged or has the wrong kind.
  """
  kind = _HISTORIES if 'history' in description.preprocessing else description.kind
  noun, takes = _KINDS[kind]
  if not paths:
    raise errors.InputError(f'no input; give {takes}, which the model takes')
  for path in paths:
    _check_kind(path, kind)
  if label_column and kind != description_lib.ROWS:
    raise errors.InputError(
      f'--label_column={label_column}: only rows of numbers have labels in a column; leave it out'
    )
  if corrupt and kind != description_lib.IMAGES:
    raise errors.InputError(f'--corrupt={corrupt}: only images can be left out; leave it out')
  if kind == description_lib.IMAGES:
    return _images(paths, description, size, corrupt == 'fail')
  count, most_seen = None, 0
  if kind == _HISTORIES:
    found = [items.of_model(path, description, class_names) for path in paths]
    count = sum(len(each.user_names) for each in found)
    if description.preprocessing['leave_out_seen']:
      most_seen = max(int(np.bincount(each.users).max(initial=0)) for each in found)
    parts = [items.blocks(each, description, size) for each in found]
  elif kind == description_lib.ROWS:
    if label_column and (found := [path for path in paths if _is_arrays(path)]):
      raise errors.InputError(
        f'--label_column={label_column}: {found[0]} has its labels in y; leave it out'
      )
    [width] = description.shape
    parts = [
      arrays.blocks(path, width, size)
      if _is_arrays(path)
      else rows.blocks(path, description, size, label_column)
      for path in paths
    ]
  else:
    read_one = text.blocks if kind == description_lib.SPARSE else shakespeare.blocks
    parts = [read_one(path, description, size) for path in paths]

  def blocks():
    for path, part in zip(paths, parts, strict=True):
      place, is_empty = os.path.realpath(path), True
      for block in part:
        is_empty = False
        keys = [f'{place}/{name}' for name in block.names]
        names = [f'{path}:{n}' for n in block.names] if len(paths) > 1 else block.names
        yield block._replace(keys=keys, names=names)
      if is_empty:
        raise errors.InputError(f'{path} has no {noun}s; give some')

  return Inputs(noun, count, blocks(), most_seen=most_seen)


def _is_arrays(path: str) -> bool:
  return path.lower().endswith('.npz')


def _check_kind(path: str, wanted: str) -> None:
  """Raises InputError if a path does not exist or seems to be of a kind that is not `wanted`."""
  is_folder = os.path.isdir(path)
  if not is_folder and not zipped.is_file(path):
    raise errors.InputError(f'{path} does not exist; give another file')
  name = pathlib.Path(path).name.lower()
  if is_folder or store_lib.is_images(name):
    fits = wanted == description_lib.IMAGES
  elif tables.form(path):
    fits = wanted in (description_lib.ROWS, _HISTORIES)
  elif _is_arrays(path):
    fits = wanted == description_lib.ROWS
  else:
    fits = wanted in (description_lib.SPARSE, description_lib.CHARACTERS)
  if not fits:
    raise errors.InputError(f'{path} is no input of this model, which takes {_KINDS[wanted][1]}')


def _images(paths, description, size: int, is_strict: bool) -> Inputs:
  if len(description.shape) == 3 and description.shape[2] not in (1, 3):
    raise errors.InputError(
      f'the model takes images of {description.shape[2]} channels, and photographs have 1 or 3'
    )
  stores = list(map(store_lib.open_store, paths))
  total = sum(len(store.names) for store in stores)
  # For each readable image, the index of its store and its index in the store.
  readable = array.array('q'), array.array('q')

  def blocks():
    damaged = []
    for place, (path, store) in enumerate(zip(paths, stores, strict=True)):
      # The name of the user's folder may itself be a class.
      own = [pathlib.Path(path).resolve().name] * os.path.isdir(path)
      for numbers, block in images.blocks(store, description, size, own):
        damaged += block.damaged[:1]
        if is_strict and damaged:
          _, name, why = damaged[0]
          raise errors.InputError(f'{name} is {why}; leave it out, or give --corrupt=skip')
        readable[0].extend([place] * len(numbers))
        readable[1].extend(numbers)
        yield block
    if not readable[0]:
      _, name, why = damaged[0]
      raise errors.InputError(
        f'{name} is {why}, and no other image is readable either; give readable images'
      )

  def image(number: int) -> np.ndarray:
    store = stores[readable[0][number]]
    return images.fitted(store, description, readable[1][number])

  return Inputs('image', total, blocks(), image)
