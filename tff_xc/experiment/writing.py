"""A run's file that cannot be written is one sentence."""

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

from tff_xc import errors


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
  """Names `path` if the block cannot write it: a full disk, for example.

  Raises:
    errors.InputError: the block raises an error of the file system, Python's or
      TensorFlow's.
  """
  try:
    yield
  except (OSError, tf.errors.OpError) as e:
    why = e.strerror if isinstance(e, OSError) else _of_tensorflow(e.message)
    raise errors.InputError(
      f'{path} cannot be written ({why}); mend that, and the same command goes on'
      ' from the last checkpoint'
    ) from e


def _of_tensorflow(message: str) -> str:
  """Returns what the system said, of 'FILE; WHAT' or of WHAT and more lines."""
  first, *_ = message.splitlines() or ['']
  return first.split('; ')[-1]
