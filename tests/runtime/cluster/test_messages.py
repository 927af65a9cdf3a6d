"""What a driver and its workers send each other, as tensors."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.cluster import messages

_TYPES = {'x': tff.TensorType(np.float32, [1024])}


def _aligned(read_only: bool) -> np.ndarray:
  """Returns an array that begins where TensorFlow wants it, as Ray's do."""
  whole = np.arange(1040, dtype=np.float32)
  first = -whole.ctypes.data // whole.itemsize % 16
  found = whole[first : first + 1024]
  found.flags.writeable = not read_only
  return found


@pytest.mark.parametrize('read_only', [False, True])
@pytest.mark.parametrize('borrowed', [False, True])
def test_only_what_is_borrowed_and_never_written_is_shared(borrowed, read_only):
  given = _aligned(read_only)
  tensor = messages.unpack({'x': [given]}, _TYPES, borrowed)['x']
  np.testing.assert_array_equal(tensor, given)
  assert np.shares_memory(np.asarray(tensor), given) == (borrowed and read_only)


@pytest.mark.parametrize(
  'value', [np.float32(3.0), np.array([b'ab', b'c'], object), np.zeros([0, 2])]
)
def test_any_leaf_can_be_borrowed(value):
  array = np.asarray(value)
  array.flags.writeable = False
  (tensor,) = messages.tensors([array], borrowed=True)
  np.testing.assert_array_equal(tensor.numpy(), value)
  assert tensor.dtype == tf.as_dtype(array.dtype)
