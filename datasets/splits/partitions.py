"""Split rules that assign examples to clients by class, by user, or at random; see `rules`.

All rules raise `errors.InputError` if they cannot split the examples.
"""

import random as random_lib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from tff_xc import errors, memory, wording
from tff_xc.data import partition as partition_lib


class Split(NamedTuple):
  """The clients that a rule makes, and optionally a test set."""

  train: partition_lib.Partition
  test: np.ndarray | None = None  # int64 [k], indices; None: the rule makes no test set.
  # int [n], ascending, the classes to keep in the training and test sets. None: all classes.
  classes: np.ndarray | None = None


def iid(examples: examples_lib.Examples, seed, *, clients: int) -> partition_lib.Partition:
  """Assigns examples to clients at random; the sizes of clients differ by at most one."""
  numbers = np.flatnonzero(examples.labels >= 0)
  if clients > len(numbers):
    raise errors.InputError(
      f'there are {wording.count(len(numbers), "training example")}, fewer than'
      f' {wording.count(clients, "client")}; take as many clients or fewer'
    )
  shuffled = np.random.default_rng(seed).permutation(numbers)
  return _clients(map(np.sort, np.array_split(shuffled, clients)), clients)


def _clients(parts, count: int) -> partition_lib.Partition:
  """Returns clients 'client/00' and so on with the examples of `parts`."""
  width = len(str(count - 1))
  return partition_lib.of_clients({f'client/{k:0{width}d}': part for k, part in enumerate(parts)})


def by_class(
  examples: examples_lib.Examples, seed, *, classes_per_client: int, clients_per_class: int
) -> partition_lib.Partition:
  """Gives each client one class or several random classes. Every client has examples.

  Yu et al. (FedAwS, ICML 2020, section 5.3) split multi-label data sets in this way, with
  one label per training example and a client for each class.

  A client id is `class/0012` if clients have one class, and `classes/0012` if clients have
  several classes. If `clients_per_class` is above 1, the examples of a class are divided
  evenly into this many shares, and each client has one share of each of its classes. The
  share's index is then part of the id: `class/0012/3` or `classes/0012/3`. The random
  groups of classes are different for each share index. A client's examples keep their order.
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
  return partition_lib.Partition(names, np.append(starts, len(key)), numbers[by_client])


def _random_places(classes, num_classes: int, num_shares: int, seed):
  """Returns a random order of the classes for each share index, int64 [shares, n]."""
  counts = np.bincount(classes, minlength=num_classes)
  shape = min(num_shares, max(counts, default=0)), num_classes
  memory.require(
    8 * int(shape[0]) * num_classes,
    f'an order of {num_classes:,} classes for each of {shape[0]:,} clients',
    'lower --clients_per_class, or take --classes_per_client=1',
  )
  place = np.zeros(shape, int)
  random = np.random.default_rng(seed)
  for share, row in enumerate(place):
    present = np.flatnonzero(counts > share)
    row[random.permutation(present)] = np.arange(len(present))
  return place


def frequent_labels(
  examples: examples_lib.Examples,
  seed,
  *,
  clients: int,
  variant: str,
  frequency: float,
  counts: np.ndarray | None = None,
) -> partition_lib.Partition:
  """Assigns N examples with sets of labels to K clients by frequent labels (FedMLH).

  The variant 'code' is the rule of the published code. Client i gets floor(N / K) examples
  of the i-th most frequent label. If the label has more examples, the client gets a random
  sample of them, without replacement. If the label has fewer, the client also gets a random
  sample of the first K floor(N / K) examples of the data set, without replacement. If an
  example of this sample has the label, the client has the example twice. Several clients
  may have the same example. An example with only rare labels may go to no client.

  The variant 'paper' is the rule of the paper. A label is frequent if at least a share
  `frequency` of the examples has it. All examples of a frequent label go to one random
  client. Each example without a frequent label also goes to one random client. A client
  has each example once, and several clients may have the same example.

  counts: int [n], the frequencies of labels; None: the numbers of examples with each label.
  """
  size, by_label = len(examples), examples.labels.tocsc()
  if counts is None:
    counts = np.diff(by_label.indptr)
  if clients > size:
    raise errors.InputError(
      f'{wording.count(size, "example")}: too few for {wording.count(clients, "client")}'
    )

  def of_label(label):
    return by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]].astype(np.int64)

  random, parts = np.random.default_rng(seed), [[] for _ in range(clients)]
  if variant == 'paper':
    frequent = np.flatnonzero(counts >= max(1, frequency * size))
    rare = np.ones(size, bool)
    owners = random.integers(0, clients, len(frequent))
    for label, owner in zip(frequent, owners, strict=True):
      rare[of_label(label)] = False
      parts[owner].append(of_label(label))
    rest = np.flatnonzero(rare)
    of_rest = random.integers(0, clients, len(rest))
    whole = ([*part, rest[of_rest == k].astype(np.int64)] for k, part in enumerate(parts))
    return _clients((np.unique(np.concatenate(p)) for p in whole), clients)
  # If two labels are equally frequent, the smaller label comes first.
  commonest = np.argsort(-counts, kind='stable')[:clients]
  if len(commonest) < clients or not counts[commonest].all():
    raise errors.InputError(
      f'{wording.count(np.count_nonzero(counts), "label")} with examples: too few for'
      f' {wording.count(clients, "client")} of one frequent label each'
    )
  share = size // clients
  for k, label in enumerate(commonest):
    own = parts[k] = of_label(label)
    if len(own) >= share:
      parts[k] = random.choice(own, share, replace=False)
    else:
      more = random.choice(clients * share, share - len(own), replace=False)
      parts[k] = np.concatenate([own, more])
  return _clients(parts, clients)


def chunks(
  examples: examples_lib.Examples, seed=0, *, examples_per_client: int
) -> partition_lib.Partition:
  """Sorts examples by class and cuts them into clients; the last client may be smaller.

  FedSS (Waghmare et al., section 4.1) splits Stanford Online Products into 596 clients,
  with 100 images of about 20 classes each. This rule makes such clients.
  """
  del seed  # The rule is deterministic.
  order = _sorted_by_class(examples.labels)
  return _numbered(examples, order, np.arange(len(order)) // examples_per_client)


def shards(
  examples: examples_lib.Examples, seed, *, clients: int, shards_per_client: int
) -> partition_lib.Partition:
  """Sorts examples by class, cuts them into equal shards, and assigns the shards at random.

  McMahan et al. (Communication-efficient learning of deep networks from decentralized data,
  AISTATS 2017) split MNIST into 100 clients with two shards of 300 examples each. This
  function assigns all examples, so the sizes of shards may differ by one.
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
  owner[np.random.default_rng(seed).permutation(count)] = np.arange(count) // shards_per_client
  sizes = np.diff(np.arange(count + 1) * len(order) // count)
  return _numbered(examples, order, np.repeat(owner, sizes))


def _sorted_by_class(labels: np.ndarray) -> np.ndarray:
  numbers = np.flatnonzero(labels >= 0)
  if not len(numbers):
    raise errors.InputError('no example has a label; give labelled examples')
  return numbers[np.argsort(labels[numbers], kind='stable')]


def _numbered(examples, order, owner: np.ndarray) -> partition_lib.Partition:
  """Returns clients '0', '1', ...; example order[i] goes to client owner[i]."""
  owners = np.full(len(examples), -1, np.int32)
  owners[order] = owner
  return partition_lib.of_places(owners, list(map(str, range(int(owner.max()) + 1))))


def users(
  examples: examples_lib.Examples, seed=0, *, min_examples: int = 1
) -> partition_lib.Partition:
  """Makes a client of each user with at least `min_examples`; examples keep their order."""
  del seed  # The rule is deterministic.
  sizes = _sizes(examples)
  enough = np.flatnonzero(sizes >= max(min_examples, 1)).tolist()
  if not enough:
    raise errors.InputError(
      f'no user of {len(sizes):,} remains; give data of more users, or lower --min_examples'
    )
  return of_users(examples.users, examples.user_names, enough)


def leaf_users(
  examples: examples_lib.Examples, seed, *, min_examples: int, train_share: float
) -> Split:
  """Makes a client of each training user of `leaf_parts`.

  The examples of the test users of `leaf_parts` are the test set.
  """
  sizes = _sizes(examples)
  train, test = leaf_parts(sizes, min_examples=min_examples, train_share=train_share, seed=seed)
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
  """Returns each user's number of examples, int64 [users]."""
  if not examples.user_names:
    raise errors.InputError(
      'all examples have the user NA, which means no user; give data that name users, or take'
      ' another rule'
    )
  some = examples.users[examples.users >= 0]
  return np.bincount(some, minlength=len(examples.user_names))


def leaf_parts(
  sizes: np.ndarray, *, min_examples: int = 0, train_share: float = 0.9, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the indices of the training users and of the test users, as LEAF samples them.

  `sizes` int [U] has the number of examples of each user. `random.Random(seed)` samples a
  `train_share` of the users with at least `min_examples` for training, like LEAF's
  split_data with `--spltseed`. Papers that use LEAF's data sets take the seed 0.
  """
  everyone = np.flatnonzero(sizes >= min_examples)
  drawn = random_lib.Random(seed).sample(range(len(everyone)), int(train_share * len(everyone)))
  trains = np.zeros(len(everyone), bool)
  trains[drawn] = True
  return everyone[trains], everyone[~trains]


def of_users(
  owners: np.ndarray, user_names: Sequence[str], some: Sequence[int]
) -> partition_lib.Partition:
  """Returns a client for each user in `some`, sorted by name.

  `owners` int [N] has the user of each example, or -1 if the example has no user. `owners`
  and `some` are indices into `user_names`.
  """
  place_of = {user_names[user]: user for user in some}
  names = examples_lib.in_order(place_of)
  rank = np.full(len(user_names) + 1, -1, np.int64)  # The last entry is for the owner -1.
  rank[[place_of[name] for name in names]] = np.arange(len(names))
  return partition_lib.of_places(rank[owners], names)
