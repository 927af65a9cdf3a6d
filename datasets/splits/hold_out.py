"""Holds out test examples of an input, examples of every client, and whole clients.

`--client_test_fraction` holds out examples of each client, and `--unseen_clients` holds out
whole clients. Both flags work with any data set. Both samples depend only on the data's
seed, so runs with different seeds and algorithms hold out the same examples.
"""

import dataclasses

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from tff_xc import errors
from tff_xc.data import client_data, partition as partition_lib

# `sample` seeds its random generator with [0, _SAMPLE].
_SAMPLE = 0
TEST_FRACTION, UNSEEN = 'client_test_fraction', 'unseen_clients'
# Each random stream has the seed [seed, stream]; `deal` uses the streams 0 and 1.
_TEST, _CLIENTS, _OWN_TEST = 2, 3, 4


def by_fraction(
  labels: np.ndarray | scipy.sparse.csr_matrix, fraction: float, seed, flag: str = 'test_fraction'
) -> np.ndarray:
  """Samples the same share of every class, up to rounding.

  From a class with c examples, the function samples fraction · c examples, rounded up or
  down at random. It ignores examples without a label and classes with one example. If
  examples have sets of labels, [N, n], it ignores the labels. Returns the indices of the
  sampled examples, int64 [k], ascending. Error messages name the `flag`.
  """
  random = np.random.default_rng(seed)
  if scipy.sparse.issparse(labels):
    order = random.permutation(labels.shape[0])
  else:
    order, _, sizes = ranked_by_class(labels, random)
    order = order[sizes > 1]
  return _some(_spaced(order, fraction, random), f'--{flag}={fraction}')


def _spaced(order: np.ndarray, fraction: float, random) -> np.ndarray:
  """Returns a share of `order`, evenly spaced from a random start."""
  upto = np.floor(np.arange(len(order) + 1) * fraction + random.random())
  return order[np.diff(upto) > 0]


def by_client(owners: np.ndarray, fraction: float, seed, flag: str) -> np.ndarray:
  """Samples the same share of every client's examples, like `by_fraction` for classes.

  `owners` int [N] has the client of each example. Returns bool [N], true for the sampled
  examples.
  """
  random = np.random.default_rng(seed)
  order, _, sizes = ranked_by_class(owners, random)
  drawn = _spaced(order[sizes > 1], fraction, random)
  if not len(drawn):
    raise errors.InputError(
      f'--{flag}={fraction} holds out no example: no client has one to spare; give'
      ' clients with more examples, hold out more, or leave the flag out'
    )
  return np.isin(np.arange(len(owners)), drawn)


def owners_of(test_labels: np.ndarray, labels: np.ndarray, owners: np.ndarray, seed) -> np.ndarray:
  """Gives each test example to the client of a random training example of the same class.

  `labels` and `owners`, int [N], are the labels and clients of the training examples.
  `test_labels`, int [k], are the labels of the test examples. Callers may pass users instead
  of labels. Returns the clients of the test examples, int64 [k], or -1 if a test example has
  no label or no client has its class.
  """
  order = np.argsort(labels, kind='stable')
  first, last = (np.searchsorted(labels[order], test_labels, side) for side in ('left', 'right'))
  share = np.random.default_rng(seed).random(len(test_labels))
  places = first + (share * (last - first)).astype(np.int64)
  # The index -1 refers to the client -1 at the end of the array.
  is_known = (first < last) & (test_labels >= 0)
  return np.append(owners[order], -1)[np.where(is_known, places, -1)]


def by_class(labels: np.ndarray, each: int, seed) -> np.ndarray:
  """Samples `each` examples of every class, but at most half of the examples of a class."""
  if scipy.sparse.issparse(labels):
    raise errors.InputError(
      'examples with sets of labels have no test examples per class; take --test_fraction'
    )
  order, rank, sizes = ranked_by_class(labels, np.random.default_rng(seed))
  drawn = order[rank < np.minimum(each, sizes // 2)]
  return _some(drawn, f'--test_per_class={each}')


def sample(test: np.ndarray, size: int) -> np.ndarray:
  """Samples `size` of the indices `test`, the same in every run; 0: returns all of them."""
  if not 0 < size < len(test):
    return test
  random = np.random.default_rng([0, _SAMPLE])
  return test[np.sort(random.choice(len(test), size, replace=False))]


def _some(drawn: np.ndarray, flag: str) -> np.ndarray:
  if not len(drawn):
    raise errors.InputError(
      f'{flag} holds out no example, and classes of one example have none to'
      ' spare; hold out more, or leave the flag out'
    )
  return np.sort(drawn)


def ranked_by_class(labels: np.ndarray, random: np.random.Generator):
  """Sorts labelled examples by class, in random order within each class.

  Returns three arrays, int64 [k]: the examples' indices, their ranks within the class, and
  the sizes of their classes.
  """
  order = random.permutation(np.flatnonzero(labels >= 0))
  order = order[np.argsort(labels[order], kind='stable')]
  counts = np.bincount(labels[order], minlength=1)
  sizes = np.repeat(counts, counts)
  rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
  return order, rank, sizes


def with_own_test(
  dataset: client_data.FederatedDataset,
  seed: int,
  users: tuple[np.ndarray, np.ndarray] | None = None,
) -> client_data.FederatedDataset:
  """Gives the test examples to clients as their own held-out examples.

  `users` has the users of the training examples, int [N], and of the test examples, int
  [k]. If it is None, each test example goes to a client with the same class (`owners_of`).
  Callers pass None if a rule made the clients and the test set is a sample of the same
  examples (`--test_fraction`). If an example has a set of labels, `seed` samples one label.
  The function returns a data set unchanged if it has no test set or already has clients'
  test examples.
  """
  pool, test = dataset.train.pool, dataset.test
  if test is None or dataset.held_out is not None:
    return dataset
  clients = dataset.train.partition
  labels = [examples_lib.sample_labels(each.labels, seed) for each in (pool, test)]
  if not scipy.sparse.issparse(pool.labels):
    test = dataclasses.replace(test, labels=labels[1])
  by, of_test = users or labels
  owners = owners_of(of_test, by[clients.numbers], clients.owners(), [seed, _OWN_TEST])
  owners = np.append(np.full(len(pool), -1), owners)
  return dataclasses.replace(
    dataset,
    train=client_data.PartitionedClientData(pool.joined(test), clients),
    held_out=partition_lib.of_places(owners, clients.client_ids),
  )


def hold_out_parts(
  dataset: client_data.FederatedDataset, test_fraction: float, unseen: float, seed: int
) -> client_data.FederatedDataset:
  """Holds out a share of each client's examples, and a share of the clients.

  `test_fraction` is the share of each client's examples, rounded up or down at random; 0:
  none. If clients share no examples, a client with one example keeps it. If the data set has
  no test set, the held-out examples of all clients become the test set. Otherwise, they
  replace the clients' own test examples, and the test set stays. `unseen` is the share of the
  clients, at least one client; 0: none. If clients have no test examples of their own, all
  examples of an unseen client become its test examples. If clients share examples, no client
  trains on another client's held-out example or on an example of an unseen client. Raises
  `errors.InputError` if `test_fraction` is not 0 and only clients have test examples, or if no
  client is left to train.
  """
  pool, clients = dataset.train.pool, dataset.train.partition
  held_out, test = dataset.held_out, dataset.test
  if test_fraction:
    if test is None and held_out is not None and len(held_out.numbers):
      raise errors.InputError(
        f'--{TEST_FRACTION}={test_fraction}: clients of {dataset.name} have test'
        ' examples of their own already; leave it out'
      )
    # Clients may share examples, so draw each example only once.
    numbers = clients.numbers
    is_first = np.zeros(len(numbers), bool)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    owners = np.where(is_first, clients.owners(), -1)
    drawn = by_client(owners, test_fraction, [seed, _TEST], TEST_FRACTION)
    held = np.isin(numbers, numbers[drawn])
    clients, held_out = clients.where(~held), clients.where(held)
    if test is None:
      test = pool.subset(numbers[is_first & held])
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
    if held_out is None or not len(held_out.numbers):
      nothing = own.where(np.zeros(len(own.numbers), bool))
      never = client_data.Unseen(nothing, own)
    else:
      never = client_data.Unseen(own, held_out.some(strangers))
    if held_out is not None:
      held_out = held_out.some(others)
    clients = clients.some(others)
    clients = clients.where(~np.isin(clients.numbers, own.numbers))
  if not len(clients.numbers):
    raise errors.InputError(
      f'--{TEST_FRACTION}={test_fraction} and --{UNSEEN}={unseen}: clients of {dataset.name} share'
      ' so many examples that nobody is left to train; give less'
    )
  return dataclasses.replace(
    dataset,
    train=client_data.PartitionedClientData(pool, clients),
    test=test,
    held_out=held_out,
    unseen=never,
  )
