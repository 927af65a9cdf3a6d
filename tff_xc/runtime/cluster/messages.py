"""The messages between a driver and its workers: plain objects and NumPy arrays."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from tff_xc.runtime.in_process import expressions, graph_call, values

# The leaves of values by name, in the order of `values.leaves`.
Arrays = dict[str, list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Reference:
  """Identifies a client's value. A worker reads this value from its copy of the data."""

  round_number: int  # The round, counted from 0.
  place: int  # The client's index in the round's cohort.


class Referenced(Sequence):
  """The values of a round's clients, and references to these values."""

  def __init__(self, values_: Sequence, round_number: int):
    self._values, self._round = values_, round_number

  def __len__(self) -> int:
    return len(self._values)

  def __getitem__(self, place: int):
    return self._values[place]

  def reference(self, place: int) -> Reference:
    return Reference(self._round, place)


@dataclasses.dataclass(frozen=True)
class Block:
  """Consecutive clients of a cohort, for one phase of a program."""

  round: int  # A number that identifies the invocation and the phase.
  program: int  # A number that identifies the program.
  proto: Any  # A shared object. Its method `get` returns the program's protocol buffer.
  phase: int  # The phase's number.
  first: int  # The first client's index in the cohort.
  # The leaves of each client's own parameter, or a `Reference`. Empty if the clients do not
  # read the parameter, or if the worker already has it.
  clients: list[list[np.ndarray] | Reference]
  kept: list[Arrays]  # Each client's values from earlier phases.
  # A shared object. Its method `get` returns the leaves of the server's values that clients
  # read.
  server: Any
  # Whether the worker adds up (folds) the clients' values. Otherwise the worker returns the value
  # of each client.
  folds: bool


@dataclasses.dataclass(frozen=True)
class Trained:
  """The result of a block."""

  # The accumulators if the worker folds the clients' values. Otherwise each client's values.
  folded: Arrays | list[Arrays]
  kept: list[Arrays]  # Each client's values for later phases.


@dataclasses.dataclass(frozen=True)
class Failed:
  """A client's computation failed."""

  client_index: int  # The client's index in the cohort.
  reason: str  # The error message.


def pack(found: Mapping[str, Any], types: Mapping[str, tff.Type]) -> Arrays:
  """Returns the leaves of named values as arrays, by name."""
  return {name: arrays(found[name], kind) for name, kind in types.items()}


def arrays(value, type_spec: tff.Type) -> list[np.ndarray]:
  """Returns the leaves of a value as arrays."""
  found = []
  for leaf in values.leaves(value, type_spec):
    leaf = graph_call.readable(leaf)
    if not isinstance(leaf, tf.Tensor):
      raise expressions.UnsupportedError(
        'the cluster cannot send a sequence to another machine; use --runtime=in_process'
      )
    found.append(np.asarray(leaf))  # `leaf.numpy()` would copy the tensor.
  return found


def unpack(
  found: Mapping[str, list[np.ndarray]], types: Mapping[str, tff.Type], borrowed: bool = False
) -> dict[str, Any]:
  """Converts the result of `pack` back to values, without names that have no type.

  With `borrowed`, values share the memory of read-only arrays, which avoids a copy. The caller
  must then only read the values, and never donate them (`updates.donate`).
  """
  return {
    name: values.unflatten(tensors(leaves, borrowed), types[name])
    for name, leaves in found.items()
    if name in types
  }


def tensors(leaves: list[np.ndarray], borrowed: bool = False) -> list[tf.Tensor]:
  """Returns arrays as tensors; see `unpack`."""
  return [
    _shared(leaf) if borrowed and not leaf.flags.writeable else tf.constant(leaf)  # A copy.
    for leaf in leaves
  ]


def _shared(leaf: np.ndarray) -> tf.Tensor:
  """Returns a tensor that shares an array's memory, or a copy if the memory is not aligned."""
  current = context.context()
  current.ensure_initialized()
  return ops.EagerTensor(leaf, current.device_name, None)


def num_bytes(message) -> int:
  """Returns the total bytes of all arrays in nested lists and dictionaries."""
  if isinstance(message, np.ndarray | np.generic):
    return message.nbytes
  if isinstance(message, Mapping):
    message = list(message.values())
  if isinstance(message, list | tuple):
    return sum(map(num_bytes, message))
  return 0
