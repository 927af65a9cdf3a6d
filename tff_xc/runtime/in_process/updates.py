"""Updates rows of large tensors, in place if no other reference exists.

A TFF computation changes a few rows of a class table by
`tf.tensor_scatter_nd_update(table, ids, rows)`, which creates a new table. This runtime
represents the result as a `RowUpdate`, until the new table is needed. If the caller has
donated the old table (`donate`), and if no other reference to its memory exists, the runtime
then writes the rows into the old table. Otherwise the runtime first copies the table. Both
ways give the same result.
"""

import itertools
import threading
from typing import Any, NamedTuple

import tensorflow as tf

_stages = itertools.count()


class RowUpdate(NamedTuple):
  """The tensor `base` with some of its rows replaced."""

  base: Any  # The old tensor [n, ...].
  ids: tf.Tensor  # int32 [U, 1], distinct.
  rows: tf.Tensor  # [U, ...], the new rows.

  def materialise(self) -> tf.Tensor:
    """Returns the new tensor; `base` does not change."""
    return tf.tensor_scatter_nd_update(self.base, self.ids, self.rows)


class GivenUp:
  """Holds a donated tensor for the computation that may write into this tensor.

  The tensor can be read until a computation has consumed it. If a computation fails, its
  argument therefore stays usable.
  """

  def __init__(self, tensor: tf.Tensor):
    self._tensor = tensor

  def read(self) -> tf.Tensor:
    """Returns the tensor."""
    if self._tensor is None:
      raise ValueError(
        'this value was given up to a computation that has finished: use the'
        ' state which that computation returned'
      )
    return self._tensor

  def drop(self) -> None:
    """Drops the reference to the tensor."""
    self._tensor = None


def donate(structure):
  """See `registry.donate`."""
  return tf.nest.map_structure(
    lambda leaf: GivenUp(leaf) if isinstance(leaf, tf.Tensor) else leaf, structure
  )


def keep(structure):
  """See `registry.keep`."""
  return tf.nest.map_structure(
    lambda leaf: leaf.read() if isinstance(leaf, GivenUp) else leaf, structure
  )


class InPlace:
  """Writes rows into a donated tensor. Copies the tensor only if other references to it exist."""

  def __init__(self):
    self._functions = {}
    self._lock = threading.Lock()

  def __call__(self, given_up: GivenUp, ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the tensor of `given_up` with `rows` at `ids`.

    If another reference to the tensor's memory exists, the call first copies the tensor.
    Otherwise the call only writes the rows.
    """
    tensor = given_up.read()
    key = tensor.dtype, tuple(tensor.shape), tensor.backing_device, ids.dtype
    # Tensors with the same key share a staging area, which may contain only one tensor.
    with self._lock:
      if key not in self._functions:
        self._functions[key] = _build(tensor, ids.dtype)
      put, update = self._functions[key]
      put(tensor)
      del tensor
      given_up.drop()
      return update(ids, rows)


def _build(tensor: tf.Tensor, ids_dtype: tf.DType):
  """Returns (put: tensor -> None, update: (ids, rows) -> new tensor).

  `put` moves the tensor into a staging area of TensorFlow, and `update` takes the tensor out
  of this area. As an argument of the graph call, the tensor would have a second reference, and
  TensorFlow would not write into the tensor. `update` first assigns an empty slice to the
  tensor. This assignment forwards the tensor's buffer if no other reference to the buffer
  exists. Otherwise the assignment copies the buffer. So `update` can safely write into the result.
  """
  name = f'tff_xc_rows_{next(_stages)}'
  dtype, shape, device = tensor.dtype, tensor.shape, tensor.backing_device
  row = shape[1:]

  def put(value):
    with tf.device(device):
      # Remove a tensor that an earlier interrupt between `put` and `update` left.
      tf.raw_ops.StageClear(dtypes=[dtype], shared_name=name)
      tf.raw_ops.Stage(values=[value], shared_name=name)

  @tf.function(
    input_signature=[tf.TensorSpec([None, 1], ids_dtype), tf.TensorSpec([None, *row], dtype)],
    autograph=False,
  )
  def update(ids, rows):
    with tf.device(device):
      (value,) = tf.raw_ops.Unstage(dtypes=[dtype], shared_name=name)
      value = tf.ensure_shape(value, shape)
      own = tf.raw_ops.TensorStridedSliceUpdate(
        input=value, begin=[0], end=[0], strides=[1], value=tf.zeros([0, *row], dtype)
      )
      return tf.raw_ops.InplaceUpdate(x=own, i=tf.cast(ids[:, 0], tf.int32), v=rows)

  return put, update
