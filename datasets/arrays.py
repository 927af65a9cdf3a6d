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

from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool

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
    errors.check_labels(arrays['test_y'], num_classes, f'{path}, test_y')
  return client_data.FederatedDataset(
    name=path.stem,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(
      _pool(arrays, ''), partition.of_owners(owners)
    ),
    test=_pool(arrays, 'test_'),
    retrieval=_pool(arrays, 'retrieval_'),
  )


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


def _pool(arrays, split: str) -> pool.Pool | None:
  if f'{split}x' not in arrays:
    return None
  return pool.in_memory(arrays[f'{split}x'], arrays[f'{split}y'])
