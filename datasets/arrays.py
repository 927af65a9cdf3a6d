"""One's own data as arrays in one `.npz` file.

x       images, uint8 [N, height, width] or [N, height, width, channels];
        or features, numbers [N, D] (`datasets.features`)
y       integers [N], labels in [0, n)
client  integers or strings [N], the client that owns each example; it may be
        absent where a split makes the clients (`splits.own`)
test_x, test_y            optional: held-out examples of the same classes
retrieval_x, retrieval_y  optional: examples of other classes, for MAP

np.savez_compressed('mine.npz', x=x, y=y, client=client)
"""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from datasets import examples as examples_lib, npz
from datasets.images import decode
from datasets.splits import own
from tff_xc import errors
from tff_xc.data import client_data, pool

Arrays = Mapping[str, np.ndarray]
# What the names of a part's arrays begin with.
PARTS = ('', 'test_', 'retrieval_')
# What to do about pixels of another kind of dtype.
_TO_UINT8 = {
  'f': "of pixels from 0 to 1 write (255 * x).round().astype('uint8')",
  'u': "of 16 bits write (x >> 8).astype('uint8')",
  'i': "write x.astype('uint8') if they are from 0 to 255",
}


def load(
  path: str | os.PathLike, choice: own.Choice = own.USERS, *, side: int = 0
) -> client_data.FederatedDataset:
  """Loads a file of images; n is the largest label plus one.

  Images that are not squares of `side` pixels are scaled and cropped as
  `decode.square` does; 0: the shorter side of the images. Raises
  `errors.InputError` for a file that is missing or damaged, lacks an array, or
  has one of another shape, dtype or range.
  """
  path = pathlib.Path(path)
  arrays = read_images(path)
  shape = arrays['x'].shape[1:3]
  side = side or min(shape)
  if shape != (side, side):
    for part in present(arrays):
      images = [decode.fitted_array(x, side) for x in arrays[f'{part}x']]
      arrays[f'{part}x'] = np.stack(images)
  names = listed(arrays, choice.classes)
  found = parts(path, arrays, choice, names)
  if 'test_y' in arrays:
    kept = own.sampled(np.arange(len(arrays['test_y'])), choice, str(path))
    for name in ('test_x', 'test_y'):
      arrays[name] = arrays[name][kept]
  return federated(path.stem, arrays, found, class_names=names)


def read_images(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads a file of images and checks it, as `load`."""
  arrays = read(path)
  for part in present(arrays):
    x = arrays[f'{part}x']
    if x.ndim not in (3, 4) or not all(x.shape[1:]):
      raise errors.InputError(
        f'{path}: {part}x is {x.dtype} {list(x.shape)}; expected images [N, height,'
        ' width] or [N, height, width, channels]; rows of features are --task=table'
      )
    if x.dtype != np.uint8:
      how = _TO_UINT8.get(x.dtype.kind, 'give pixels from 0 to 255')
      raise errors.InputError(f'{path}: {part}x is {x.dtype}; expected uint8, 0 to 255: {how}')
  return arrays


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads a file and checks all but the form of the examples, as `load`."""
  arrays = npz.read(path)
  for part in present(arrays):
    x, y = arrays.get(f'{part}x'), arrays.get(f'{part}y')
    npz.labels(path, f'{part}y', y)
    if x is None or x.shape[:1] != y.shape:
      raise errors.InputError(
        f'{path}: {part}x is {"missing" if x is None else list(x.shape)}; expected'
        f' {len(y):,} examples, as many as {part}y has labels'
      )
    if x.shape[1:] != arrays['x'].shape[1:]:
      raise errors.InputError(
        f'{path}: {part}x has examples {list(x.shape[1:])} and x'
        f' {list(arrays["x"].shape[1:])}; make them alike'
      )
  y = arrays['y']
  if 'client' in arrays:
    npz.owners(path, arrays['client'], y.shape)
  num_classes = int(y.max()) + 1
  cure = 'give labels of at least two classes'
  examples_lib.require_two(num_classes, f'{path}: y', cure)
  return arrays


def present(arrays: Arrays) -> list[str]:
  """Returns the parts that there are, and the training part in any case."""

  def there(part):
    return {f'{part}x', f'{part}y'} & set(arrays)

  return [part for part in PARTS if there(part) or not part]


def listed(arrays: dict[str, np.ndarray], file: str) -> list[str] | None:
  """Numbers labels, in place, as a file lists them; returns its names, or None of ''."""
  if not file:
    return None
  parts_ = [part for part in ('y', 'test_y') if part in arrays]
  there = np.unique(np.concatenate([arrays[part] for part in parts_]))
  places, names = examples_lib.listed(list(map(str, there.tolist())), file)
  for part in parts_:
    arrays[part] = places[np.searchsorted(there, arrays[part])]
  return names


def parts(
  path: pathlib.Path, arrays: Arrays, choice: own.Choice, class_names: list[str] | None = None
) -> own.Parts:
  """Returns the clients and the test among x; None if it has arrays of its own.

  `class_names` default to the labels.
  """
  y, users, names = arrays['y'], None, ()
  if 'client' in arrays:
    users, names = npz.owners(path, arrays['client'], y.shape)
  data = examples_lib.Examples(
    labels=y,
    class_names=class_names or list(map(str, range(int(y.max()) + 1))),
    ids=range(len(y)),
    users=users,
    user_names=names,
    test=np.zeros(0, np.int64) if 'test_y' in arrays else None,
  )
  found = own.parts(data, choice, str(path), 'add an array client, or ')
  return own.Parts(found.clients) if 'test_y' in arrays else found


def federated(name: str, arrays: Arrays, found: own.Parts, **more) -> client_data.FederatedDataset:
  """Returns the data set of checked arrays and `parts`, with further attributes."""
  train, test, retrieval = (
    pool.in_memory(arrays[f'{part}x'], arrays[f'{part}y']) if f'{part}x' in arrays else None
    for part in PARTS
  )
  names = more.get('class_names')
  num_classes = int(arrays['y'].max()) + 1 if names is None else len(names)
  if 'test_y' in arrays:
    errors.check_labels(arrays['test_y'], num_classes, f'{name}, test_y')
  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(train, found.clients),
    test=test if found.test is None else train.subset(found.test),
    retrieval=retrieval,
    held_out=found.held_out,
    **more,
  )
