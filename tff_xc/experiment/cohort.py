"""Chooses a round's data: clients, or IID minibatches of all data.

Both depend only on (seed, round), so a resumed run draws the same data as an
uninterrupted one. A cohort consists of numbers; its examples are read on
access, and the runtime reads a few values ahead of their use.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow_federated as tff

from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data
from tff_xc.data import sparse
from tff_xc.round import examples as examples_lib

# Examples of a round without clients.
_MOST_POOLED = 10_000_000


class Cohort(NamedTuple):
  """The clients of one round.

  Attributes:
    examples: one value per client, for `LearningProcess.next`. Each access to a
      value reads its examples.
    skipped: number of drawn clients without examples, which do not take part.
    client_ids: the clients' ids, for messages.
    numbers: each value's `client_id`; None: read from the values.
    dropouts: number of drawn clients that left before they sent anything; None
      where no client ever leaves.
  """

  examples: Sequence[examples_lib.ClientExamples]
  skipped: int
  client_ids: tuple[str, ...] = ()
  numbers: Sequence[int] | None = None
  dropouts: int | None = None


class Values(Sequence):
  """Clients' values, made at each access."""

  def __init__(
    self,
    value: Callable[[Any], examples_lib.ClientExamples],
    clients: Sequence,
  ):
    """Args: a function from client's index (or what else) to value, and these."""
    self._value = value
    self._clients = clients

  def __len__(self) -> int:
    return len(self._clients)

  def __getitem__(self, place: int) -> examples_lib.ClientExamples:
    return self._value(self._clients[place])


@dataclasses.dataclass(frozen=True)
class UniformClients:
  """K clients a round, drawn uniformly without replacement.

  Attributes:
    clients_per_round: K.
    examples_per_round: if positive, a client with more examples uses this many
      of them, drawn without replacement in every round.
  """

  clients_per_round: int
  examples_per_round: int = 0

  has_clients = True

  def cohorts(
    self, dataset: client_data.FederatedDataset, seed: int
  ) -> Callable[[int], Cohort]:
    """Returns round -> cohort; `seed` seeds the draws.

    Raises:
      errors.InputError: if there are fewer than K clients.
    """
    train = dataset.train
    partition = train.partition
    check_enough(self.clients_per_round, len(partition))
    sample = tff.simulation.build_uniform_sampling_fn(
      range(len(partition)), random_seed=seed
    )

    def cohort(round_number: int) -> Cohort:
      def value(index: int) -> examples_lib.ClientExamples:
        held = used = partition.of_client(index)
        if 0 < self.examples_per_round < len(held):
          random = np.random.default_rng([seed, round_number, index])
          used = held[
            random.choice(len(held), self.examples_per_round, replace=False)
          ]
        return client_value(train, used, index, held)

      drawn = sample(round_number, self.clients_per_round)
      chosen = [i for i in drawn if len(partition.of_client(i))]
      return Cohort(
        Values(value, chosen) if chosen else nobody(train),
        len(drawn) - len(chosen),
        tuple(partition.client_ids[i] for i in chosen),
        tuple(chosen),
      )

    return cohort


@dataclasses.dataclass(frozen=True)
class IidBatches:
  """IID minibatches of all clients' examples, held by one virtual client.

  The rounds take successive parts of shuffled passes over all examples.

  Attributes:
    batch_size: examples of a minibatch.
    steps: minibatches of a round; 0: as many as the average client has.
  """

  batch_size: int
  steps: int = 0

  has_clients = False

  def cohorts(
    self, dataset: client_data.FederatedDataset, seed: int
  ) -> Callable[[int], Cohort]:
    """Returns round -> cohort of one client; `seed` seeds the draws.

    Raises:
      errors.InputError: if there are no examples, or a round has too many.
    """
    train = dataset.train
    partition = train.partition
    total = len(partition.numbers)
    if not total:
      raise errors.InputError(
        'no client has any examples; give clients with examples'
      )
    steps = self.steps or math.ceil(total / len(partition) / self.batch_size)
    each = steps * self.batch_size
    if each > _MOST_POOLED:
      raise errors.InputError(
        f'--batch_size times the steps of a round is {each:,} examples:'
        f' expected at most {_MOST_POOLED:,}'
      )

    # One pass suffices: a round ends in the pass in which the next one begins.
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


def nobody(
  train: client_data.PartitionedClientData,
) -> list[examples_lib.ClientExamples]:
  """Returns the values of a cohort in which no client is left.

  TFF needs a client; one without examples changes nothing.
  """
  return [client_value(train, np.zeros(0, np.int64), 0)]


def check_enough(wanted: int, found: int, which: str = '') -> None:
  """Refuses a round of more clients than there are, or of none.

  Args:
    wanted: clients of a round.
    found: clients that may be drawn.
    which: which ones these are, for the error: ' with examples'.

  Raises:
    errors.InputError: there are fewer, or none.
  """
  if not found:
    raise errors.InputError(f'the data have no clients{which}; give other data')
  if wanted > found:
    fewer = ' or fewer' if found > 1 else ''
    raise errors.InputError(
      f'--clients_per_round is {wanted}, and the data have'
      f' {wording.count(found, "client")}{which}; give'
      f' --clients_per_round={found}{fewer}'
    )


def client_value(
  train: client_data.PartitionedClientData,
  used: np.ndarray,
  index: int,
  held: np.ndarray | None = None,
) -> examples_lib.ClientExamples:
  """Returns a client's value.

  Args:
    train: the clients.
    used: the numbers of the examples that it uses in the round.
    index: the client's number.
    held: the numbers of all its examples; None: `used`.
  """
  x, y = train.pool.examples(used)
  all_y = y if held is None or held is used else train.pool.y[held]
  if scipy.sparse.issparse(all_y):
    all_y = all_y.indices
  return examples_lib.ClientExamples(
    x=sparse.as_tensors(x),
    y=sparse.as_tensors(y),
    client_id=np.int64(index),
    all_y=all_y,
  )
