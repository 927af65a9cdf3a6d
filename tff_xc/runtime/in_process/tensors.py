"""Converts arguments to tensors, with only the casts of TFF's worker."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_KINDS = (np.integer, np.floating, np.complexfloating)
_STRINGS = (np.character, np.object_)


def to_tensor(value, type_spec: tff.TensorType) -> tf.Tensor:
  """Returns the tensor of the type for a value given from Python.

  The dtype of an array or tensor may be widened within its kind (integer,
  float, complex). A Python number must fit into the type's dtype.

  Args:
    value: a Python scalar, a NumPy array or scalar, a tensor, a variable, or
      nested lists and tuples of these.
    type_spec: the type.

  Raises:
    TypeError: if dtype or shape do not fit.
    ValueError: for nested lists of unequal lengths.
    NotImplementedError: for values that can never be a tensor.
  """
  if isinstance(value, tf.Variable):
    value = value.read_value()
  if isinstance(value, tf.Tensor):
    tensor = _cast_tensor(value, type_spec)
  else:
    tensor = _from_numpy(value, type_spec)
  if not tensor.shape.is_compatible_with(tf.TensorShape(type_spec.shape)):
    raise _mismatch(type_spec, f'the shape {tensor.shape}')
  return tensor


def _mismatch(type_spec: tff.TensorType, found: str) -> TypeError:
  return TypeError(f'expected {type_spec}, got {found}')


def _cast_tensor(tensor: tf.Tensor, type_spec: tff.TensorType) -> tf.Tensor:
  wanted = tf.as_dtype(type_spec.dtype)
  if tensor.dtype == wanted:
    return tensor
  found = tensor.dtype.as_numpy_dtype
  if not _widens(np.dtype(found), type_spec.dtype.type):
    raise _mismatch(type_spec, f'a tensor of {tensor.dtype.name}')
  return tf.cast(tensor, wanted)


def _from_numpy(value, type_spec: tff.TensorType) -> tf.Tensor:
  if not isinstance(
    value, bool | int | float | complex | np.generic | np.ndarray | Sequence
  ):
    raise NotImplementedError(
      f'expected {type_spec}, got an object of {type(value)}'
    )
  dtype = type_spec.dtype.type
  is_list = isinstance(value, list | tuple)
  for leaf in tf.nest.flatten(value) if is_list else [value]:
    if isinstance(leaf, tf.Tensor | tf.Variable):
      leaf = leaf.numpy()
    if not _fits(leaf, dtype):
      found = getattr(leaf, 'dtype', type(leaf).__name__)
      shown = f' ({leaf!r})' if np.ndim(leaf) == 0 else ''
      raise _mismatch(type_spec, f'{found}{shown}')
  if dtype is np.str_:
    return tf.convert_to_tensor(value, tf.string)
  return tf.convert_to_tensor(np.asarray(value, dtype))


def _fits(value, dtype: type[np.generic]) -> bool:
  """Whether a NumPy value or Python scalar fits into `dtype` unchanged."""
  if isinstance(value, np.generic | np.ndarray):
    if value.dtype == np.object_:  # Only strings can fit.
      return dtype is np.str_ and all(
        isinstance(item, str | bytes) for item in np.asarray(value).flat
      )
    return _widens(value.dtype, dtype)
  if isinstance(value, bool):
    return dtype is np.bool_
  if isinstance(value, str | bytes):
    return dtype is np.str_
  if not isinstance(value, int | float | complex):
    return False
  # For a Python number, NumPy checks whether its value fits, not its type.
  return _same_kind(type(value), dtype) and np.can_cast(value, dtype)


def _widens(found: np.dtype, wanted: type[np.generic]) -> bool:
  if found.type is wanted:
    return True
  if any(np.issubdtype(found, kind) for kind in _STRINGS):
    return wanted is np.str_
  return _same_kind(found, wanted) and np.can_cast(found, wanted)


def _same_kind(found, wanted) -> bool:
  return any(
    np.issubdtype(found, kind) and np.issubdtype(wanted, kind)
    for kind in _KINDS
  )
