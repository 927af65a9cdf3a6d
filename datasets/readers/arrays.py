"""Reads the user's own data from one `.npz` file with these arrays:

x       images, uint8 [N, height, width] or [N, height, width, channels];
        or features, numbers [N, D]
y       integers [N], labels in [0, n)
client  integers or strings [N], the client that owns each example; optional if a
        split assigns examples to clients (`splits.deal`)
test_x, test_y            optional: test examples of the same classes
retrieval_x, retrieval_y  optional: examples of other classes, for mean average
                          precision (MAP)

np.savez_compressed('mine.npz', x=x, y=y, client=client)
"""

import dataclasses
import os
from collections.abc import Container, Iterator, Mapping

import numpy as np

from datasets import examples as examples_lib
from tff_xc import errors, memory

Arrays = Mapping[str, np.ndarray]
# The prefixes of the names of training, test and retrieval arrays.
PARTS = ('', 'test_', 'retrieval_')
# The number of rows that are processed at a time.
ROWS = 1 << 14


def read(path: str | os.PathLike, names: Container[str] | None = None) -> dict[str, np.ndarray]:
  """Reads those of the arrays `names` that the file has; None: all arrays.

  Raises `errors.InputError` if the file is not a .npz, is damaged, contains Python objects,
  or unpacks to more than the free memory.
  """
  if not os.path.isfile(path):  # Reading from a pipe would wait for a writer.
    raise errors.InputError(
      f'{path} is no file; give the .npz of your data, with arrays x, y, client'
    )
  try:
    # With `mmap_mode`, NumPy does not read the content of a .npy file, which is refused below.
    file = np.load(path, mmap_mode='r', allow_pickle=False)
    if isinstance(file, np.ndarray):
      raise ValueError('it is one array without a name')
    with file:
      wanted = [n for n in file.files if names is None or n in names]
      memory.require_arrays(file.zip, wanted, f'{path}', 'give smaller arrays')
      return {name: file[name] for name in wanted}
  except errors.InputError:
    raise
  except Exception as e:  # NumPy raises errors of many types for a damaged or hostile file.
    raise errors.InputError(
      f'{path} is no .npz of plain arrays ({e}); write it with np.savez'
    ) from e


def present(arrays: Arrays) -> list[str]:
  """Returns those of `PARTS` for which the file has arrays, and always '' for training."""
  return [part for part in PARTS if not part or {f'{part}x', f'{part}y'} & set(arrays)]


def examples(
  path: str | os.PathLike, arrays: Arrays, class_names: list[str] | None = None
) -> examples_lib.Examples:
  """Returns the training examples of y and the test examples of test_y.

  `class_names` come from `listed`. Raises `errors.InputError` if labels are not whole
  numbers from 0, or clients are not whole numbers or strings.
  """
  labels = [
    _labels(path, name, arrays.get(name))
    for name in ('y', 'test_y')
    if name == 'y' or name in arrays
  ]
  num_classes = len(class_names or ()) or max(int(y.max()) for y in labels) + 1
  found = examples_lib.of_parts(*(examples_lib.of_labels(y, num_classes) for y in labels))
  if class_names:
    found = dataclasses.replace(found, class_names=class_names)
  if 'client' not in arrays:
    return found
  users = np.full(len(found), -1, np.int32)
  users[: len(labels[0])], names = _owners(path, arrays['client'], labels[0].shape)
  return dataclasses.replace(found, users=users, user_names=names)


def _labels(path: str | os.PathLike, name: str, y: np.ndarray | None) -> np.ndarray:
  """Returns labels int32 [N]; raises InputError if they are missing or wrong."""
  if y is None:
    raise errors.InputError(f'{path} has no array {name!r}; add the labels')
  if y.dtype.kind not in 'iu' or y.ndim != 1 or not y.size or y.min() < 0:
    raise errors.InputError(
      f'{path}: {name} is {y.dtype} {list(y.shape)}; expected whole numbers from 0,'
      ' one label for each example'
    )
  examples_lib.check_classes(int(y.max()) + 1, f'{path}: {name}')
  return y.astype(np.int32)


def _owners(
  path: str | os.PathLike, client: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, list[str]]:
  """Returns each example's client, int32 [N], and the sorted names of the clients.

  The first result has indices into the names. `client` has strings or whole numbers, which
  may be floats such as 2.0. `shape` is the shape of the labels.
  """
  if client.dtype.kind == 'f' and (np.abs(client) < 2**53).all():
    whole = client.astype(np.int64)
    client = whole if (whole == client).all() else client
  names, codes = np.unique(client, return_inverse=True)
  names = list(map(str, names))
  bad = [name for name in names if not name or name != name.strip()]
  if client.shape != shape or client.dtype.kind not in 'biuU' or bad:
    found = f'the client {bad[0]!r}' if bad else f'clients as {client.dtype} {list(client.shape)}'
    raise errors.InputError(
      f'{path} has {found}; expected {list(shape)} whole numbers, or text that neither is empty'
      ' nor begins or ends with a space'
    )
  return codes.astype(np.int32), names


def read_checked(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads a file, and checks the labels and the shapes of all arrays x and y."""
  arrays = read(path)
  for part in present(arrays):
    x, y = arrays.get(f'{part}x'), _labels(path, f'{part}y', arrays.get(f'{part}y'))
    if x is None or x.shape[:1] != y.shape or x.shape[1:] != arrays['x'].shape[1:]:
      raise errors.InputError(
        f'{path}: {part}x is {"missing" if x is None else list(x.shape)}; expected'
        f' {len(y):,} examples, as many as {part}y has labels, each of the shape of those of x'
      )
  cure = 'give labels of at least two classes'
  examples_lib.require_two(int(arrays['y'].max()) + 1, f'{path}: y', cure)
  return arrays


def read_images(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads a file of images with `read_checked`; raises InputError for other arrays."""
  arrays = read_checked(path)
  for part in present(arrays):
    x = arrays[f'{part}x']
    if x.ndim not in (3, 4) or not all(x.shape[1:]):
      raise errors.InputError(
        f'{path}: {part}x is {x.dtype} {list(x.shape)}; expected images [N, height,'
        ' width] or [N, height, width, channels]; rows of features are --task=table'
      )
    if x.dtype != np.uint8:
      raise errors.InputError(
        f'{path}: {part}x is {x.dtype}; expected uint8, 0 to 255: of pixels from 0 to 1 write'
        " (255 * x).round().astype('uint8'), of 16 bits (x >> 8).astype('uint8')"
      )
  return arrays


def read_features(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads rows of finite numbers with `read_checked`; raises InputError for other arrays."""
  arrays = read_checked(path)
  for part in present(arrays):
    _check_features(f'{path}: {part}x', arrays[f'{part}x'])
  return arrays


def _check_features(what: str, x: np.ndarray) -> None:
  """Raises InputError unless `x`, which errors call `what`, has finite numbers [N, D]."""
  if x.ndim != 2 or not x.shape[1] or x.dtype.kind not in 'fiub':
    raise errors.InputError(
      f'{what} is {x.dtype} {list(x.shape)}; expected numbers [N, D], a row of D'
      ' features for each example; images are --task=images'
    )
  for start in range(0, len(x), ROWS):
    block = x[start : start + ROWS].astype(np.float64)
    bad = np.argwhere(~(np.abs(block) <= np.finfo(np.float32).max))
    if len(bad):
      row, column = bad[0]
      raise errors.InputError(
        f'{what}[{start + row}, {column}] is {block[row, column]}; expected'
        ' finite numbers: mend it, or leave the row out'
      )


def blocks(path: str | os.PathLike, width: int, size: int) -> Iterator[examples_lib.Block]:
  """Yields the rows x [N, `width`] for a trained model, and the labels y [N] if there are any.

  The columns must have the order of the training data.
  """
  arrays = read(path, ('x', 'y'))
  x = arrays.get('x')
  if x is None:
    raise errors.InputError(f'{path} has no array x; add the rows, [N, {width}]')
  _check_features(f'{path}: x', x)
  if x.shape[1] != width:
    raise errors.InputError(f'{path} has {x.shape[1]} features, and the model takes {width}')
  labels = None
  if 'y' in arrays:
    labels = [(str(label),) for label in _labels(path, 'y', arrays['y'])]
    if len(labels) != len(x):
      raise errors.InputError(f'{path} has {len(labels):,} labels y of {len(x):,} rows x')
  for start in range(0, len(x), size):
    part = slice(start, start + size)
    rows = x[part].astype(np.float64)
    names = [str(index) for index in range(start, start + len(rows))]
    yield examples_lib.Block(names, (rows,), labels and labels[part])


def listed(arrays: dict[str, np.ndarray], file: str) -> list[str] | None:
  """Renumbers the labels in place, in the order of the class names in `file`.

  Returns the names, or None if `file` is ''.
  """
  if not file:
    return None
  parts = [part for part in ('y', 'test_y') if part in arrays]
  there = np.unique(np.concatenate([arrays[part] for part in parts]))
  places, names = examples_lib.listed(list(map(str, there.tolist())), file)
  for part in parts:
    arrays[part] = places[np.searchsorted(there, arrays[part])]
  return names
