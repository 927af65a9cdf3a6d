"""What clients keep between rounds, collected for the caller.

A client keeps its state; the server does not use it. TFF's learning processes
return values of the server only, so a round returns the states of its clients
side by side, among its metrics. The caller gives a client its own state back.
"""

import collections
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import folding

# The metric that holds the states.
NAME = 'client_states'
# Most states in each stack of an accumulator, as in `folding`.
_MOST = (4, 16, 64)


class KeptStates(NamedTuple):
  """The states of a round's clients.

  Attributes:
    ids: int64 [K], the clients' ids.
    value: as the algorithm's `ClientState.spec`, with K first.
  """

  ids: tf.Tensor
  value: Any


def build_collect(spec: Any) -> Callable:
  """Returns a function that adds the clients' states to the metrics.

  It takes (metrics@SERVER, ids@CLIENTS, `KeptState`s@CLIENTS). A client that
  keeps nothing yet is left out. Call it within a federated computation.

  Args:
    spec: a structure of `tf.TensorSpec`s.
  """
  joined = _build_joined(spec)

  @tff.tensorflow.computation
  def added(measured, kept):
    return collections.OrderedDict(**measured, **{NAME: kept})

  def collect(measured, client_ids, states):
    return tff.federated_map(added, (measured, joined(client_ids, states)))

  return collect


def _build_joined(spec: Any) -> Callable:
  """Returns a function: (ids, `KeptState`s)@CLIENTS -> `KeptStates`@SERVER."""
  stacked = lambda t: tff.TensorType(t.dtype.as_numpy_dtype, [None, *t.shape])
  kept_type = tff.to_type(
    KeptStates(
      tff.TensorType(np.int64, [None]), tf.nest.map_structure(stacked, spec)
    )
  )

  @tff.tensorflow.computation
  def message(client_id, state):
    count = tf.cast(state.known, tf.int32)
    alone = lambda t: tf.repeat(t[None], count, axis=0)
    return tf.nest.map_structure(alone, KeptStates(client_id, state.value))

  join = folding.side_by_side

  @tff.tensorflow.computation
  def zero():
    empty = lambda t: tf.raw_ops.PlaceholderWithDefault(
      input=tf.zeros([0, *t.shape], t.dtype), shape=[None, *t.shape]
    )
    nothing = tf.nest.map_structure(
      empty, KeptStates(tf.TensorSpec([], tf.int64), spec)
    )
    return [nothing] * (len(_MOST) + 1)

  stacks_type = tff.to_type([kept_type] * (len(_MOST) + 1))

  @tff.tensorflow.computation(stacks_type, kept_type)
  def accumulate(stacks, kept):
    return folding.pushed(stacks, kept, join, _MOST)

  @tff.tensorflow.computation(stacks_type, stacks_type)
  def merge(a, b):
    return folding.merged(a, b, join, _MOST)

  @tff.tensorflow.computation(stacks_type)
  def report(stacks):
    return join(*reversed(stacks))

  return lambda ids, states: tff.federated_aggregate(
    tff.federated_map(message, (ids, states)),
    zero(),
    accumulate,
    merge,
    report,
  )
