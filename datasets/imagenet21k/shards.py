"""Clients of ImageNet-21k: some shards each, of distinct classes.

Waghmare et al. (FedSS), section 4.1, have 25,691 clients with about 400 images of
20 classes, and do not say how they were made.
"""

import numpy as np

from datasets.splits import hold_out
from datasets.splits import rule
from tff_xc import errors
from tff_xc.data import partition as partition_lib

# Streams of numpy generators: [seed, stream].
_TEST, _DEAL = range(2)


def split(
  labels: np.ndarray,
  seed: int,
  *,
  test_share: float = 0.2,
  examples_per_shard: int = 20,
  shards_per_client: int = 20,
) -> rule.Split:
  """Holds out a share of each class, and deals the rest (`deal`).

  Args:
    labels: int [N]; an example with a label below 0 goes to nobody.
    seed: of all draws.
    test_share: of each class, rounded up or down at random; none of a class with
      one example.
    examples_per_shard, shards_per_client: see `deal`.

  Raises:
    errors.InputError: no example is held out, or none is left to be dealt.
  """
  test = hold_out.by_fraction(labels, test_share, [seed, _TEST], 'test_share')
  left = labels.copy()
  left[test] = -1
  train = deal(
    left,
    examples_per_shard=examples_per_shard,
    shards_per_client=shards_per_client,
    seed=[seed, _DEAL],
  )
  return rule.Split(train, test)


def deal(
  labels: np.ndarray, *, examples_per_shard: int, shards_per_client: int, seed
) -> partition_lib.Partition:
  """Cuts each class into shards, and deals them to clients at random.

  A class's examples are shuffled and cut; its last shard has the rest. A client
  has no two shards of one class. All shards are dealt: there are as few clients as
  that takes, and some have one shard less than `shards_per_client`. (If a class
  has more shards than there would be clients, there are as many clients as it has
  shards, and all have fewer.)

  Args:
    labels: int [N]; an example with a label below 0 goes to nobody.
    examples_per_shard: b.
    shards_per_client: s.
    seed: of the cuts and the clients.

  Raises:
    errors.InputError: no example has a label.
  """
  random = np.random.default_rng(seed)
  order = random.permutation(np.flatnonzero(labels >= 0))
  if not len(order):
    raise errors.InputError('no example has a label; give labelled examples')
  # Classes in random order: clients that are neighbours have nothing in common.
  place_of_class = random.permutation(int(labels.max()) + 1).astype(np.int32)
  places = place_of_class[labels[order]]
  by_class = np.argsort(places, kind='stable')
  order, places = order[by_class], places[by_class]
  counts = np.bincount(places)
  shards = -(-counts // examples_per_shard)
  owners = _owners(shards, shards_per_client, random)
  rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
  shard = (np.cumsum(shards) - shards)[places] + rank // examples_per_shard
  owner = np.full(len(labels), -1, np.int32)
  owner[order] = owners[shard]
  return partition_lib.of_places(owner, list(map(str, range(owners.max() + 1))))


def _owners(shards: np.ndarray, shards_per_client: int, random) -> np.ndarray:
  """Returns int64 [S]: the client of each shard.

  The shards, class by class, are dealt in turns of one shard a client. Within a
  turn the clients come in random order. A class has no more shards than there are
  clients. So only a class that goes on from one turn into the next could give a
  client two shards; those of the second turn go to clients without one.

  Args:
    shards: int [n], the shards of each class.
    shards_per_client: the most shards of a client.
    random: a numpy generator.
  """
  total = int(shards.sum())
  clients = max(-(-total // shards_per_client), int(shards.max()))
  class_of = np.repeat(np.arange(len(shards)), shards)
  owners = np.empty(total, np.int64)
  for start in range(0, total, clients):
    turn = random.permutation(clients)
    size = min(clients, total - start)
    if start and class_of[start] == class_of[start - 1]:
      first, last = np.searchsorted(class_of, class_of[start] + np.arange(2))
      has_one = np.isin(turn, owners[first:start])
      chosen = np.zeros(clients, bool)
      chosen[np.flatnonzero(~has_one)[: last - start]] = True
      turn = np.append(turn[chosen], turn[~chosen])
    owners[start : start + size] = turn[:size]
  return owners
