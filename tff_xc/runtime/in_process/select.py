"""`federated_select`: a client's keys become a sequence of slices."""

import pathlib
import sys
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_xc.runtime.in_process import values

_OUT_OF_RANGE = (
  'federated_select: a key is outside [0, max_key); keys, max_key:'
)


def slices(
  keys: tf.Tensor,
  max_key: tf.Tensor,
  server_value,
  select: Callable,
  element: tff.Type,
  home: str,
):
  """Returns slices, stacked in the order of their keys.

  One vectorised call of the selection makes all slices; for a row lookup it is
  one gather. A selection that TensorFlow cannot vectorise runs once per key.

  Args:
    keys: int32 [N], of one client or several.
    max_key: int32 scalar; keys lie in [0, max_key).
    server_value: the value to select from.
    select: (server value, key) -> slice.
    element: the slice's type.
    home: the device of the server's value, where slices are made.
  """
  in_range = tf.logical_and(keys >= 0, keys < max_key)
  check = tf.debugging.Assert(
    tf.reduce_all(in_range),
    [_OUT_OF_RANGE, keys, max_key],
  )
  with tf.device(home), tf.control_dependencies([check]):
    return _for_each(
      lambda key: select((server_value, key)), tf.identity(keys), element
    )


def _for_each(function: Callable, keys: tf.Tensor, element: tff.Type):
  try:
    return tf.vectorized_map(function, keys, fallback_to_while_loop=False)
  except (
    Exception
  ) as e:  # The type of error depends on the first op that fails.
    logging.info('federated_select runs once for each key: %s', e)
  finally:
    _remove_sources()
  flat = tf.map_fn(
    lambda key: values.flatten(function(key), element),
    keys,
    fn_output_signature=values.leaf_specs(element),
  )
  return values.unflatten(flat, element)


def _remove_sources() -> None:
  """Removes the files that AutoGraph writes while TensorFlow vectorises.

  TensorFlow has imported them, and would remove them at the exit only, which a
  killed process does not reach.
  """
  for name, module in list(sys.modules.items()):
    if name.startswith('__autograph_generated_file'):
      pathlib.Path(module.__file__).unlink(missing_ok=True)
