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

  A client is a class, `class/0012`; or several random classes, `classes/0012`.
  If several clients share a class, each has a share of it, `class/0012/3`, or of
  each of its classes, `classes/0012/3`: the classes of shares with one number
  are grouped anew for each number. Shares are dealt out example by example in
  turn. Within a client examples keep their order. Takes O(examples · log
  examples).

  Args:
    labels: int [N]; an example with a label below 0 goes to no client.
    num_classes: n.
    classes_per_client: classes of a client (the last may have fewer).
    clients_per_class: clients that share a class (fewer if it has fewer
      examples).
    seed: determines which classes share a client.

  Raises:
    errors.InputError: numbers of classes and clients out of range.
  """
  _check_range('classes_per_client', classes_per_client, num_classes)
  _check_range('clients_per_class', clients_per_class, 2**31 - 1)
  numbers = np.flatnonzero(labels >= 0)
  classes = labels[numbers].astype(np.int64)
  by_class = np.argsort(classes, kind='stable')
  numbers, classes = numbers[by_class], classes[by_class]
  turn = np.arange(len(classes)) - np.searchsorted(classes, classes)
  share = turn % clients_per_class
  group, noun = classes, 'class'
  if classes_per_client > 1:
    place = _random_places(classes, num_classes, clients_per_class, seed)
    group, noun = place[share, classes] // classes_per_client, 'classes'
  key = group * clients_per_class + share
  by_client = np.lexsort([numbers, key])
  key = key[by_client]
  starts = np.flatnonzero(np.diff(key, prepend=-1))
  width = len(str(num_classes - 1))
  names = [
    f'{noun}/{k // clients_per_class:0{width}d}' for k in key[starts].tolist()
  ]
  if clients_per_class > 1:
    digits = len(str(clients_per_class - 1))
    shares = (key[starts] % clients_per_class).tolist()
    names = [
      f'{name}/{i:0{digits}d}' for name, i in zip(names, shares, strict=True)
    ]
  return partition_lib.Partition(
    names, np.append(starts, len(key)), numbers[by_client]
  )


def _random_places(classes, num_classes: int, num_shares: int, seed):
  """Returns int64 [shares, n]: each class's place in a random order.

  There is an order for each share's number, of the classes that have it.
  """
  counts = np.bincount(classes, minlength=num_classes)
  place = np.zeros([min(num_shares, max(counts, default=0)), num_classes], int)
  random = np.random.default_rng(seed)
  for share, row in enumerate(place):
    present = np.flatnonzero(counts > share)
    row[random.permutation(present)] = np.arange(len(present))
  return place


def _check_range(name: str, value: int, high: int) -> None:
  if not 1 <= value <= high:
    raise errors.InputError(f'{name} is {value}; take 1 to {high} here')
