"""What a driver and its workers send each other: plain objects and NumPy arrays."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from tff_xc.runtime.in_process import expressions, graph_call, values

# Leaves of values by name, in the order of `values.leaves`.
Arrays = dict[str, list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Reference:
  """Names a client's value, which a worker reads from its own disk."""

  round_number: int  # The round, from 0.
  place: int  # The client's place in the round's cohort.


class Referenced(Sequence):
  """The values of a round's clients, and their references."""

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
  first: int  # The first client's place in the cohort.
  # Each client's own parameter, its leaves or a `Reference`; empty if it is not
  # read, or was sent before.
  clients: list[list[np.ndarray] | Reference]
  kept: list[Arrays]  # Each client's values of earlier phases.
  # Leaves of the server's values that clients read, shared: `get` returns them.
  server: Any
  # Whether the worker folds the clients; otherwise it returns the values to
  # fold.
  folds: bool


@dataclasses.dataclass(frozen=True)
class Trained:
  """What became of a block."""

  # The accumulators if the block folds; otherwise each client's values to fold.
  folded: Arrays | list[Arrays]
  kept: list[Arrays]  # Each client's values for later phases.


@dataclasses.dataclass(frozen=True)
class Failed:
  """A client's computation failed."""

  client_index: int  # Its place in the cohort.
  reason: str  # Why.


def pack(found: Mapping[str, Any], types: Mapping[str, tff.Type]) -> Arrays:
  """Returns the leaves of values of ours as arrays."""
  return {name: arrays(found[name], kind) for name, kind in types.items()}


def arrays(value, type_spec: tff.Type) -> list[np.ndarray]:
  """Returns the leaves of a value of ours as arrays; see `pack`."""
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

  Borrowed values are only read, and never given up (`updates.donate`): they share
  the arrays' memory if nobody can write there, which costs less than to copy.
  """
  return {
    name: values.unflatten(tensors(leaves, borrowed), types[name])
    for name, leaves in found.items()
    if name in types
  }


def tensors(leaves: list[np.ndarray], borrowed: bool = False) -> list[tf.Tensor]:
  """Returns arrays as tensors; see `unpack`."""
  return [
    _shared(leaf) if borrowed and not leaf.flags.writeable else tf.constant(leaf)  # It copies.
    for leaf in leaves
  ]


def _shared(leaf: np.ndarray) -> tf.Tensor:
  """Returns a tensor in an array's memory; a copy if that is not aligned."""
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
