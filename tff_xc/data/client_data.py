"""Federated data sets: a pool of examples and its partition among clients."""

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors, wording
from tff_xc.data import (
  description as description_lib,
  partition as partition_lib,
  pool as pool_lib,
  sparse,
)


class PartitionedClientData(tff.simulation.datasets.ClientData):
  """A pool whose examples belong to clients.

  Elements of a client's data set are `OrderedDict(x=..., y=int32[])`. A sparse
  x is `OrderedDict(ids=int32[f], values=float32[f])`, where f differs between
  elements. If examples have sets of labels, y is int32[l], the l labels of an example.
  """

  def __init__(self, pool: pool_lib.Pool, partition: partition_lib.Partition):
    """Raises ValueError if the partition has example numbers outside the pool."""
    numbers = partition.numbers
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(pool):
      raise ValueError(
        f'a partition has example {numbers.min()} to {numbers.max()}; the pool has {len(pool)}.'
      )
    self.pool = pool
    self.partition = partition
    self._index = {name: k for k, name in enumerate(partition.client_ids)}
    self._largest: dict[int, int] = {}  # The cached results of `largest_feature_set`.

  def numbers(self, client_id: str) -> np.ndarray:
    """Returns int64 [n_k], the numbers of the client's examples."""
    return self.partition.of_client(self._index[client_id])

  def labels(self, client_id: str) -> np.ndarray | scipy.sparse.csr_matrix:
    """Returns the client's labels, in the order of `examples`."""
    return self.pool.labels[self.numbers(client_id)]

  def examples(self, client_id: str) -> pool_lib.Examples:
    """Reads the client's examples."""
    return self.pool.examples(self.numbers(client_id))

  def owned_labels(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns client indices int [m] and labels int32 [m], one pair for each owned label."""
    owners, labels = self.partition.owners(), self.pool.labels[self.partition.numbers]
    if scipy.sparse.issparse(labels):
      return np.repeat(owners, np.diff(labels.indptr)), labels.indices
    if self.pool.is_sequences:
      x = self.pool.read(self.partition.numbers)
      lengths = np.diff(x.indptr)
      is_label = np.rint(1 / x.data) < np.repeat(lengths, lengths)
      owners = np.append(owners, np.repeat(owners, lengths)[is_label])
      labels = np.append(labels, x.indices[is_label])
    return owners, labels

  @functools.cached_property
  def classes(self) -> np.ndarray:
    """int32 [c], the classes of all clients' examples, ascending."""
    return np.unique(self.owned_labels()[1])

  @functools.cached_property
  def largest_label_set(self) -> int:
    """The largest number of distinct classes of any client; InputError without examples."""
    owners, labels = self.owned_labels()
    if not len(labels):
      raise errors.InputError('no client has any examples; give clients with labelled examples')
    stride = int(labels.max()) + 1
    pairs = np.unique(owners * stride + labels)
    return int(np.bincount(pairs // stride).max())

  @functools.cached_property
  def largest_tied_set(self) -> int:
    """The largest number of distinct ids among the features and labels of any client."""
    entries = self.pool.entries[self.partition.numbers].astype(np.int64) + 1
    bounds = np.bincount(self.partition.owners(), entries, len(self.partition)).astype(int)
    return self._largest_set(bounds, with_labels=True)

  def largest_feature_set(self, examples_per_round: int = 0) -> int:
    """Returns a bound, at least 1, on the distinct features that a client uses in a round.

    With `examples_per_round` 0, clients use all of their examples and the bound is exact.
    Otherwise the bound of a client is the smaller of two numbers: the total number of
    features in its `examples_per_round` longest examples, and the number of distinct
    features in all its examples.
    """
    if examples_per_round in self._largest:
      return self._largest[examples_per_round]
    entries = self.pool.entries[self.partition.numbers].astype(np.int64)
    owners = self.partition.owners()
    if examples_per_round:
      order = np.lexsort([-entries, owners])
      rank = np.arange(len(order)) - self.partition.offsets[owners]
      kept = order[rank < examples_per_round]
      owners, entries = owners[kept], entries[kept]
    bounds = np.bincount(owners, entries, len(self.partition)).astype(int)
    largest = self._largest[examples_per_round] = self._largest_set(bounds)
    return largest

  def _largest_set(self, bounds: np.ndarray, with_labels: bool = False) -> int:
    """Returns the largest number of distinct features (and labels) of any client.

    `bounds`, int [K], has an upper bound of this number for each client.
    """
    largest = 1
    for client in np.argsort(-bounds, kind='stable'):
      if bounds[client] <= largest:
        break  # The remaining bounds are no larger.
      numbers = self.partition.of_client(client)
      ids = self.pool.read(numbers).indices
      if with_labels:
        ids = np.append(ids, self.pool.labels[numbers])
      largest = max(largest, min(int(bounds[client]), len(np.unique(ids))))
    return largest

  @property
  def client_ids(self) -> list[str]:
    return self.partition.client_ids

  @property
  def element_type_structure(self):
    shape = [None] if scipy.sparse.issparse(self.pool.labels) else []
    return collections.OrderedDict(x=self.pool.spec, y=tf.TensorSpec(shape, tf.int32))

  @property
  def serializable_dataset_fn(self) -> Callable[[str], tf.data.Dataset]:
    """A traceable function from a client's id to its data set.

    The function calls Python code of this process. It therefore works with `tf.data` in this
    process, but not in TFF's worker process.
    """
    none = self._tensors(np.zeros(0, np.int64))

    def dataset_fn(client_id):
      flat = tf.numpy_function(
        lambda name: tf.nest.flatten(self._tensors(self.numbers(np.asarray(name).item().decode()))),
        [client_id],
        [array.dtype for array in tf.nest.flatten(none)],
      )
      for tensor, array in zip(flat, tf.nest.flatten(none), strict=True):
        tensor.set_shape([None, *array.shape[1:]])
      return _dataset(tf.nest.pack_sequence_as(none, flat))

    return dataset_fn

  def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
    return _dataset(self._tensors(self.numbers(client_id)))

  def _tensors(self, numbers: np.ndarray) -> pool_lib.Examples:
    examples = self.pool.examples(numbers)
    return pool_lib.Examples(*map(sparse.as_tensors, examples))


def _dataset(examples: pool_lib.Examples) -> tf.data.Dataset:
  """Makes a data set with one element for each example."""
  x, labels = examples
  row = tf.RaggedTensor.from_row_splits
  if isinstance(x, sparse.SparseFeatures):
    x = collections.OrderedDict(ids=row(x.ids, x.row_splits), values=row(x.values, x.row_splits))
  if isinstance(labels, sparse.LabelSets):
    labels = row(labels.ids, labels.row_splits)
  return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=labels)).map(
    lambda element: element
  )  # The map turns rows of ragged tensors into tensors.


class Unseen(NamedTuple):
  """Clients that never train, as partitions of the pool of `FederatedDataset.train`."""

  train: partition_lib.Partition  # Examples to which a client may adapt a model.
  held_out: partition_lib.Partition  # Examples on which a client is scored.


# If there are at least this many class numbers for each class that occurs, the numbering is
# probably wrong.
_GAPS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class FederatedDataset:
  """A data set in the form that training and evaluation use.

  Raises InputError unless the labels of `train`, `test` and `validation` lie in [0, n).
  """

  name: str
  num_classes: int  # n.
  train: PartitionedClientData
  test: pool_lib.Pool | None = None
  # Examples of classes that are not trained on, for MAP@10 and MAP@R.
  retrieval: pool_lib.Pool | None = None
  # Examples whose score may select the best round.
  validation: pool_lib.Pool | None = None
  propensity: sparse.Propensity | None = None
  # Whether examples are bit-identical on every machine. Decoded JPEGs and examples that are
  # drawn with floating-point arithmetic are not.
  exact: bool = True
  # Checksum of the source of the examples, or '' if the source has no checksum.
  source_checksum: str = ''
  class_names: Sequence[str] | None = None  # [n]; None if classes have only numbers.
  # Each training client's held-out examples, as numbers in the pool of `train`. None if the
  # data set does not say which client a test example belongs to.
  held_out: partition_lib.Partition | None = None
  # The entries of `Description.preprocessing` that cannot be computed from the examples.
  preprocessing: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  unseen: Unseen | None = None
  # Test scores of methods that need no training, by method.
  baselines: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    # A NumPy integer, such as y.max() + 1, would make TensorFlow computations int64.
    object.__setattr__(self, 'num_classes', operator.index(self.num_classes))
    owners, labels = self.train.owned_labels()
    bad = np.flatnonzero((labels < 0) | (labels >= self.num_classes))
    if len(bad):
      client = owners[bad[0]]
      where = f'client {self.train.client_ids[client]}'
      errors.check_labels(labels[owners == client], self.num_classes, where)
    for part in ('test', 'validation'):
      if (pool := getattr(self, part)) is not None:
        where = f'{self.name}, {part} examples'
        errors.check_labels(pool.each_label, self.num_classes, where)

  @functools.cached_property
  def description(self) -> description_lib.Description:
    """The properties of the data that a network depends on."""
    pool = self.train.pool
    if pool.entries is not None:
      shape, dtype = (pool.num_features,), 'float32'
      kind = description_lib.SPARSE
      how = {'num_features': pool.num_features, 'hashed': False}
    else:
      shape, dtype = tuple(pool.spec.shape), pool.spec.dtype.name
      kind, how = description_lib.ROWS, {}
      if len(shape) > 1:
        kind, how = description_lib.IMAGES, {'fit': 'crop'}
      elif 'alphabet' in self.preprocessing:
        kind = description_lib.CHARACTERS
    return description_lib.Description(
      kind,
      shape,
      dtype,
      num_classes=self.num_classes,
      label_sets=scipy.sparse.issparse(pool.labels),
      num_clients=len(self.train.partition),
      largest_label_set=self.train.largest_label_set,
      preprocessing={**how, **self.preprocessing},
    )

  def warnings(self) -> list[str]:
    """Returns sentences about properties of the classes that are probably mistakes."""
    trained, names = self.train.classes, self.class_names or range(self.num_classes)
    tested = trained[:0] if self.test is None else self.test.each_label
    found = []
    unseen = np.setdiff1d(tested, trained)
    if len(unseen):
      such = ', '.join(wording.shown(names[c]) for c in unseen[:3])
      found.append(
        f'{wording.count(len(unseen), "class")} of the test without a training'
        f' example, which no model can learn: {such}{" ..." * (len(unseen) > 3)}'
      )
    occurring = len(np.union1d(trained, tested))
    if occurring * _GAPS <= len(names):
      found.append(
        f'labels up to {len(names) - 1:,}, of which only {occurring:,} occur:'
        ' number the classes from 0 without gaps, because each class takes a row'
      )
    return found

  def repartitioned(self, rule: Callable) -> 'FederatedDataset':
    """Returns the data set with other clients for the same training examples.

    `rule` makes a `Partition` from the labels of the examples that clients have, in the order
    of the pool. Held-out examples and unseen clients are left out.
    """
    numbers, pool = np.unique(self.train.partition.numbers), self.train.pool
    made = rule(pool.labels[numbers])
    made = dataclasses.replace(made, numbers=numbers[made.numbers])
    train = PartitionedClientData(pool, made)
    return dataclasses.replace(self, train=train, held_out=None, unseen=None)
