"""The user's own data: images, labels and owners as arrays in one `.npz` file.

x       uint8 [N, side, side] or [N, side, side, channels]
y       integers [N], labels in [0, n)
client  integers or strings [N], the client that owns each example
test_x, test_y            optional: held-out examples of the same classes
retrieval_x, retrieval_y  optional: examples of other classes, for MAP

np.savez_compressed('mine.npz', x=x, y=y, client=client)
"""

import os
import pathlib
import zipfile

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import checks
from tff_xc.data import client_data

_SPLITS = ('', 'test_', 'retrieval_')


def load(path: str | os.PathLike) -> client_data.FederatedDataset:
  """Loads a whole file of the form above; n is the largest label plus one.

  Raises:
    errors.InputError: for a file that is missing, damaged, or lacks an array,
      and for arrays of another shape, dtype or range.
  """
  path = pathlib.Path(path)
  arrays = _read(path)
  for split in _SPLITS:
    if f'{split}x' in arrays or f'{split}y' in arrays or not split:
      _check_examples(path, arrays, split)
  owners = _required(path, arrays, 'client')
  if owners.shape != arrays['y'].shape:
    raise errors.InputError(
      f'{path}: client has shape {list(owners.shape)} and y'
      f' {list(arrays["y"].shape)}; give one client for each example'
    )
  num_classes = int(arrays['y'].max()) + 1
  if num_classes < 2:
    raise errors.InputError(
      f'{path}: y holds one class only; give labels of at least two classes'
    )
  if 'test_y' in arrays:
    checks.check_labels(arrays['test_y'], num_classes, f'{path}, test_y')
  return client_data.FederatedDataset(
    name=path.stem,
    num_classes=num_classes,
    train=Owners(arrays['x'], arrays['y'], owners),
    test=_split(arrays, 'test_'),
    retrieval=_split(arrays, 'retrieval_'),
  )


class Owners(client_data.LabelledClientData):
  """Examples in memory, grouped by their owner."""

  def __init__(self, x: np.ndarray, y: np.ndarray, owners: np.ndarray):
    """Args: x [N, ...], y int [N], and the owner of each, [N]."""
    names, group = np.unique(owners, return_inverse=True)
    order = np.argsort(group, kind='stable')
    ends = np.cumsum(np.bincount(group))
    self._examples = {
      str(name): order[end - count : end]
      for name, end, count in zip(names, ends, np.bincount(group), strict=True)
    }
    self._x, self._y = x, y.astype(np.int32)
    super().__init__(
      list(self._examples), tf.TensorSpec(x.shape[1:], tf.as_dtype(x.dtype))
    )

  def labels(self, client_id: str) -> np.ndarray:
    return self._y[self._examples[client_id]]

  def examples(self, client_id: str) -> client_data.Examples:
    numbers = self._examples[client_id]
    return client_data.Examples(self._x[numbers], self._y[numbers])


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
  if not path.is_file():
    raise errors.InputError(
      f'{path} is no file; give the .npz of your data, with arrays x, y, client'
    )
  try:
    with np.load(path, allow_pickle=False) as file:
      return {name: file[name] for name in file.files}
  except (
    ValueError,
    OSError,
    EOFError,
    zipfile.BadZipFile,
    AttributeError,
  ) as e:
    raise errors.InputError(
      f'{path} is no .npz of plain arrays ({e}); write it with np.savez'
    ) from e


def _required(path, arrays, name: str) -> np.ndarray:
  if name not in arrays:
    found = ', '.join(sorted(arrays)) or 'nothing'
    raise errors.InputError(
      f'{path} has no array {name!r} (it has {found}); add it'
    )
  return arrays[name]


def _check_examples(path, arrays, split: str) -> None:
  x, y = (_required(path, arrays, f'{split}{name}') for name in 'xy')
  shape = list(x.shape)
  if x.dtype != np.uint8 or x.ndim not in (3, 4) or shape[1] != shape[2]:
    raise errors.InputError(
      f'{path}: {split}x is {x.dtype} {shape}; expected square uint8 images,'
      ' [N, side, side] or [N, side, side, channels]'
    )
  if shape[1:] != list(arrays['x'].shape[1:]):
    raise errors.InputError(
      f'{path}: {split}x has images {shape[1:]} and x'
      f' {list(arrays["x"].shape[1:])}; make them alike'
    )
  if not np.issubdtype(y.dtype, np.integer) or y.shape != (len(x),):
    raise errors.InputError(
      f'{path}: {split}y is {y.dtype} {list(y.shape)}; expected {len(x)}'
      ' integers, one label for each image'
    )
  if not len(y) or y.min() < 0:
    raise errors.InputError(
      f'{path}: {split}y is empty or has labels below 0; labels start at 0'
    )


def _split(arrays, split: str):
  if f'{split}x' not in arrays:
    return None
  y = arrays[f'{split}y'].astype(np.int32)
  return lambda: client_data.Examples(arrays[f'{split}x'], y)
