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
  """Identifies a client's value, which a worker reads from its own disk."""

  round_number: int  # The round, from 0.
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

  round: int  # Identifies the invocation and phase.
  program: int  # Identifies the program.
  proto: Any  # The program's protocol buffer, shared: `get` returns it.
  phase: int  # The phase's number.
  first: int  # The first client's index in the cohort.
  # The leaves of each client's own parameter, or a `Reference`; empty if the parameter is
  # not read or was sent before.
  clients: list[list[np.ndarray] | Reference]
  kept: list[Arrays]  # Each client's values from earlier phases.
  # The leaves of the server's values that clients read, shared: `get` returns them.
  server: Any
  # Whether the worker folds the clients' values. Otherwise it returns the values to fold.
  folds: bool


@dataclasses.dataclass(frozen=True)
class Trained:
  """The result of a block."""

  # The accumulators if the worker folds; otherwise each client's values to fold.
  folded: Arrays | list[Arrays]
  kept: list[Arrays]  # Each client's values for later phases.


@dataclasses.dataclass(frozen=True)
class Failed:
  """A client's computation failed."""

  client_index: int  # The client's index in the cohort.
  reason: str  # The error message.


def pack(found: Mapping[str, Any], types: Mapping[str, tff.Type]) -> Arrays:
  """Returns the leaves of the runtime's values as arrays, by name."""
  return {name: arrays(found[name], kind) for name, kind in types.items()}


def arrays(value, type_spec: tff.Type) -> list[np.ndarray]:
  """Returns the leaves of one of the runtime's values as arrays."""
  found = []
  for leaf in values.leaves(value, type_spec):
    leaf = graph_call.readable(leaf)
    if not isinstance(leaf, tf.Tensor):
      raise expressions.UnsupportedError(
        'the cluster cannot send a sequence to another machine; use --runtime=in_process'
      )
    found.append(np.asarray(leaf))  # `numpy()` would copy it.
  return found


def unpack(
  found: Mapping[str, list[np.ndarray]], types: Mapping[str, tff.Type], borrowed: bool = False
) -> dict[str, Any]:
  """Inverts `pack`; names without a type are left out.

  `borrowed` promises that values are only read, and never donated (`updates.donate`). They
  then share the memory of read-only arrays, which avoids a copy.
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
  """Returns a tensor in an array's memory, or a copy if the memory is not aligned."""
  current = context.context()
  current.ensure_initialized()
  return ops.EagerTensor(leaf, current.device_name, None)


def num_bytes(message) -> int:
  """Returns the bytes of all arrays in nested lists and dictionaries."""
  if isinstance(message, np.ndarray | np.generic):
    return message.nbytes
  if isinstance(message, Mapping):
    message = list(message.values())
  if isinstance(message, list | tuple):
    return sum(map(num_bytes, message))
  return 0
