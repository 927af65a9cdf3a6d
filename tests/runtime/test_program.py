"""`federated_select` in the in-process runtime."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime import client_error

_TABLE = tff.TensorType(np.float32, [6, 2])
_NUMBERS = np.arange(12, dtype=np.float32).reshape(6, 2)
pytestmark = pytest.mark.usefixtures('in_process')


def _together(slices):
  return slices.batch(3).get_single_element()


def _select(function, use=_together):
  @tff.federated_computation(
    tff.FederatedType(_TABLE, tff.SERVER),
    tff.FederatedType(tff.TensorType(np.int32, [3]), tff.CLIENTS),
  )
  def run(table, keys):
    slices = tff.federated_select(
      keys, tff.federated_value(6, tff.SERVER), table, function
    )
    return tff.federated_map(tff.tensorflow.computation(use), slices)

  return run


def _row():
  return tff.tensorflow.computation(lambda t, k: t[k], [_TABLE, np.int32])


def test_select_is_a_gather_in_the_order_of_the_keys():
  keys = [np.array(k, np.int32) for k in ([5, 0, 5], [1, 2, 3])]
  found = _select(_row())(_NUMBERS, keys)
  for each, wanted in zip(found, keys, strict=True):
    np.testing.assert_array_equal(each, _NUMBERS[wanted])
  # TensorFlow converts a function of its own once in a process.
  made = [m for n, m in sys.modules.items() if n.startswith('__autograph_gen')]
  assert made
  assert not [m.__file__ for m in made if pathlib.Path(m.__file__).exists()]


def test_select_by_a_function_that_is_no_lookup():
  @tff.tensorflow.computation(_TABLE, np.int32)
  def row_sums(table, key):
    # The number of steps depends on the key, so this cannot be vectorised.
    return tf.while_loop(
      lambda i, _: i < key, lambda i, s: (i + 1, s + table[i]), [0, table[0]]
    )[1]

  (found,) = _select(row_sums)(_NUMBERS, [np.array([3, 0, 1], np.int32)])
  sums = [_NUMBERS[:k].sum(axis=0) + _NUMBERS[0] for k in (3, 0, 1)]
  np.testing.assert_array_equal(found, sums)


def test_a_key_out_of_range_is_an_error():
  keys = [np.array(k, np.int32) for k in ([0, 1, 2], [0, 6, 1])]
  with pytest.raises(client_error.ClientError, match=r'client 1 .*max_key'):
    _select(_row())(_NUMBERS, keys)


def test_slices_that_a_client_batches_otherwise_are_still_its_slices():
  keys = np.array([4, 0, 5], np.int32)

  def first_two(slices):
    return slices.take(2).batch(2).get_single_element()

  def too_small(slices):
    return slices.batch(2).get_single_element()

  (found,) = _select(_row(), first_two)(_NUMBERS, [keys])
  np.testing.assert_array_equal(found, _NUMBERS[[4, 0]])
  with pytest.raises(client_error.ClientError, match='more than one element'):
    _select(_row(), too_small)(_NUMBERS, [keys])
