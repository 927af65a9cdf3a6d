"""Clients by class.

Federated extreme classification uses a multi-label set in this form (Yu et al.,
FedAwS, ICML 2020, section 5.3): every training example has one label, and each
class is a client.
"""

import numpy as np

from tff_xc import errors
from tff_xc.data import partition as partition_lib


def partition(
  labels: np.ndarray,
  num_classes: int,
  *,
  classes_per_client: int = 1,
  clients_per_class: int = 1,
  seed: int = 0,
) -> partition_lib.Partition:
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
    place = _random_places(classes, num_classes, seed)
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
  return partition_lib.Partition(
    [names(k) for k in key[starts].tolist()],
    np.append(starts, len(key)),
    numbers[by_client],
  )


def _random_places(classes: np.ndarray, num_classes: int, seed: int):
  """Returns int64 [n]: each class's place in a random order of those present."""
  present = np.flatnonzero(np.bincount(classes, minlength=num_classes))
  place = np.zeros(num_classes, np.int64)
  random = np.random.default_rng(seed)
  place[random.permutation(present)] = np.arange(len(present))
  return place


def _check_range(name: str, value: int, high: int) -> None:
  if not 1 <= value <= high:
    raise errors.InputError(f'{name} is {value}; take 1 to {high} here')
