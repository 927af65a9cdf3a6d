"""Rules that deal examples by class, by user, or at random; see `rules`."""

import random as random_lib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import partition as partition_lib


class Split(NamedTuple):
  """What a rule makes of examples.

  Attributes:
    train: the clients.
    test: int64 [k], numbers of examples for the test; None: not the rule's.
    classes: int [n], the classes that the split has, ascending; the others are
      left out, also of the input's test part. None: all.
  """

  train: partition_lib.Partition
  test: np.ndarray | None = None
  classes: np.ndarray | None = None


def iid(
  examples: examples_lib.Examples, seed, *, clients: int
) -> partition_lib.Partition:
  """Deals examples to clients at random, as many to each, up to one.

  Raises:
    errors.InputError: there are fewer examples than clients.
  """
  numbers = np.flatnonzero(examples.labels >= 0)
  if clients > len(numbers):
    raise errors.InputError(
      f'there are {wording.count(len(numbers), "training example")}, fewer than'
      f' {clients:,} clients; take as many clients or fewer'
    )
  shuffled = np.random.default_rng(seed).permutation(numbers)
  parts = np.array_split(shuffled, clients)
  width = len(str(clients - 1))
  return partition_lib.of_clients(
    {f'client/{k:0{width}d}': np.sort(part) for k, part in enumerate(parts)}
  )


def by_class(
  examples: examples_lib.Examples,
  seed,
  *,
  classes_per_client: int,
  clients_per_class: int,
) -> partition_lib.Partition:
  """Groups classes into clients; each client has at least one example.

  Federated extreme classification uses multi-label sets in this form (Yu et al.,
  FedAwS, ICML 2020, section 5.3): every training example has one label, and each
  class is a client.

  A client is a class, `class/0012`; or several random classes, `classes/0012`.
  If several clients share a class, each has a share of it, `class/0012/3`, or of
  each of its classes, `classes/0012/3`: the classes of shares with one number
  are grouped anew for each number. Shares are dealt out example by example in
  turn. Within a client examples keep their order.

  Raises:
    errors.InputError: there are more classes per client than classes.
  """
  labels, num_classes = examples.labels, len(examples.class_names)
  if classes_per_client > num_classes:
    raise errors.InputError(
      f'classes_per_client is {classes_per_client}; take 1 to {num_classes} here'
    )
  numbers = np.flatnonzero(labels >= 0)
  classes = labels[numbers].astype(np.int64)
  order = np.argsort(classes, kind='stable')
  numbers, classes = numbers[order], classes[order]
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
  digits = len(str(clients_per_class - 1))
  names = []
  for k in key[starts].tolist():
    names.append(f'{noun}/{k // clients_per_class:0{width}d}')
    if clients_per_class > 1:
      names[-1] += f'/{k % clients_per_class:0{digits}d}'
  return partition_lib.Partition(
    names, np.append(starts, len(key)), numbers[by_client]
  )


def _random_places(classes, num_classes: int, num_shares: int, seed):
  """Returns int64 [shares, n]: a random order of each share's classes."""
  counts = np.bincount(classes, minlength=num_classes)
  place = np.zeros([min(num_shares, max(counts, default=0)), num_classes], int)
  random = np.random.default_rng(seed)
  for share, row in enumerate(place):
    present = np.flatnonzero(counts > share)
    row[random.permutation(present)] = np.arange(len(present))
  return place


def chunks(
  examples: examples_lib.Examples, seed=0, *, examples_per_client: int
) -> partition_lib.Partition:
  """Each client has the next examples, sorted by class; the last, the rest.

  FedSS (Waghmare et al., section 4.1) has 596 clients of Stanford Online Products
  with 100 images of about 20 classes each: such chunks have that.

  Raises:
    errors.InputError: no example has a label.
  """
  del seed  # Nothing is drawn.
  order = _sorted_by_class(examples.labels)
  return _numbered(
    examples, order, np.arange(len(order)) // examples_per_client
  )


def shards(
  examples: examples_lib.Examples,
  seed,
  *,
  clients: int,
  shards_per_client: int,
) -> partition_lib.Partition:
  """Cuts the sorted examples into equal shards; each client has some at random.

  McMahan et al.: Communication-efficient learning of deep networks from
  decentralized data, AISTATS 2017: 100 clients of MNIST with two shards of 300.
  Here shards differ by one example, if need be, so that all are dealt.

  Raises:
    errors.InputError: there are fewer examples than shards.
  """
  order = _sorted_by_class(examples.labels)
  count = clients * shards_per_client
  if count > len(order):
    raise errors.InputError(
      f'{wording.count(len(order), "training example")} cannot make'
      f' {wording.count(clients, "client")} of'
      f' {wording.count(shards_per_client, "shard")}; give fewer --clients, or'
      ' fewer --shards_per_client'
    )
  owner = np.empty(count, np.int64)
  owner[np.random.default_rng(seed).permutation(count)] = (
    np.arange(count) // shards_per_client
  )
  sizes = np.diff(np.arange(count + 1) * len(order) // count)
  return _numbered(examples, order, np.repeat(owner, sizes))


def _sorted_by_class(labels: np.ndarray) -> np.ndarray:
  numbers = np.flatnonzero(labels >= 0)
  if not len(numbers):
    raise errors.InputError('no example has a label; give labelled examples')
  return numbers[np.argsort(labels[numbers], kind='stable')]


def _numbered(examples, order, owner: np.ndarray) -> partition_lib.Partition:
  """Returns clients '0', '1', ...: example order[i] goes to owner[i]."""
  owners = np.full(len(examples), -1, np.int32)
  owners[order] = owner
  return partition_lib.of_places(
    owners, list(map(str, range(int(owner.max()) + 1)))
  )


def users(
  examples: examples_lib.Examples, seed=0, *, min_examples: int = 1
) -> partition_lib.Partition:
  """A client is a user with all of their examples, in their order.

  Raises:
    errors.InputError: there is no user, or all have fewer than `min_examples`.
  """
  del seed  # Nothing is drawn.
  sizes = _sizes(examples)
  enough = np.flatnonzero(sizes >= max(min_examples, 1)).tolist()
  if not enough:
    raise errors.InputError(
      f'no user of {len(sizes):,} remains; give data of more users, or'
      ' lower --min_examples'
    )
  return of_users(examples.users, examples.user_names, enough)


def leaf_users(
  examples: examples_lib.Examples,
  seed,
  *,
  min_examples: int,
  train_share: float,
) -> Split:
  """Users, some of whom are the test, as `leaf_parts` draws them.

  Raises:
    errors.InputError: no user remains to train.
  """
  sizes = _sizes(examples)
  train, test = leaf_parts(
    sizes, min_examples=min_examples, train_share=train_share, seed=seed
  )
  some = train[sizes[train] > 0].tolist()
  if not some:
    raise errors.InputError(
      f'leaf_users has {len(test)} of {len(sizes)} users with enough examples, and'
      f' {train_share:g} of them is less than one who trains; give data of more'
      ' users, lower --min_examples, or raise --train_share'
    )
  return Split(
    of_users(examples.users, examples.user_names, some),
    np.flatnonzero(np.isin(examples.users, test)),
  )


def _sizes(examples) -> np.ndarray:
  """Returns int64 [users]: how many examples each has."""
  if not examples.user_names:
    raise errors.InputError(
      'all examples are of user NA, who is nobody; give data that name users, or'
      ' take another rule'
    )
  some = examples.users[examples.users >= 0]
  return np.bincount(some, minlength=len(examples.user_names))


def leaf_parts(
  sizes: np.ndarray,
  *,
  min_examples: int = 0,
  train_share: float = 0.9,
  seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the places of training users and of test users, as LEAF draws them.

  Of the users with `min_examples`, in their order, `random.Random(seed)` samples
  90 % to train: LEAF's split_data with `--spltseed`.

  Args:
    sizes: int [U], the users' numbers of examples.
    min_examples: users with fewer are in neither part.
    train_share: the share of the users that train.
    seed: 0 in the papers.
  """
  everyone = np.flatnonzero(sizes >= min_examples)
  drawn = random_lib.Random(seed).sample(
    range(len(everyone)), int(train_share * len(everyone))
  )
  trains = np.zeros(len(everyone), bool)
  trains[drawn] = True
  return everyone[trains], everyone[~trains]


def of_users(
  owners: np.ndarray, user_names: Sequence[str], some: Sequence[int]
) -> partition_lib.Partition:
  """Returns a client for each user of `some`, in the order of their names.

  Args:
    owners: int [N], each example's user, a place in `user_names`; below 0: nobody.
    user_names: their names, which are the clients' ids.
    some: places in `user_names`.
  """
  place_of = {user_names[user]: user for user in some}
  names = examples_lib.in_order(place_of)
  rank = np.full(len(user_names) + 1, -1, np.int64)  # The last is nobody's.
  rank[[place_of[name] for name in names]] = np.arange(len(names))
  return partition_lib.of_places(rank[owners], names)
