"""Row updates of large tensors, in place where nobody else holds the tensor.

A step on a class table of n rows that changes a few of them is, in TFF's value
semantics, `tf.tensor_scatter_nd_update(table, ids, rows)`: a new table. Here its
result is kept as a `RowUpdate` until it is needed. If the caller has given the
old table up (`give_up`) and nothing else refers to its memory, the rows are then
written into it; otherwise it is copied first, and nobody sees the difference.
"""

import itertools
import threading
from typing import Any
from typing import NamedTuple

import tensorflow as tf

_stages = itertools.count()


class RowUpdate(NamedTuple):
  """The tensor that `base` becomes with some of its rows replaced.

  Attributes:
    base: the old tensor [n, ...].
    ids: int32 [U, 1], distinct.
    rows: [U, ...], the new rows.
  """

  base: Any
  ids: tf.Tensor
  rows: tf.Tensor

  def materialise(self) -> tf.Tensor:
    """Returns the new tensor; `base` stays as it is."""
    return tf.tensor_scatter_nd_update(self.base, self.ids, self.rows)


class GivenUp:
  """Holds a tensor for the computation that may write into it.

  Until a computation has taken the tensor it can be read, so that a computation
  that fails leaves its argument usable.
  """

  def __init__(self, tensor: tf.Tensor):
    self._tensor = tensor

  def read(self) -> tf.Tensor:
    """Returns the tensor.

    Raises:
      ValueError: where a computation has already taken it.
    """
    if self._tensor is None:
      raise ValueError(
        'this value was given up to a computation that has finished: use the'
        ' state which that computation returned'
      )
    return self._tensor

  def drop(self) -> None:
    """Holds the tensor no longer."""
    self._tensor = None


def give_up(structure):
  """Gives the memory of a structure's tensors to the computation it is used in.

  Use the returned structure in one call, and drop every other reference to the
  tensors: `state = give_up(state)`, then `process.next(state, ...)`. Afterwards
  neither can be read again; until then, or where the call fails, `keep` gives
  the tensors back.
  """
  wrap = lambda leaf: GivenUp(leaf) if isinstance(leaf, tf.Tensor) else leaf
  return tf.nest.map_structure(wrap, structure)


def keep(structure):
  """The inverse of `give_up`, while no computation has taken the tensors.

  Raises:
    ValueError: where one has.
  """
  unwrap = lambda leaf: leaf.read() if isinstance(leaf, GivenUp) else leaf
  return tf.nest.map_structure(unwrap, structure)


class InPlace:
  """Writes rows into a tensor whose only reference it is given."""

  def __init__(self):
    self._functions = {}
    self._lock = threading.Lock()

  def __call__(
    self, given_up: GivenUp, ids: tf.Tensor, rows: tf.Tensor
  ) -> tf.Tensor:
    """Returns what `given_up` holds with `rows` at `ids`.

    The time is that of writing the rows, unless somebody else refers to the
    tensor's memory, when it is copied first.
    """
    tensor = given_up.read()
    key = (tensor.dtype, tuple(tensor.shape), tensor.backing_device)
    # Tensors of one key share a staging area: one at a time.
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

  `put` leaves the tensor in a staging area of the runtime, from which `update`
  moves it out: a graph call would otherwise hold its argument, and a tensor with
  two references is not written into. An assignment of no rows passes the tensor
  on if it is the only reference, and copies it if not, whatever its size; what it
  gives belongs to nobody else, so that writing in place is safe.
  """
  name = f'tff_xc_rows_{next(_stages)}'
  dtype, shape, device = tensor.dtype, tensor.shape, tensor.backing_device
  row = shape[1:]

  def put(value):
    with tf.device(device):
      # An interrupt may have left something between `put` and `update`.
      tf.raw_ops.StageClear(dtypes=[dtype], shared_name=name)
      tf.raw_ops.Stage(values=[value], shared_name=name)

  @tf.function(
    input_signature=[
      tf.TensorSpec([None, 1], ids_dtype),
      tf.TensorSpec([None, *row], dtype),
    ]
  )
  def update(ids, rows):
    with tf.device(device):
      (value,) = tf.raw_ops.Unstage(dtypes=[dtype], shared_name=name)
      value = tf.ensure_shape(value, shape)
      own = tf.raw_ops.TensorStridedSliceUpdate(
        input=value,
        begin=[0],
        end=[0],
        strides=[1],
        value=tf.zeros([0, *row], dtype),
      )
      return tf.raw_ops.InplaceUpdate(
        x=own, i=tf.cast(ids[:, 0], tf.int32), v=rows
      )

  return put, update
