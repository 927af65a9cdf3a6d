"""Chooses a round's data: clients, or IID minibatches of all data.

Both depend only on (seed, round), so a resumed run draws the same data as an
uninterrupted one.
"""

import collections
import dataclasses
import functools
import itertools
import math
import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_xc import errors
from tff_xc.data import checks
from tff_xc.data import client_data as client_data_lib
from tff_xc.data import example_blocks
from tff_xc.data import sparse
from tff_xc.round import examples as process

_CACHE_BYTES = 2**28
# Examples of a round without clients.
_MOST_POOLED = 10_000_000


class Cohort(NamedTuple):
  """The clients of one round.

  Attributes:
    examples: one value per client, for `LearningProcess.next`. With `uniform`,
      each access to a client's value decodes its examples.
    skipped: number of drawn clients without examples, which do not take part.
    client_ids: the clients' ids, for messages.
  """

  examples: Sequence[process.ClientExamples]
  skipped: int
  client_ids: tuple[str, ...] = ()


class _Decoded(Sequence):
  """Clients' values, decoded at each access."""

  def __init__(
    self, decode: Callable[[int], process.ClientExamples], clients: list[int]
  ):
    """Args: a function from client number to value, and the numbers."""
    self._decode = decode
    self._clients = clients

  def __len__(self) -> int:
    return len(self._clients)

  def __getitem__(self, place: int) -> process.ClientExamples:
    return self._decode(self._clients[place])


class ExampleCache:
  """Decoded examples of recently used clients, up to a bound in bytes.

  It is thread-safe.
  """

  def __init__(
    self,
    clients: client_data_lib.LabelledClientData,
    num_classes: int,
    max_bytes: int = _CACHE_BYTES,
  ):
    """Args: the clients, n (to check their labels), and the bound."""
    self._clients = clients
    self._num_classes = num_classes
    self._left = max_bytes
    self._held = collections.OrderedDict()
    self._lock = threading.Lock()

  def __call__(self, client_id: str) -> client_data_lib.Examples:
    """Returns the client's examples.

    Raises:
      errors.InputError: for a label outside [0, n).
    """
    with self._lock:
      if client_id in self._held:
        self._held.move_to_end(client_id)
        return self._held[client_id]
    examples = self._clients.examples(client_id)
    checks.check_labels(examples.y, self._num_classes, f'client {client_id}')
    with self._lock:
      self._keep(client_id, examples)
    return examples

  def _keep(self, client_id: str, examples: client_data_lib.Examples) -> None:
    if client_id in self._held:  # Another thread was faster.
      return
    self._held[client_id] = examples
    self._left -= _nbytes(examples.x)
    while self._left < 0 and len(self._held) > 1:
      _, oldest = self._held.popitem(last=False)
      self._left += _nbytes(oldest.x)


def _nbytes(x) -> int:
  parts = x if isinstance(x, sparse.SparseFeatures) else [x]
  return sum(p.nbytes for p in parts)


def uniform(
  dataset: client_data_lib.FederatedDataset,
  clients_per_round: int,
  seed: int,
  examples_per_round: int = 0,
) -> Callable[[int], Cohort]:
  """Returns round -> cohort: K clients drawn uniformly without replacement.

  Args:
    dataset: the data set of the clients.
    clients_per_round: K.
    seed: seeds the draws.
    examples_per_round: if positive, a client with more examples uses this many
      of them, drawn without replacement in every round.

  Raises:
    errors.InputError: if there are fewer than K clients.
  """
  client_ids = dataset.train.client_ids
  if clients_per_round > len(client_ids):
    raise errors.InputError(
      f'--clients_per_round={clients_per_round}: {dataset.name} has only'
      f' {len(client_ids)} clients'
    )
  sample = tff.simulation.build_uniform_sampling_fn(
    range(len(client_ids)), random_seed=seed
  )
  examples_of = ExampleCache(dataset.train, dataset.num_classes)

  def cohort(round_number: int) -> Cohort:
    def value(index: int) -> process.ClientExamples:
      x, all_y = examples_of(client_ids[index])
      y = all_y
      if 0 < examples_per_round < len(y):
        random = np.random.default_rng([seed, round_number, index])
        some = random.choice(len(y), examples_per_round, replace=False)
        x, y = example_blocks.at(x, some), y[some]
      return process.ClientExamples(x, y, np.int64(index), all_y)

    drawn = sample(round_number, clients_per_round)
    chosen = [i for i in drawn if len(dataset.train.labels(client_ids[i]))]
    return Cohort(
      _Decoded(value, chosen) if chosen else [_nobody(dataset)],
      len(drawn) - len(chosen),
      tuple(client_ids[i] for i in chosen),
    )

  return cohort


def _nobody(dataset: client_data_lib.FederatedDataset):
  """Returns a client without examples: TFF needs one; nothing changes."""
  x, y = dataset.train.examples(dataset.train.client_ids[0])
  x, y = example_blocks.cut(x, 0, 0), y[:0]
  return process.ClientExamples(x, y, np.int64(0), y)


def pooled(
  dataset: client_data_lib.FederatedDataset, examples_per_round: int, seed: int
) -> Callable[[int], Cohort]:
  """Returns round -> cohort of one virtual client with IID examples.

  The rounds take successive parts of shuffled passes over all examples.
  """
  if examples_per_round > _MOST_POOLED:
    raise errors.InputError(
      f'--batch_size times the steps of a round is {examples_per_round:,}'
      f' examples: expected at most {_MOST_POOLED:,}'
    )
  client_ids = dataset.train.client_ids
  ends = np.cumsum([len(dataset.train.labels(c)) for c in client_ids])
  total = int(ends[-1])
  examples_of = ExampleCache(dataset.train, dataset.num_classes)

  # One pass suffices: a round ends in the pass in which the next one begins.
  @functools.lru_cache(maxsize=1)
  def order_of(epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(total)

  def cohort(round_number: int) -> Cohort:
    first = round_number * examples_per_round
    places = np.arange(first, first + examples_per_round)
    numbers = np.empty(examples_per_round, np.int64)
    for epoch in np.unique(places // total):
      here = places // total == epoch
      numbers[here] = order_of(int(epoch))[places[here] % total]
    owners = np.searchsorted(ends, numbers, side='right')
    order = np.argsort(owners, kind='stable')
    xs, ys = [], []
    for owner, places in itertools.groupby(order, key=lambda p: owners[p]):
      x, y = examples_of(client_ids[owner])
      within = numbers[list(places)] - ends[owner] + len(y)
      xs.append(example_blocks.at(x, within))
      ys.append(y[within])
    back = np.argsort(order)
    x = example_blocks.at(example_blocks.join(xs), back)
    y = np.concatenate(ys)[back]
    return Cohort([process.ClientExamples(x, y, np.int64(0), y)], 0)

  return cohort


def largest_label_set(dataset: client_data_lib.FederatedDataset) -> int:
  """Returns the largest number of distinct classes that a client holds.

  Raises:
    errors.InputError: for a label outside [0, n), or if no client has labels.
  """
  largest = 0
  for client_id in dataset.train.client_ids:
    labels = dataset.train.labels(client_id)
    checks.check_labels(labels, dataset.num_classes, f'client {client_id}')
    largest = max(largest, len(np.unique(labels)))
  if not largest:
    raise errors.InputError(f'{dataset.name}: no client has any examples')
  return largest


def largest_feature_set(
  dataset: client_data_lib.FederatedDataset, examples_per_round: int = 0
) -> int:
  """Returns a bound on the distinct features that a client uses in a round.

  The bound is exact if clients use all of their examples. Otherwise a client
  uses at most the features of its longest examples, and at most the features of
  all its examples: the bound takes the smaller number. It is at least 1,
  because a select needs a key.

  Args:
    dataset: a data set of sparse examples.
    examples_per_round: as in `uniform`.
  """
  clients, longest = dataset.train, {}
  for client_id in clients.client_ids:
    counts = np.sort(clients.feature_counts(client_id))
    longest[client_id] = int(counts[-examples_per_round:].sum())
  largest = 1
  for client_id in sorted(longest, key=longest.get, reverse=True):
    if longest[client_id] <= largest:
      break  # So are those of all others.
    distinct = len(np.unique(clients.examples(client_id).x.ids))
    largest = max(largest, min(longest[client_id], distinct))
  return largest


def mean_examples(dataset: client_data_lib.FederatedDataset) -> float:
  """Returns the mean number of examples per client."""
  clients = dataset.train
  return float(np.mean([len(clients.labels(c)) for c in clients.client_ids]))


@dataclasses.dataclass(frozen=True)
class UniformClients:
  clients_per_round: int
  examples_per_round: int = 0
  has_clients = True

  def cohorts(self, dataset, seed):
    return uniform(
      dataset, self.clients_per_round, seed, self.examples_per_round
    )


@dataclasses.dataclass(frozen=True)
class IidBatches:
  batch_size: int
  steps: int = 0
  has_clients = False

  def cohorts(self, dataset, seed):
    steps = self.steps or math.ceil(mean_examples(dataset) / self.batch_size)
    return pooled(dataset, steps * self.batch_size, seed)
