"""Represents values of TFF types in this runtime.

A tensor is a `tf.Tensor`, a sequence is a `tf.data.Dataset`, and a structure is a tuple. The
type has the names of a structure's parts. A value at clients is a list with one value for each
client. A value at the server has no wrapper. Graph calls take and return flat lists, in which
a data set is a variant tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.in_process import updates

_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def to_tensor(value, type_spec: tff.TensorType) -> tf.Tensor:
  """Converts a Python value to a tensor of the type.

  The dtype of an array or tensor may be widened within its kind (integer, float,
  complex). Python numbers must be of the same kind and fit into the type's dtype.
  """
  dtype, wanted = type_spec.dtype.type, tf.as_dtype(type_spec.dtype)
  if isinstance(value, tf.Tensor | tf.Variable):
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype != wanted and not _widens(np.dtype(tensor.dtype.as_numpy_dtype), dtype):
      raise TypeError(f'expected {type_spec}, got a tensor of {tensor.dtype.name}')
    tensor = tf.cast(tensor, wanted)
  else:
    array = np.asarray(value)
    if not _fits(value, array, dtype):
      shown = f' ({value!r})' if array.ndim == 0 else ''
      raise TypeError(f'expected {type_spec}, got {array.dtype}{shown}')
    given = value if dtype is np.str_ else array.astype(dtype, copy=False)
    tensor = tf.convert_to_tensor(given, wanted)
  if not tensor.shape.is_compatible_with(tf.TensorShape(type_spec.shape)):
    raise TypeError(f'expected {type_spec}, got the shape {tensor.shape}')
  return tensor


def _fits(value, array: np.ndarray, dtype: type[np.generic]) -> bool:
  """Whether `array`, made from `value`, can be converted to `dtype` without a change."""
  if isinstance(value, np.ndarray | np.generic) or dtype is np.str_:
    return _widens(array.dtype, dtype)
  # NumPy chooses the dtype of Python numbers by their values. An empty list fits every dtype.
  if not array.size:
    return True
  if not _same_kind(array.dtype, dtype):
    return False
  return array.dtype.kind not in 'iu' or bool((array == array.astype(dtype)).all())


def _widens(found: np.dtype, wanted: type[np.generic]) -> bool:
  if wanted is np.str_:
    return found.kind in 'SUO'
  return _same_kind(found, wanted) and np.can_cast(found, wanted)


def _same_kind(found, wanted) -> bool:
  return any(np.issubdtype(found, kind) and np.issubdtype(wanted, kind) for kind in _KINDS)


def members(type_spec: tff.StructType) -> list[tff.Type]:
  """Returns the types of a structure's parts, in order."""
  return [member for _, member in tff.structure.iter_elements(type_spec)]


def names(type_spec: tff.StructType) -> list[str | None]:
  """Returns the names of a structure's parts, with None for a part without name."""
  return [name for name, _ in tff.structure.iter_elements(type_spec)]


def at_clients(type_spec: tff.Type) -> bool:
  """Whether each client has its own value of this type."""
  return (
    isinstance(type_spec, tff.FederatedType)
    and type_spec.placement is tff.CLIENTS
    and not type_spec.all_equal
  )


def from_python(value, type_spec: tff.Type):
  """Converts an unplaced value to this runtime's form, from any container of TFF."""
  if isinstance(type_spec, tff.StructType):
    parts = zip(parts_of(value, type_spec), members(type_spec), strict=True)
    return tuple(from_python(part, member) for part, member in parts)
  if isinstance(type_spec, tff.SequenceType):
    return _to_dataset(value, type_spec)
  if isinstance(type_spec, tff.TensorType):
    return _held(value, type_spec)
  raise TypeError(f'a value of type {type_spec} cannot be an argument')


def _held(value, type_spec: tff.TensorType):
  if not isinstance(value, updates.GivenUp):
    return to_tensor(value, type_spec)
  held = value.read()
  tensor = to_tensor(held, type_spec)
  return value if tensor is held else tensor


def parts_of(value, type_spec: tff.StructType) -> list:
  """Returns the parts of a structure in the order of its type. `value` is any container."""
  expected = names(type_spec)
  if isinstance(value, tff.structure.Struct):
    given = tff.structure.to_elements(value)
    if len(given) != len(expected) or any(
      name not in (None, want) for (name, _), want in zip(given, expected, strict=True)
    ):
      raise TypeError(f'expected the names {expected}, got {value}')
    return [part for _, part in given]
  if attrs.has(type(value)):
    value = attrs.asdict(value, recurse=False)
  if hasattr(value, 'items'):
    if set(value) != set(expected):
      raise TypeError(f'expected the names {expected}, got {list(value)}')
    return [value[name] for name in expected]
  if isinstance(value, list | tuple) and len(value) == len(expected):
    return list(value)
  raise TypeError(f'expected a structure of {len(expected)} parts, got a {type(value)}')


def to_python(value, type_spec: tff.Type):
  """Converts tuples to `tff.structure.Struct`. TFF converts a Struct to Python containers."""
  if isinstance(type_spec, tff.FederatedType):
    if at_clients(type_spec):
      return [to_python(each, type_spec.member) for each in value]
    return to_python(value, type_spec.member)
  if not isinstance(type_spec, tff.StructType):
    return value
  pairs = zip(value, tff.structure.iter_elements(type_spec), strict=True)
  return tff.structure.Struct([(name, to_python(part, member)) for part, (name, member) in pairs])


def _to_dataset(value, type_spec: tff.SequenceType) -> tf.data.Dataset:
  if not isinstance(value, tf.data.Dataset):
    raise TypeError(f'expected a tf.data.Dataset, got {type(value)}')
  given = tff.SequenceType(tff.types.tensorflow_to_type(value.element_spec))
  if not type_spec.is_assignable_from(given):
    raise TypeError(f'expected {type_spec}, got a data set of {given}')
  return value


def map_leaves(function: Callable[[Any, tff.Type], Any], value, type_spec):
  """Applies `function` to every tensor and sequence of an unplaced value."""
  if isinstance(type_spec, tff.FederatedType):
    return map_leaves(function, value, type_spec.member)
  if isinstance(type_spec, tff.StructType):
    parts = zip(value, members(type_spec), strict=True)
    return tuple(map_leaves(function, part, member) for part, member in parts)
  return function(value, type_spec)


def map_placed(value, type_spec: tff.Type, of_server: Callable, of_clients: Callable):
  """Applies `of_server` to the parts at the server, and `of_clients` to the parts at clients.

  Both functions take (value, type). `of_clients` gets a list of clients' values and the type
  of one of these values.
  """
  if at_clients(type_spec):
    return of_clients(value, type_spec.member)
  if isinstance(type_spec, tff.StructType) and contains_placement(type_spec):
    parts = zip(value, members(type_spec), strict=True)
    return tuple([map_placed(part, member, of_server, of_clients) for part, member in parts])
  return of_server(value, type_spec)


def leaf_specs(type_spec: tff.Type) -> list[tf.TensorSpec]:
  """Returns the specs of the flat tensors of a value of this type."""
  if isinstance(type_spec, tff.FederatedType):
    return leaf_specs(type_spec.member)
  if isinstance(type_spec, tff.StructType):
    return [spec for member in members(type_spec) for spec in leaf_specs(member)]
  if isinstance(type_spec, tff.SequenceType):
    return [tf.TensorSpec([], tf.variant)]
  return [tf.TensorSpec(type_spec.shape, tf.as_dtype(type_spec.dtype))]


class Slices:
  """A sequence with all its elements stacked in tensors."""

  def __init__(self, stacked, element: tff.Type, size: int):
    self._stacked = tff.types.type_to_py_container(to_python(stacked, element), element)
    self.size = size

  def tensors(self) -> list[tf.Tensor]:
    """Returns the components of a batch of all elements."""
    return tf.nest.flatten(self._stacked)

  def dataset(self) -> tf.data.Dataset:
    """Returns the data set of the elements."""
    with tf.device('CPU:0'):
      return tf.data.Dataset.from_tensor_slices(self._stacked)


def as_dataset(sequence) -> tf.data.Dataset:
  """Converts a sequence to a data set."""
  return sequence.dataset() if isinstance(sequence, Slices) else sequence


def as_tensor(leaf):
  """Converts a leaf for graph calls: a sequence becomes a variant tensor."""
  if isinstance(leaf, tf.data.Dataset | Slices):
    return tf.data.experimental.to_variant(as_dataset(leaf))
  return leaf


def leaves(value, type_spec: tff.Type) -> list:
  """Returns the tensors and sequences of an unplaced value, in order."""
  found = []
  map_leaves(lambda leaf, _: found.append(leaf), value, type_spec)
  return found


def flatten(value, type_spec: tff.Type) -> list:
  """Returns the leaves of an unplaced value, with sequences as variants."""
  return [as_tensor(leaf) for leaf in leaves(value, type_spec)]


def unflatten(flat: Sequence, type_spec: tff.Type):
  """Converts the result of `flatten` back to a value."""
  return _build(iter(flat), type_spec)


# `_build` is not a nested function of `unflatten`. A nested function that calls itself is in a
# reference cycle, and would keep tensors alive until Python collects garbage.
def _build(leaves: Iterator, type_spec: tff.Type):
  if isinstance(type_spec, tff.FederatedType):
    return _build(leaves, type_spec.member)
  if isinstance(type_spec, tff.StructType):
    return tuple([_build(leaves, member) for member in members(type_spec)])
  leaf = next(leaves)
  if isinstance(type_spec, tff.SequenceType):
    spec = tff.types.type_to_tf_tensor_specs(type_spec.element)
    return tf.data.experimental.from_variant(leaf, spec)
  return leaf


def contains_placement(type_spec: tff.Type) -> bool:
  """Whether any part of a value of this type is placed at the server or at clients."""
  return tff.types.contains(type_spec, lambda part: isinstance(part, tff.FederatedType))
