"""The input of one client in a round: its examples, and its state from earlier rounds.

A client's state belongs to the client, and the server does not use it. TFF's learning processes
return only values at the server. Therefore a round returns the new states of its clients as one of
its metrics. In later rounds, the caller passes each client its own state.
"""

import collections
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier, errors
from tff_xc.data import from_tff as from_tff_lib, sparse
from tff_xc.round import folding

_LARGEST = np.iinfo(np.int64).max  # The largest `client_id`.


class ClientExamples(NamedTuple):
  """The input of one client in a round.

  Attributes:
    x: [n_k, ...], stored examples, which the encoder decodes, or sparse examples.
    labels: int32 [n_k], labels in [0, n); or `sparse.LabelSets` of n_k examples.
    client_id: int64 scalar, the same in all rounds, which seeds the client's random numbers.
    all_labels: int32 [m_k], the labels of all of the client's examples, which determine the class
      rows that the client requests. `x` and `labels` have only the examples that the client uses in
      this round. If it uses all its examples, `all_labels` equals `labels` (or the ids of the label
      sets).
    weights: float32 [n_k], the weights of the examples in the loss. A part of the algorithm may add
      these weights (`parts.Part.examples`). (): equal weights.
    state: `KeptState`, the client's state from its last round (see `nothing_kept`), or () for an
      algorithm without client state.
  """

  x: tf.Tensor | sparse.SparseFeatures
  labels: tf.Tensor | sparse.LabelSets
  client_id: tf.Tensor
  all_labels: tf.Tensor
  weights: tf.Tensor | tuple = ()
  state: Any = ()

  @classmethod
  def from_tff(
    cls, source: from_tff_lib.Source, ids: Iterable | None = None, *, x: str = 'x', y: str = 'y'
  ) -> list['ClientExamples']:
    """Returns a list of clients for the `next` of a learning process.

    If `source` is `tff.simulation` data, `ids` selects clients, and a `client_id` is the client's
    place in `source.client_ids`. If `source` is a list of data sets, `ids` has a whole number for
    each client, by default its place in the list. `tff_xc.data.from_tff.as_client_data` explains
    elements, `x`, `y` and errors.
    """
    data = from_tff_lib.as_client_data(source, ids, x=x, y=y)
    names = data.client_ids
    if isinstance(source, tff.simulation.datasets.ClientData):
      numbers = from_tff_lib.places_of(source, names)
    else:
      for name in names:
        if not name.isdecimal() or int(name) > _LARGEST:
          raise errors.InputError(
            f'id {name!r}: clients of a list have whole numbers below 2**63, which'
            ' seed what they draw'
          )
      numbers = [*map(int, names)]
      if len(set(numbers)) < len(numbers):
        raise errors.InputError('two ids are the same number; give each client its own')

    def of(name, number):
      features, labels = data.examples(name)
      is_sparse = scipy.sparse.issparse(labels)
      return cls(
        sparse.as_tensors(features),
        sparse.as_tensors(labels),
        np.int64(number),
        labels.indices if is_sparse else labels,
      )

    return [*map(of, names, numbers)]


class KeptState(NamedTuple):
  """A client's state from the last round in which it participated."""

  # bool scalar; False for a client that has not participated yet.
  known: tf.Tensor
  value: Any  # Tensors as `parts.Part.spec` describes; zeros if `known` is False.


def nothing_kept(spec: Any) -> KeptState:
  """Returns the state of a client that has not participated yet."""

  def zeros(s):
    return np.zeros(s.shape, s.dtype.as_numpy_dtype)

  return KeptState(np.bool_(False), tf.nest.map_structure(zeros, spec))


def client_type(model: classifier.EmbeddingClassifier, state_spec: Any = None) -> tff.Type:
  """Returns the TFF type of `ClientExamples`.

  `state_spec` has the `tf.TensorSpec`s of the client state, or is None.
  """
  integers = tff.TensorType(np.int32, [None])
  of_specs = tff.types.tensorflow_to_type
  return tff.to_type(
    ClientExamples(
      of_specs(model.encoder.batch_spec()),
      sparse.LabelSets(integers, integers) if model.label_sets else integers,
      tff.TensorType(np.int64),
      integers,
      (),
      () if state_spec is None else KeptState(tff.TensorType(np.bool_), of_specs(state_spec)),
    )
  )


# The name of the metric with the clients' states.
NAME = 'client_states'
# The largest number of states in each stack of an accumulator, see `folding`.
_MOST = (4, 16, 64)


class KeptStates(NamedTuple):
  """The states of a round's clients."""

  ids: tf.Tensor  # int64 [K], the clients' ids.
  value: Any  # Tensors as `parts.Part.spec` describes, with K as the first dimension.


def build_collect(spec: Any) -> Callable:
  """Returns a function that adds the clients' states to the metrics.

  The function takes (metrics@SERVER, ids@CLIENTS, `KeptState`s@CLIENTS). Clients without a
  known state are left out.
  """

  @tff.tensorflow.computation
  def message(client_id, state):
    count = tf.cast(state.known, tf.int32)

    def alone(t):
      return tf.repeat(t[None], count, axis=0)

    return tf.nest.map_structure(alone, KeptStates(client_id, state.value))

  entry = KeptStates(tf.TensorSpec([], tf.int64), spec)
  zero, *functions = folding.aggregation(entry, folding.side_by_side, _MOST)

  @tff.tensorflow.computation
  def added(measured, kept):
    return collections.OrderedDict(**measured, **{NAME: kept})

  def collect(measured, client_ids, states):
    messages = tff.federated_map(message, (client_ids, states))
    joined = tff.federated_aggregate(messages, zero(), *functions)
    return tff.federated_map(added, (measured, joined))

  return collect
