"""Reads CIFAR from a directory that TensorFlow Datasets has prepared."""

import pathlib

import numpy as np

from tff_xc import errors

_BATCH = 1000


def read(path: pathlib.Path, split: str, size: int, side: int):
  """Reads one split, in the official order where the examples carry an id.

  TFDS shuffles the examples. Their ids, 'train_00000' and so on, count in the
  official order. Versions before 3.0.1 have no ids; they keep TFDS's order.

  Args:
    path: the version's directory.
    split: 'train' or 'test'.
    size: the number of images expected.
    side: pixels of an image's side.

  Returns:
    uint8 [size, side, side, 3] and int64 [size].

  Raises:
    errors.InputError: TFDS cannot read it, or it holds something else.
  """
  batches = _batches(path, split)
  arrays = {
    key: np.concatenate([b[key] for b in batches])
    for key in (batches[0] if batches else ())
  }
  shapes = {k: list(v.shape) for k, v in arrays.items()}
  wanted = {'image': [size, side, side, 3], 'label': [size]}
  if any(shapes.get(key) != shape for key, shape in wanted.items()):
    raise errors.InputError(
      f'{path}: split {split} has {shapes or "no examples"}; expected {wanted}:'
      ' prepare it anew with TensorFlow Datasets'
    )
  x, y = arrays['image'], arrays['label'].astype(np.int64)
  if 'id' in arrays:
    order = _official_order(arrays['id'], f'{path}, split {split}')
    x, y = x[order], y[order]
  return x, y


def _batches(path: pathlib.Path, split: str) -> list[dict[str, np.ndarray]]:
  try:
    import tensorflow_datasets as tfds
  except ImportError as e:
    raise errors.InputError(
      f'{path} is read by tensorflow-datasets, which is not installed: run `pip'
      ' install tensorflow-datasets`, or give the official files'
    ) from e
  try:
    builder = tfds.builder_from_directory(path)
    data = builder.as_dataset(split=split, shuffle_files=False)
    return list(tfds.as_numpy(data.batch(_BATCH)))
  except Exception as e:  # TFDS and TensorFlow have no common exception.
    reason = (str(e).strip() or type(e).__name__).split('\n')[0]
    raise errors.InputError(
      f'{path}: TensorFlow Datasets cannot read split {split} ({reason});'
      ' prepare it anew'
    ) from e


def _official_order(ids: np.ndarray, where: str) -> np.ndarray:
  """Returns the images' positions, sorted by the numbers in their ids."""
  ends = [name.decode(errors='replace').rpartition('_')[2] for name in ids]
  numbers = [int(end) if end.isdecimal() else -1 for end in ends]
  order = np.argsort(numbers, kind='stable')
  if not np.array_equal(np.array(numbers)[order], np.arange(len(ids))):
    raise errors.InputError(
      f"{where}: the ids are not 'train_00000', 'train_00001' and so on, once"
      ' each; prepare it anew with TensorFlow Datasets'
    )
  return order
