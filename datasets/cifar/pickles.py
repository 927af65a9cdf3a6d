"""Reads a pickle of CIFAR's Python version without running code from it.

A pickle may name any function, and a reader would call it. This reader allows
only the functions that numpy arrays need, and refuses all others.
"""

import io
import pickle

import numpy as np

from tff_xc import errors


def _encode(text: str, encoding: str = 'latin1') -> bytes:
  """Makes bytes from text as Python 3's old pickle protocols store them.

  Such pickles use latin1 only; another encoding is refused.
  """
  if encoding != 'latin1':
    raise pickle.UnpicklingError(f'bytes encoded as {encoding}')
  return text.encode('latin1')


_reconstruct = np.core.multiarray._reconstruct
_ALLOWED = {
  ('numpy.core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy._core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy', 'ndarray'): np.ndarray,
  ('numpy', 'dtype'): np.dtype,
  ('_codecs', 'encode'): _encode,
}


class _ArraysOnly(pickle.Unpickler):
  def find_class(self, module: str, name: str):
    if (module, name) not in _ALLOWED:
      raise pickle.UnpicklingError(f'it calls for {module}.{name}')
    return _ALLOWED[module, name]


def parse(content: bytes, where: str, layout, size: int):
  """Returns the images and labels of one batch file.

  Args:
    content: the pickle.
    where: its path, for the errors.
    layout: a `places.Layout`.
    size: the number of images expected.

  Returns:
    uint8 [size, 3072] and int64 [size].

  Raises:
    errors.InputError: the pickle is damaged, needs any function except those of
      arrays, or has arrays of other shapes or dtypes.
  """
  try:
    batch = _ArraysOnly(io.BytesIO(content), encoding='bytes').load()
  except Exception as e:  # A damaged pickle raises nearly anything.
    reason = ' '.join(str(e).split()) or type(e).__name__
    raise errors.InputError(
      f'{where} is no pickle of plain arrays ({reason}); get the file anew from'
      ' its owners'
    ) from e
  x, y = _entry(batch, 'data', where), _entry(batch, layout.labels_key, where)
  if not (
    isinstance(x, np.ndarray)
    and x.dtype == np.uint8
    and x.shape == (size, 3072)
  ):
    found = type(x).__name__
    if isinstance(x, np.ndarray):
      found = f'{x.dtype} {list(x.shape)}'
    raise errors.InputError(
      f"{where}: 'data' is {found}; expected uint8 {[size, 3072]}: get the file"
      ' anew'
    )
  if not isinstance(y, list) or any(type(label) is not int for label in y):
    raise errors.InputError(
      f'{where}: {layout.labels_key!r} is no list of integers: get the file'
      ' anew'
    )
  if len(y) != size:
    raise errors.InputError(
      f'{where}: {layout.labels_key!r} has {len(y):,} labels; expected'
      f' {size:,}, one for each image: get the file anew'
    )
  return x, np.array(y)


def _entry(batch, key: str, where: str):
  """Returns the entry of a key, which is bytes where Python 2 wrote it."""
  if isinstance(batch, dict):
    for form in (key.encode(), key):
      if form in batch:
        return batch[form]
  raise errors.InputError(
    f'{where} has no entry {key!r}; expected a batch of CIFAR: get the file'
    ' anew'
  )
