"""Held-out examples of every client, and clients that are held out whole.

`--client_test_fraction` and `--unseen_clients` of training, on any data set. Both are
drawn by the seed of the data, so that runs of every seed and algorithm hold out alike.
"""

import dataclasses

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import hold_out
from tff_xc import errors
from tff_xc.data import client_data, partition as partition_lib

TEST_FRACTION, UNSEEN = 'client_test_fraction', 'unseen_clients'
# Streams of numpy generators: [seed, stream]; 0 and 1 are those of `own`.
_TEST, _CLIENTS, _OWN_TEST = 2, 3, 4


def with_own_test(
  dataset: client_data.FederatedDataset,
  seed: int,
  users: tuple[np.ndarray, np.ndarray] | None = None,
) -> client_data.FederatedDataset:
  """Returns the set whose clients have the test examples as their own.

  `users`, int [N] and [k], are those of training and test examples. None: a rule made
  the clients, and the test is drawn from the same examples (`--test_fraction`), so that
  `hold_out.owners_of` gives each example to a client of its class. Of a set of labels
  one counts, drawn by `seed`. A set without a test, or whose clients have their own
  test examples, is returned unchanged.
  """
  pool, test = dataset.train.pool, dataset.test
  if test is None or dataset.held_out is not None:
    return dataset
  clients = dataset.train.partition
  labels = [examples_lib.sample_labels(each.y, seed) for each in (pool, test)]
  if not scipy.sparse.issparse(pool.y):
    test = dataclasses.replace(test, y=labels[1])
  by, of_test = users or labels
  owners = hold_out.owners_of(of_test, by[clients.numbers], clients.owners(), [seed, _OWN_TEST])
  owners = np.append(np.full(len(pool), -1), owners)
  return dataclasses.replace(
    dataset,
    train=client_data.PartitionedClientData(pool.joined(test), clients),
    held_out=partition_lib.of_places(owners, clients.client_ids),
  )


def hold_out_parts(
  dataset: client_data.FederatedDataset, test_fraction: float, unseen: float, seed: int
) -> client_data.FederatedDataset:
  """Returns the set whose clients do not train on what is held out.

  `test_fraction` of each client's examples are, rounded up or down at random, never
  all of them; they are the test if the set has none. `unseen` is a share of the
  clients, at least one; without held-out examples of clients, all examples of an
  unseen client are held out. 0: none. InputError where that cannot be.
  """
  pool, clients = dataset.train.pool, dataset.train.partition
  held_out, test = dataset.held_out, dataset.test
  if test_fraction:
    if held_out is not None and len(held_out.numbers):
      raise errors.InputError(
        f'--{TEST_FRACTION}={test_fraction}: clients of {dataset.name} have test'
        ' examples of their own already; leave it out'
      )
    owners, of_test = clients.owners(), [seed, _TEST]
    held = hold_out.by_client(owners, test_fraction, of_test, TEST_FRACTION)
    clients, held_out = clients.where(~held), clients.where(held)
    if test is None:
      test = pool.subset(held_out.numbers)
  never = None
  if unseen:
    total = len(clients)
    count = max(1, round(unseen * total))
    if count >= total:
      raise errors.InputError(
        f'--{UNSEEN}={unseen} of {total:,} leaves nobody to train; give less, or'
        ' data of more clients'
      )
    random = np.random.default_rng([seed, _CLIENTS])
    drawn = np.zeros(total, bool)
    drawn[random.choice(total, count, replace=False)] = True
    strangers, others = np.flatnonzero(drawn), np.flatnonzero(~drawn)
    own = clients.some(strangers)
    if held_out is None:
      nothing = own.where(np.zeros(len(own.numbers), bool))
      never = client_data.Unseen(nothing, own)
    else:
      never = client_data.Unseen(own, held_out.some(strangers))
      held_out = held_out.some(others)
    clients = clients.some(others)
  return dataclasses.replace(
    dataset,
    train=client_data.PartitionedClientData(pool, clients),
    test=test,
    held_out=held_out,
    unseen=never,
  )
