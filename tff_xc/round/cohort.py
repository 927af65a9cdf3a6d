"""Draws a round's clients and the examples that they use.

The draws depend only on the seed and the round number, so a resumed run draws the same data. A
cohort stores only the numbers of its clients, and reads a client's examples when a caller accesses
the client.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_xc import errors, wording
from tff_xc.data import client_data, sparse
from tff_xc.round import algorithm as algorithm_lib, examples as examples_lib

# Ways to draw clients: a fixed number of clients, or each client independently.
FIXED, POISSON = 'fixed', 'poisson'
# The largest number of examples in a round of centralized training.
_MOST_POOLED = 10_000_000
# Numbers that are appended to the seed [seed, round, client], so that drop-outs and Poisson
# sampling have their own random numbers. The appended numbers are not 0, because [a, b, c] and [a,
# b, c, 0] are the same seed for NumPy.
_OF_DROPOUT, _OF_POISSON = 1, 2
# TFF draws clients with NumPy's older generators, which accept only seeds below this number.
_LARGEST_SEED = 2**32


@dataclasses.dataclass(frozen=True, eq=False)
class Cohort(Sequence):
  """The clients of a round, a sequence of `ClientExamples` for the learning process's `next`."""

  # A `ClientExamples` for each client. Each access reads the client's examples.
  examples: Sequence[examples_lib.ClientExamples]
  # Number of drawn clients without examples, which do not participate.
  skipped: int
  client_ids: tuple[str, ...] = ()  # The clients' ids, for error messages.
  # The `client_id` of each client. None: `numbers_of` reads the ids from `examples`.
  numbers: Sequence[int] | None = None
  # Number of drawn clients that dropped out before they sent anything. None if clients never drop
  # out in this run.
  dropouts: int | None = None
  # Number of participating clients that attack. None if no clients attack in this run.
  attackers: int | None = None

  def __len__(self) -> int:
    return len(self.examples)

  def __getitem__(self, place: int | slice):
    """Returns the `ClientExamples` of one client, or a sequence of them for a slice."""
    return self.examples[place]

  @property
  def drawn(self) -> int:
    """The number of clients that were drawn, whether or not they participate."""
    found = self.examples if self.numbers is None else self.numbers
    return len(found) + self.skipped + (self.dropouts or 0)


class Values(Sequence):
  """A lazy sequence: each access to an element calls `value` with the element of `clients`."""

  def __init__(self, value: Callable[[Any], examples_lib.ClientExamples], clients: Sequence):
    self._value, self._clients = value, clients

  def __len__(self) -> int:
    return len(self._clients)

  def __getitem__(self, place: int | slice):
    if isinstance(place, slice):
      return Values(self._value, self._clients[place])
    return self._value(self._clients[place])


def client_value(
  train: client_data.PartitionedClientData,
  used: np.ndarray,
  index: int,
  held: np.ndarray | None = None,
) -> examples_lib.ClientExamples:
  """Returns the `ClientExamples` of client number `index`.

  `used` are the indices of the examples that the client uses in this round. `held` are the indices
  of all its examples. If `held` is None, the client uses all its examples.
  """
  x, labels = map(sparse.as_tensors, train.pool.examples(used))
  everything = (
    labels if held is None or held is used else sparse.as_tensors(train.pool.labels[held])
  )
  if isinstance(everything, sparse.LabelSets):
    everything = everything.ids
  return examples_lib.ClientExamples(x, labels, np.int64(index), everything)


def _nobody(train) -> list[examples_lib.ClientExamples]:
  """Returns one client without examples, because TFF needs at least one client.

  This client does not affect the result of the round.
  """
  return [client_value(train, np.zeros(0, np.int64), 0)]


def numbers_of(cohort: Cohort) -> Sequence[int]:
  """Returns the `client_id` of each participating client."""
  if cohort.numbers is not None:
    return cohort.numbers
  return [int(client.client_id) for client in cohort.examples]


def _check_enough(wanted: int, found: int, which: str = '') -> None:
  """Refuses data with fewer clients than a round needs, or without clients."""
  if not found:
    raise errors.InputError(f'the data have no clients{which}; give other data')
  if wanted > found:
    fewer = ' or fewer' if found > 1 else ''
    raise errors.InputError(
      f'--clients_per_round is {wanted}, and the data have'
      f' {wording.count(found, "client")}{which}; give'
      f' --clients_per_round={found}{fewer}'
    )


def _by_themselves(probabilities: np.ndarray, seed: int, round_number: int) -> list[int]:
  """Draws each client independently with its probability. Returns the drawn clients' numbers."""
  random = np.random.default_rng([seed, round_number, 0, _OF_POISSON])
  return np.flatnonzero(random.random(len(probabilities)) < probabilities).tolist()


@dataclasses.dataclass(frozen=True)
class UniformClients:
  """Draws K clients in each round, uniformly without replacement."""

  clients_per_round: int  # K.
  # The largest number of examples that a client uses in a round; 0: no limit. In every round, a
  # client with more examples draws this number of them without replacement.
  examples_per_round: int = 0
  # Draw each client independently with probability K / N. K is then the expected number of clients.
  poisson: bool = False

  has_clients = True

  def participation(self, dataset: client_data.FederatedDataset) -> tuple[str, float]:
    """Returns (kind of sampling, a client's probability to participate in a round).

    A privacy accountant needs both values.
    """
    clients = len(dataset.train.partition)
    return POISSON if self.poisson else FIXED, self.clients_per_round / clients

  def cohorts(self, dataset: client_data.FederatedDataset, seed: int) -> Callable[[int], Cohort]:
    """Returns a function from a round number to the round's cohort.

    Raises InputError if there are fewer than K clients.
    """
    train = dataset.train
    partition = train.partition
    _check_enough(self.clients_per_round, len(partition))
    sample = tff.simulation.build_uniform_sampling_fn(
      range(len(partition)), random_seed=seed % _LARGEST_SEED
    )

    def cohort(round_number: int) -> Cohort:
      def value(index: int) -> examples_lib.ClientExamples:
        held = used = partition.of_client(index)
        if 0 < self.examples_per_round < len(held):
          random = np.random.default_rng([seed, round_number, index])
          used = held[random.choice(len(held), self.examples_per_round, replace=False)]
        return client_value(train, used, index, held)

      if self.poisson:
        share = self.clients_per_round / len(partition)
        shares = np.full(len(partition), share)
        drawn = _by_themselves(shares, seed, round_number)
      else:
        drawn = sample(round_number, self.clients_per_round)
      chosen = [i for i in drawn if len(partition.of_client(i))]
      return Cohort(
        Values(value, chosen) if chosen else _nobody(train),
        len(drawn) - len(chosen),
        tuple(partition.client_ids[i] for i in chosen),
        tuple(chosen),
      )

    return cohort


@dataclasses.dataclass(frozen=True)
class IidBatches:
  """Centralized training: one virtual client has IID minibatches of all examples.

  Every pass shuffles all examples. A round continues where the previous round stopped.
  """

  batch_size: int
  # Number of minibatches in a round; 0: as many as the average client has.
  steps: int = 0

  has_clients = False

  def cohorts(self, dataset: client_data.FederatedDataset, seed: int) -> Callable[[int], Cohort]:
    """Returns a function from a round number to a cohort of one client."""
    train = dataset.train
    partition = train.partition
    total = len(partition.numbers)
    if not total:
      raise errors.InputError('no client has any examples; give clients with examples')
    steps = self.steps or math.ceil(total / len(partition) / self.batch_size)
    each = steps * self.batch_size
    if each > _MOST_POOLED:
      raise errors.InputError(
        f'--batch_size times the steps of a round is {each:,} examples:'
        f' expected at most {_MOST_POOLED:,}'
      )

    # It is enough to cache the order of one pass, because a round starts in the pass in which the
    # previous round ended.
    @functools.lru_cache(maxsize=1)
    def order_of(epoch: int) -> np.ndarray:
      return np.random.default_rng([seed, epoch]).permutation(total)

    def cohort(round_number: int) -> Cohort:
      places = np.arange(round_number * each, (round_number + 1) * each)
      used = np.empty(each, np.int64)
      for epoch in np.unique(places // total):
        here = places // total == epoch
        used[here] = order_of(int(epoch))[places[here] % total]
      used = partition.numbers[used]
      return Cohort(Values(lambda i: client_value(train, used, i), [0]), 0)

    return cohort


@dataclasses.dataclass(frozen=True)
class VirtualClients:
  """FedVC: draws K clients with probabilities proportional to their numbers of examples.

  Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data Distribution", ECCV 2020,
  arXiv:2003.08082, section 5.3.

  In every round, each drawn client uses N_VC examples, which it draws uniformly. A client with
  fewer than N_VC examples draws with replacement, and all other clients draw without. The client
  still requests the rows of all its classes.

  By default, clients are drawn without replacement, one after the other. The probability of each
  remaining client is proportional to its number of examples. Clients without examples are never
  drawn.
  """

  clients_per_round: int  # K.
  examples: int  # N_VC.
  # Whether a client may be drawn several times in a round. In the second draw of a client, the
  # number of all clients is added to the client's id. In the third draw, twice this number is
  # added, and so on. With these different ids, each draw uses different examples and random
  # numbers.
  replace: bool = False
  # Draw each client independently with probability min(1, K n_k / n).
  poisson: bool = False

  has_clients = True

  def participation(self, dataset: client_data.FederatedDataset) -> tuple[str, float]:
    """Returns (kind of sampling, the largest probability of any client to participate)."""
    if not self.poisson:
      raise errors.InputError(
        'the privacy of a fixed number of clients, drawn in proportion to their'
        ' examples, is not known: give --client_sampling=poisson with'
        ' --virtual_client_size'
      )
    sizes = dataset.train.partition.sizes
    largest = min(1.0, self.clients_per_round * sizes.max() / sizes.sum())
    return POISSON, float(largest)

  def cohorts(self, dataset: client_data.FederatedDataset, seed: int) -> Callable[[int], Cohort]:
    """Returns a function from a round number to the round's cohort.

    Raises InputError if too few clients have examples.
    """
    train = dataset.train
    partition = train.partition
    sizes = partition.sizes
    _check_enough(
      1 if self.replace else self.clients_per_round, np.count_nonzero(sizes), ' with examples'
    )
    share = sizes / sizes.sum()

    def cohort(round_number: int) -> Cohort:
      if self.poisson:
        shares = self.clients_per_round * share
        drawn = np.array(_by_themselves(shares, seed, round_number), np.int64)
      else:
        # To draw distinct clients, NumPy draws repeatedly and leaves out repetitions, which equals
        # drawing one client after the other from the remaining clients.
        drawn = np.random.default_rng([seed, round_number, 0]).choice(
          len(share), self.clients_per_round, self.replace, share
        )
      before = [np.count_nonzero(drawn[:place] == index) for place, index in enumerate(drawn)]
      numbers = (drawn + len(partition) * np.array(before)).tolist()

      def value(number: int) -> examples_lib.ClientExamples:
        held = partition.of_client(number % len(partition))
        random = np.random.default_rng([seed, round_number, 1 + number])
        used = random.choice(held, self.examples, self.examples > len(held))
        return client_value(train, used, number, held)

      return Cohort(
        Values(value, numbers) if numbers else _nobody(train),
        0,
        tuple(partition.client_ids[i] for i in drawn),
        tuple(numbers),
      )

    return cohort


@dataclasses.dataclass(frozen=True)
class Changed:
  """Base class of samplings that draw the clients of `sampling` and change some of them."""

  sampling: algorithm_lib.Sampling  # Draws the clients.

  has_clients = True

  def participation(self, dataset: client_data.FederatedDataset) -> tuple[str, float]:
    """Returns the participation of `sampling`, also if drawn clients drop out later."""
    return self.sampling.participation(dataset)


@dataclasses.dataclass(frozen=True)
class Dropout(Changed):
  """Draws the clients of `sampling`. Each of them may drop out with the same probability.

  Whether a client drops out depends only on the probability, the seed, the round and the client. A
  client that drops out at one probability also drops out at every larger probability. The server
  receives nothing from a client that drops out, and the client's state does not change. If all
  clients drop out, the round changes nothing. A sampling that changes the clients' examples must
  wrap this sampling.
  """

  probability: float  # The probability of dropping out, at least 0 and less than 1.

  def cohorts(self, dataset: client_data.FederatedDataset, seed: int) -> Callable[[int], Cohort]:
    """Returns a function from a round number to the cohort of the remaining clients.

    Raises the same errors as `sampling`.
    """
    drawn = self.sampling.cohorts(dataset, seed)

    def leaves(round_number: int, number: int) -> bool:
      random = np.random.default_rng([seed, round_number, number, _OF_DROPOUT])
      return random.random() < self.probability

    def cohort(round_number: int) -> Cohort:
      found = drawn(round_number)
      numbers = numbers_of(found)
      stay = [i for i, n in enumerate(numbers) if not leaves(round_number, n)]
      values = Values(found.examples.__getitem__, stay)
      return Cohort(
        values if stay else _nobody(dataset.train),
        found.skipped,
        tuple(found.client_ids[i] for i in stay if found.client_ids),
        tuple(numbers[i] for i in stay),
        (found.dropouts or 0) + len(numbers) - len(stay),
      )

    return cohort
