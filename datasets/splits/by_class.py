"""Clients that hold sparse examples, grouped by class.

Federated extreme classification uses a multi-label set in this form (Yu et al.,
FedAwS, ICML 2020, section 5.3): every training example has one label, and each
class is a client.
"""

import abc
import collections
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import client_data


class Grouping(NamedTuple):
  """The assignment of examples to clients.

  Attributes:
    client_ids: [K], all different.
    order: int64 [examples], the examples' numbers, sorted by client.
    splits: int64 [K + 1]; client k has order[splits[k]:splits[k + 1]].
  """

  client_ids: list[str]
  order: np.ndarray
  splits: np.ndarray


def group(
  labels: np.ndarray,
  num_classes: int,
  *,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
  seed: int = 0,
) -> Grouping:
  """Groups classes into clients; each client has at least one example.

  A client is a class, `class/0012`; or several random classes, `classes/0012`;
  or a share of a class, `class/0012/3`. Shares are dealt out example by example
  in turn. Within a client examples keep their order. Takes O(examples · log
  examples).

  Args:
    labels: int [N]; an example with a label below 0 goes to no client.
    num_classes: n.
    classes_per_client: classes of a client (the last may have fewer).
    clients_per_class: clients that share a class (fewer if it has fewer
      examples); must be 1 unless classes_per_client is 1.
    seed: determines which classes share a client.

  Raises:
    errors.InputError: numbers of classes and clients out of range.
  """
  _check_range('classes_per_client', classes_per_client, num_classes)
  _check_range('clients_per_class', clients_per_class, 2**31 - 1)
  if classes_per_client > 1 < clients_per_class:
    raise errors.InputError(
      f'classes_per_client is {classes_per_client} and clients_per_class '
      f'{clients_per_class}; set one of them to 1'
    )
  numbers = np.flatnonzero(labels >= 0)
  classes = labels[numbers].astype(np.int64)
  by_class = np.argsort(classes, kind='stable')
  numbers, classes = numbers[by_class], classes[by_class]
  width = len(str(num_classes - 1))
  if classes_per_client > 1:
    present = np.flatnonzero(np.bincount(classes, minlength=num_classes))
    place = np.zeros(num_classes, np.int64)
    random = np.random.default_rng(seed)
    place[random.permutation(present)] = np.arange(len(present))
    key = place[classes] // classes_per_client
    names = lambda k: f'classes/{k:0{width}d}'
  elif clients_per_class > 1:
    turn = np.arange(len(classes)) - np.searchsorted(classes, classes)
    key = classes * clients_per_class + turn % clients_per_class
    names = lambda k: (
      f'class/{k // clients_per_class:0{width}d}/{k % clients_per_class}'
    )
  else:
    key = classes
    names = lambda k: f'class/{k:0{width}d}'
  by_client = np.lexsort([numbers, key])
  key = key[by_client]
  starts = np.flatnonzero(np.diff(key, prepend=-1))
  return Grouping(
    [names(k) for k in key[starts].tolist()],
    numbers[by_client],
    np.append(starts, len(key)),
  )


class SparseClientData(client_data.LabelledClientData, abc.ABC):
  """Clients of a `Grouping`.

  Elements of a client's data set are `OrderedDict(x=OrderedDict(ids=int32[f],
  values=float32[f]), y=int32[])`, where f differs between elements.
  """

  def __init__(self, grouping: Grouping, labels: np.ndarray):
    """Args: the clients, and the label of each example, int [N]."""
    self._grouping = grouping
    self._label_of = labels
    self._places = {name: k for k, name in enumerate(grouping.client_ids)}
    spec = collections.OrderedDict(
      ids=tf.TensorSpec([None], tf.int32),
      values=tf.TensorSpec([None], tf.float32),
    )
    super().__init__(grouping.client_ids, spec)

  def numbers(self, client_id: str) -> np.ndarray:
    """Returns int64 [n_k], the numbers of the client's examples, ascending."""
    k = self._places[client_id]
    start, end = self._grouping.splits[k : k + 2]
    return self._grouping.order[start:end]

  def labels(self, client_id: str) -> np.ndarray:
    return self._label_of[self.numbers(client_id)].astype(np.int32)

  @abc.abstractmethod
  def feature_counts(self, client_id: str) -> np.ndarray:
    """Returns int [n_k], upper bounds of its examples' numbers of features."""

  @property
  def serializable_dataset_fn(self):
    def dataset_fn(client_id):
      arrays = tf.numpy_function(
        lambda name: self._arrays(tf.compat.as_str(np.asarray(name).item())),
        [client_id],
        [tf.int32, tf.int32, tf.float32, tf.int32],
      )
      for array in arrays:
        array.set_shape([None])
      return _dataset(*arrays)

    return dataset_fn

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    return _dataset(*self._arrays(client_id))

  def _arrays(self, client_id: str) -> tuple[np.ndarray, ...]:
    (row_splits, ids, values), y = self.examples(client_id)
    return row_splits, ids, values, y


def _dataset(row_splits, ids, values, y) -> tf.data.Dataset:
  """Makes a data set with one element for each example."""

  def ragged(array):
    return tf.RaggedTensor.from_row_splits(array, row_splits)

  dataset = tf.data.Dataset.from_tensor_slices((ragged(ids), ragged(values), y))

  def element(ids, values, y):
    x = collections.OrderedDict(ids=ids, values=values)
    return collections.OrderedDict(x=x, y=y)

  return dataset.map(element)


def _check_range(name: str, value: int, high: int) -> None:
  if not 1 <= value <= high:
    raise errors.InputError(f'{name} is {value}; take 1 to {high} here')
