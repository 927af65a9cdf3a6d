"""Arrays of a `.npz` file."""

import os
from collections.abc import Container

import numpy as np

from tff_xc import errors, memory


def read(path: str | os.PathLike, names: Container[str] | None = None) -> dict[str, np.ndarray]:
  """Reads the arrays of these names that there are; None: all arrays.

  Raises `errors.InputError` for what is no .npz, is damaged, has Python objects,
  or unpacks to more than the free memory.
  """
  if not os.path.isfile(path):  # A pipe would wait for a writer.
    raise errors.InputError(
      f'{path} is no file; give the .npz of your data, with arrays x, y, client'
    )
  try:
    # One array without a zip is mapped, not read.
    file = np.load(path, mmap_mode='r', allow_pickle=False)
    if isinstance(file, np.ndarray):
      raise ValueError('it is one array without a name')
    with file:
      wanted = [n for n in file.files if names is None or n in names]
      memory.require_arrays(file.zip, wanted, f'{path}', 'give smaller arrays')
      return {name: file[name] for name in wanted}
  except errors.InputError:
    raise
  except Exception as e:  # NumPy raises many types for a damaged or hostile file.
    raise errors.InputError(
      f'{path} is no .npz of plain arrays ({e}); write it with np.savez'
    ) from e


def labels(path: str | os.PathLike, name: str, y: np.ndarray | None) -> np.ndarray:
  """Returns an array of labels; raises InputError if there is none, or it has others."""
  if y is None:
    raise errors.InputError(f'{path} has no array {name!r}; add the labels')
  if y.dtype.kind not in 'iu' or y.ndim != 1 or not y.size or y.min() < 0:
    raise errors.InputError(
      f'{path}: {name} is {y.dtype} {list(y.shape)}; expected whole numbers from 0,'
      ' one label for each example'
    )
  from datasets import examples  # Late: lists of data need no SciPy.

  examples.check_classes(int(y.max()) + 1, f'{path}: {name}')
  return y


def owners(
  path: str | os.PathLike, client: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, list[str]]:
  """Returns int32 [N], places in the clients' names, and these, in their order.

  `client` has text, or whole numbers, of which 2.0 is 2; `shape` is that of the
  labels. Raises `errors.InputError` if there is not one client for each example,
  or it is nothing that names a client.
  """
  if client.shape != shape:
    raise errors.InputError(
      f'{path}: client has shape {list(client.shape)} and y {list(shape)}; give'
      ' one client for each example'
    )
  if client.dtype.kind == 'f' and (np.abs(client) < 2**53).all():
    whole = client.astype(np.int64)
    client = whole if (whole == client).all() else client
  names, codes = np.unique(client, return_inverse=True)
  names = list(map(str, names))
  bad = [name for name in names if not name or name != name.strip()]
  if client.dtype.kind not in 'biuU' or bad:
    found = f'the client {bad[0]!r}' if bad else f'clients as {client.dtype}'
    raise errors.InputError(
      f'{path} has {found}; expected whole numbers, or text that neither is empty'
      ' nor begins or ends with a space'
    )
  return codes.astype(np.int32), names
