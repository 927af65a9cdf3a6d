"""A client's value in a round: its examples, and what it kept."""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.data import sparse


class ClientExamples(NamedTuple):
  """A client's value in a round.

  Attributes:
    x: [n_k, ...], stored examples, which the encoder decodes, or sparse ones.
    y: int32 [n_k], labels in [0, n); or `sparse.LabelSets` of n_k examples.
    client_id: int64 scalar, stable over rounds; seeds the client's randomness.
    all_y: int32 [m_k], the labels of all of the client's examples. They decide
      which class rows it requests. `x` and `y` are the examples that it uses
      this round; `all_y` equals `y` (or its ids) if it uses all.
    weights: float32 [n_k], weights of the examples in the loss, or () if none
      come with them.
    state: `KeptState`, what the client kept from its last round (see
      `nothing_kept`), or () for an algorithm without client state.
  """

  x: tf.Tensor | sparse.SparseFeatures
  y: tf.Tensor | sparse.LabelSets
  client_id: tf.Tensor
  all_y: tf.Tensor
  weights: tf.Tensor | tuple = ()
  state: Any = ()


class KeptState(NamedTuple):
  """What a client kept from the last round in which it took part.

  Attributes:
    known: bool scalar; False for a client that has not taken part yet.
    value: tensors as `ClientState.spec`; zeros if not known.
  """

  known: tf.Tensor
  value: Any


def nothing_kept(spec: Any) -> KeptState:
  """Returns the state of a client that has not taken part yet.

  Args:
    spec: the algorithm's `ClientState.spec`.
  """
  zeros = lambda s: np.zeros(s.shape, s.dtype.as_numpy_dtype)
  return KeptState(np.bool_(False), tf.nest.map_structure(zeros, spec))


def client_type(
  model: classifier.EmbeddingClassifier,
  weighted: bool = False,
  state_spec: Any = None,
) -> tff.Type:
  """Returns the type of a client's value.

  Args:
    model: its encoder and `label_sets` determine x and y.
    weighted: whether examples come with weights.
    state_spec: `tf.TensorSpec`s of a client's state, or None without one.
  """
  integers = tff.TensorType(np.int32, [None])
  of_specs = tff.types.tensorflow_to_type
  return tff.to_type(
    ClientExamples(
      of_specs(model.encoder.batch_spec()),
      sparse.LabelSets(integers, integers) if model.label_sets else integers,
      tff.TensorType(np.int64),
      integers,
      tff.TensorType(np.float32, [None]) if weighted else (),
      ()
      if state_spec is None
      else KeptState(tff.TensorType(np.bool_), of_specs(state_spec)),
    )
  )
