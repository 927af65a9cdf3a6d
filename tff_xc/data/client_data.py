"""Labelled client data, the form of every data set of this package.

`LabelledClientData` is a `tff.simulation.datasets.ClientData` with two more
methods. `labels` returns a client's labels without decoding its examples, and
`examples` returns its examples as two arrays. Federated extreme classification
needs both all the time.
"""

import abc
import collections
import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.data import sparse


class Examples(NamedTuple):
  """Some examples: `x` [k, ...] as stored (images uint8), `y` int32 [k].

  Of sparse examples, `x` is `sparse.SparseFeatures`. Of multi-label examples,
  which occur only in test sets, `y` is `sparse.LabelSets`.
  """

  x: np.ndarray | sparse.SparseFeatures
  y: np.ndarray | sparse.LabelSets


class LabelledClientData(tff.simulation.datasets.ClientData, abc.ABC):
  """Client data whose labels are known without decoding an example.

  Elements of a client's data set are `OrderedDict(x=..., y=int32[])`.
  """

  def __init__(self, client_ids: Sequence[str], example_spec: tf.TensorSpec):
    """Args: the clients' ids, in their order, and the spec of one `x`."""
    self._client_ids = list(client_ids)
    self._example_spec = example_spec

  @abc.abstractmethod
  def labels(self, client_id: str) -> np.ndarray:
    """Returns int32 [n_k], the client's labels, in the order of `examples`."""

  @abc.abstractmethod
  def examples(self, client_id: str) -> Examples:
    """Returns the client's decoded examples."""

  @property
  def client_ids(self) -> list[str]:
    return self._client_ids

  @property
  def element_type_structure(self):
    return collections.OrderedDict(
      x=self._example_spec, y=tf.TensorSpec([], tf.int32)
    )

  @property
  def serializable_dataset_fn(self) -> Callable[[str], tf.data.Dataset]:
    """A traceable function from a client's id to its data set.

    It calls back into this process. It therefore works with `tf.data` here
    (TFF's `preprocess`, `create_tf_dataset_from_all_clients`), not in TFF's
    worker.
    """

    def dataset_fn(client_id):
      x, y = tf.numpy_function(
        lambda name: tuple(self.examples(name.decode())),
        [client_id],
        [self._example_spec.dtype, tf.int32],
      )
      x.set_shape([None, *self._example_spec.shape])
      y.set_shape([None])
      return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(x=x, y=y)
      )

    return dataset_fn

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    examples = self.examples(client_id)
    return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=examples.x, y=examples.y)
    )


@dataclasses.dataclass(frozen=True)
class FederatedDataset:
  """A data set in the form that training and evaluation use.

  Attributes:
    name: the name by which a user selects it.
    num_classes: n; labels of `train` and `test` lie in [0, n).
    train: the clients.
    test: loads the examples for top-1 over all n classes, or None.
    retrieval: loads the examples of classes that are not trained on, for
      MAP@10 and MAP@R, or None.
    propensity: the labels' propensities in a multi-label set, for PSP@k, or
      None.
    exact: whether examples are the same to the bit on every machine. Examples
      drawn with floating-point arithmetic are not.
  """

  name: str
  num_classes: int
  train: LabelledClientData
  test: Callable[[], Examples] | None = None
  retrieval: Callable[[], Examples] | None = None
  propensity: sparse.Propensity | None = None
  exact: bool = True


def held_out_once(dataset: FederatedDataset) -> FederatedDataset:
  """Returns the data set such that held-out examples are decoded only once."""
  once = lambda load: load and functools.cache(load)
  return dataclasses.replace(
    dataset, test=once(dataset.test), retrieval=once(dataset.retrieval)
  )
