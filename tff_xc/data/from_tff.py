"""Converts TFF's client data to the client data of this package."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors, wording
from tff_xc.data import client_data, partition, pool

_BATCH = 1024  # Examples to read at once if the data are not batched.
_WANTED = (
  'give pairs (x, y), or name the keys of the examples and of their labels, such as'
  " x='pixels', y='label'"
)

Source = tff.simulation.datasets.ClientData | Sequence[tf.data.Dataset]


def as_client_data(
  source: Source, ids: Iterable[str] | None = None, *, x: str = 'x', y: str = 'y'
) -> client_data.PartitionedClientData:
  """Reads clients' data sets into memory, in the form that `FederatedDataset` needs.

  Elements of the data sets are pairs (x, y), or mappings with keys for x and y. An element
  is one example or a batch. All x have the same shape. y is an integer, [] or [1], or a set
  of labels, bool [n]. Elements that could be either one example or a batch are refused.

  Args:
    source: `tff.simulation.datasets.ClientData`, or one data set for each client.
    ids: the clients to read, in this order (default: all). For a list of data sets, the
      clients' ids (default: the positions in the list).
    x: the key of the examples if elements are mappings.
    y: the key of the labels if elements are mappings.

  Raises:
    errors.InputError: a client is unknown, or the elements are not as described.
  """
  if ids is not None:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
      raise errors.InputError(f'ids are {ids!r}; give a list of clients')
    ids = list(ids)  # `ids` may be a generator.
  is_of_tff = isinstance(source, tff.simulation.datasets.ClientData)
  if is_of_tff:
    names = source.client_ids if ids is None else ids
    places = places_of(source, names)
  elif isinstance(source, list | tuple):
    names = [*map(str, range(len(source)) if ids is None else ids)]
    if len(names) != len(source):
      raise errors.InputError(
        f'{wording.count(len(source), "data set")} and'
        f' {wording.count(len(names), "id")}: give an id for each data set'
      )
  else:
    raise errors.InputError(
      'expected tff.simulation.datasets.ClientData, or a list with a'
      f' tf.data.Dataset for each client, got {type(source).__name__}'
    )
  if len(set(names)) < len(names):
    raise errors.InputError('a client is named twice; give each one once')
  if not names:
    raise errors.InputError('no clients: give at least one')
  if isinstance(source, client_data.PartitionedClientData):
    chosen = source.partition.some(np.array(places, np.int64))
    return client_data.PartitionedClientData(source.pool, chosen)
  datasets = source
  if is_of_tff:
    datasets = map(source.create_tf_dataset_for_client, names)
  read = [_read(d, x, y, n) for d, n in zip(datasets, names, strict=True)]
  sizes = [len(labels) for _, labels in read]
  # If a client has no examples, their shape may be unknown.
  some = [part for part, size in zip(read, sizes, strict=True) if size]
  _check_alike(some, [n for n, size in zip(names, sizes, strict=True) if size])
  x_and_y = map(np.concatenate, zip(*(some or read[:1]), strict=True))
  owners = np.repeat(np.arange(len(read)), sizes)
  return client_data.PartitionedClientData(
    pool.in_memory(*x_and_y), partition.of_places(owners, names)
  )


def places_of(source: tff.simulation.datasets.ClientData, ids: Sequence[str]) -> list[int]:
  """Returns the indices of these clients in `source.client_ids`.

  Raises InputError for an unknown client.
  """
  places = {name: place for place, name in enumerate(source.client_ids)}
  for name in ids:
    if name not in places:
      known = ', '.join(map(repr, source.client_ids[:3]))
      raise errors.InputError(
        f'the data have no client {name!r}: expected some of their'
        f' {wording.count(len(places), "client")}, such as {known}'
      )
  return [places[name] for name in ids]


def _read(dataset: tf.data.Dataset, x: str, y: str, name: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns all of a client's examples and labels."""

  def refuse(what):
    raise errors.InputError(f'client {name}: {what}')

  if not isinstance(dataset, tf.data.Dataset):
    refuse(f'expected a tf.data.Dataset, got {type(dataset).__name__}')
  if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
    refuse('its data set never ends; leave out repeat() and set local_epochs')
  of_x, of_y = _parts(dataset.element_spec, x, y, refuse)
  for spec, what in ((of_x, 'examples'), (of_y, 'labels')):
    is_tensor = type(spec) is tf.TensorSpec and spec.shape.rank is not None
    if not is_tensor or spec.dtype == tf.string:
      refuse(f'{what} are {spec}; give tensors of numbers, of one shape')
  of_sets = of_y.dtype == tf.bool
  alone = int(of_sets)  # The rank of one example's labels.
  # Some data sets of TFF have labels [1]. But [1] may also be a batch of one label.
  rank = of_y.shape.rank
  are_vectors = not of_sets and rank in (1, 2) and of_y.shape[-1] == 1
  are_vectors = are_vectors and (rank == 2 or of_x.shape[:1] != [1])
  if are_vectors:
    of_y = tf.TensorSpec(of_y.shape[:-1], of_y.dtype)
  if of_y.shape.rank not in (alone, alone + 1) or not (of_y.dtype.is_integer or of_sets):
    refuse(
      f'labels are {of_y.dtype.name} {of_y.shape}; give integers, or sets of'
      ' labels as bool [n], in batches or not'
    )
  if of_sets and of_y.shape[-1] in (None, 1):
    refuse(
      f'labels are bool {of_y.shape}, and a set of labels is bool [n] of a known n'
      ' above 1; cast true and false to integers'
    )
  is_either = of_y.shape.rank == 1 and of_x.shape[:1] == of_y.shape
  if is_either and (of_sets or of_y.shape == [1]):
    refuse(
      f'examples {of_x.shape} with labels {of_y.dtype.name} {of_y.shape} may be'
      ' one example or a batch; batch the data set if its elements are examples, and'
      f' unbatch it if they are batches{", with integer labels" * of_sets}'
    )
  is_batched = of_y.shape.rank > alone
  if is_batched and not of_x.shape.rank:
    refuse('labels are in batches, and examples are not; batch both or none')
  if not is_batched:
    if len(dataset.element_spec) > 2:  # Values of other keys may have varying shapes.
      dataset = dataset.map(lambda element: {k: element[k] for k in (x, y)})
    dataset = dataset.batch(_BATCH)
  found = []
  try:
    for element in dataset:
      examples, labels = (p.numpy() for p in _parts(element, x, y, refuse))
      labels = labels[..., 0] if are_vectors else labels
      if len(examples) != len(labels):
        refuse(
          f'{wording.count(len(examples), "example")} with'
          f' {wording.count(len(labels), "label")} in a batch; give one for each'
        )
      found.append((examples, labels))
    if found:
      return tuple(map(np.concatenate, zip(*found, strict=True)))
  except tf.errors.ResourceExhaustedError:
    raise
  except (ValueError, tf.errors.OpError) as e:
    said = re.sub(r'\{\{.*?\}\}', '', str(e)).strip()  # Omit the name of TensorFlow's node.
    said = said.partition('\n')[0][:100]
    refuse(
      'its examples cannot be read and joined; bring them to one shape, and mend'
      f' what makes them ({said})'
    )
  return tuple(
    np.zeros(
      [0, *(size or 0 for size in spec.shape.as_list()[is_batched:])], spec.dtype.as_numpy_dtype
    )
    for spec in (of_x, of_y)
  )


def _parts(element: Any, x: str, y: str, refuse) -> tuple[Any, Any]:
  """Returns the examples and labels of an element or of an element spec."""
  if isinstance(element, Mapping):
    if x not in element or y not in element:
      keys = ', '.join(map(repr, element))
      refuse(f'its elements have the keys {keys}, not {x!r} and {y!r}; {_WANTED}')
    return element[x], element[y]
  if isinstance(element, tuple):
    if len(element) == 2:
      return element
    refuse(f'its elements have {wording.count(len(element), "part")}; map them to pairs (x, y)')
  return refuse(f'its elements have no labels; {_WANTED}')


def _check_alike(read, names) -> None:
  """Raises InputError unless all clients' examples and labels have equal shapes and dtypes."""
  kinds = {}
  for parts, name in zip(read, names, strict=True):
    forms = [f'{part.dtype.name} {[*part.shape[1:]]}' for part in parts]
    kinds.setdefault(' with labels '.join(forms), name)
  if len(kinds) > 1:
    (first, one), (second, other), *_ = kinds.items()
    raise errors.InputError(
      f'client {one} has examples {first}, and client {other} {second}; bring all'
      ' clients to one form'
    )
