"""Clients cut from the examples sorted by class: chunks and shards."""

import numpy as np

from tff_xc import errors
from tff_xc import wording
from tff_xc.data import partition as partition_lib


def chunks(
  labels: np.ndarray, *, examples_per_client: int = 100
) -> partition_lib.Partition:
  """Each client has the next `examples_per_client` examples; the last, the rest.

  FedSS (Waghmare et al., section 4.1) has 596 clients of Stanford Online Products
  with 100 images of about 20 classes each: such chunks have that.

  Args:
    labels: int [N]; an example with a label below 0 goes to no client.
    examples_per_client: examples of every client but the last.

  Raises:
    errors.InputError: no example has a label.
  """
  order = _by_class(labels)
  return _clients(labels, order, np.arange(len(order)) // examples_per_client)


def shards(
  labels: np.ndarray,
  *,
  num_clients: int = 100,
  shards_per_client: int = 2,
  seed: int = 0,
) -> partition_lib.Partition:
  """Cuts the sorted examples into equal shards; each client has some at random.

  McMahan et al.: Communication-efficient learning of deep networks from
  decentralized data, AISTATS 2017: 100 clients of MNIST with two shards of 300.
  Here shards differ by one example, if need be, so that all are dealt.

  Args:
    labels: int [N]; an example with a label below 0 goes to no client.
    num_clients: K.
    shards_per_client: s; there are K · s shards.
    seed: of the clients' shards.

  Raises:
    errors.InputError: there are fewer examples than shards.
  """
  order = _by_class(labels)
  count = num_clients * shards_per_client
  if count > len(order):
    raise errors.InputError(
      f'{wording.count(len(order), "training example")} cannot make'
      f' {wording.count(num_clients, "client")} of'
      f' {wording.count(shards_per_client, "shard")}; give fewer --clients, or'
      ' fewer --shards_per_client'
    )
  owner = np.empty(count, np.int64)
  owner[np.random.default_rng(seed).permutation(count)] = (
    np.arange(count) // shards_per_client
  )
  sizes = np.diff(np.arange(count + 1) * len(order) // count)
  return _clients(labels, order, np.repeat(owner, sizes))


def _by_class(labels: np.ndarray) -> np.ndarray:
  """Returns the numbers of the labelled examples, sorted by class."""
  numbers = np.flatnonzero(labels >= 0)
  if not len(numbers):
    raise errors.InputError('no example has a label; give labelled examples')
  return numbers[np.argsort(labels[numbers], kind='stable')]


def _clients(labels, order, owner: np.ndarray) -> partition_lib.Partition:
  """Returns clients '0', '1', ...: example order[i] goes to owner[i]."""
  owners = np.full(len(labels), -1, np.int32)
  owners[order] = owner
  return partition_lib.of_places(
    owners, list(map(str, range(int(owner.max()) + 1)))
  )
