"""Partitions of a pool: which client has which examples."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
  """The examples of K clients. An example may belong to no client.

  Client k has numbers[offsets[k]:offsets[k + 1]]. Raises ValueError for invalid fields.
  """

  client_ids: list[str]  # [K], all different.
  offsets: np.ndarray  # int64 [K + 1], from 0 to the number of examples.
  numbers: np.ndarray  # int64, the examples' numbers in the pool.

  def __post_init__(self):
    if len(set(self.client_ids)) < len(self.client_ids):
      raise ValueError('two clients have one id.')
    for name in ('offsets', 'numbers'):
      object.__setattr__(self, name, _integers(getattr(self, name), name))
    offsets = self.offsets
    if len(offsets) != len(self.client_ids) + 1:
      raise ValueError(
        f'{len(offsets)} offsets do not delimit the examples of {len(self.client_ids)} clients.'
      )
    total = len(self.numbers)
    if offsets[0] != 0 or offsets[-1] != total or (np.diff(offsets) < 0).any():
      raise ValueError(
        f'offsets are {offsets}; they must ascend from 0 to the number of examples, {total}.'
      )

  def __len__(self) -> int:
    """Returns K."""
    return len(self.client_ids)

  def of_client(self, index: int) -> np.ndarray:
    """Returns int64 [n_k], the numbers of client `index`'s examples."""
    return self.numbers[self.offsets[index] : self.offsets[index + 1]]

  @property
  def sizes(self) -> np.ndarray:
    """int64 [K], the number of examples of each client."""
    return np.diff(self.offsets)

  def owners(self) -> np.ndarray:
    """Returns int64 [examples], for each entry of `numbers` the index of its client."""
    return np.repeat(np.arange(len(self)), self.sizes)

  def where(self, kept: np.ndarray) -> 'Partition':
    """Returns the same clients with the examples for which `kept`, bool [examples], is true."""
    sizes = np.bincount(self.owners()[kept], minlength=len(self))
    offsets = np.cumsum(np.append(0, sizes))
    return Partition(self.client_ids, offsets, self.numbers[kept])

  def some(self, indices: np.ndarray) -> 'Partition':
    """Returns the partition among only the clients with these indices, int [k]."""
    return of_clients({self.client_ids[i]: self.of_client(i) for i in indices.tolist()})


def of_owners(owners: np.ndarray) -> Partition:
  """Returns the partition with one client for each distinct owner, in sorted order.

  `owners` [N], integers or strings, are the owners of the N examples. A client's examples
  keep their order.
  """
  names, places = np.unique(owners, return_inverse=True)
  return of_places(places, [str(name) for name in names])


def of_places(owners: np.ndarray, client_ids: Sequence[str]) -> Partition:
  """Returns the partition among the clients `client_ids`.

  `owners`, int [N], has the index of each example's client. An example with a negative
  index belongs to no client. A client's examples keep their order.
  """
  numbers = np.flatnonzero(owners >= 0)
  owners = owners[numbers]
  return Partition(
    list(client_ids),
    np.cumsum(np.append(0, np.bincount(owners, minlength=len(client_ids)))),
    numbers[np.argsort(owners, kind='stable')],
  )


def of_clients(clients: Mapping[str, Sequence[int]]) -> Partition:
  """Returns the partition in which each client id has the examples of the given numbers."""
  parts = [_integers(part, f'{k!r}') for k, part in clients.items()]
  return Partition(
    list(clients), np.cumsum([0, *map(len, parts)]), np.concatenate([np.zeros(0, np.int64), *parts])
  )


def _integers(values: Sequence[int], name: str) -> np.ndarray:
  """Returns values as int64 [k]; raises ValueError unless they are integers [k] or empty."""
  array = np.asarray(values)
  if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
    raise ValueError(
      f'{name} is {array.dtype} {list(array.shape)}; expected integers in one dimension.'
    )
  return array.astype(np.int64, copy=False)
