"""Clients that leave a round before they send anything."""

import dataclasses
from collections.abc import Callable

import numpy as np

from tff_xc.data import client_data
from tff_xc.experiment import cohort as cohort_lib
from tff_xc.round import algorithm as algorithm_lib

# Keeps these draws apart from others of (seed, round, client). Not 0: NumPy takes
# [a, b, c] and [a, b, c, 0] for the same seed.
_PURPOSE = 1


@dataclasses.dataclass(frozen=True)
class Dropout:
  """Clients as `sampling` draws them, of which each leaves with a probability.

  Whether a client leaves depends on (seed, round, client) only. Those that leave
  at some probability also leave at any larger one. The server never hears of a
  client that left, and what the client keeps stays as it was. A round of which
  nobody is left changes nothing. A sampling that adds something to the clients'
  values, such as weights, goes around this one.

  Attributes:
    sampling: who is drawn.
    probability: of leaving, at least 0 and less than 1.
  """

  sampling: algorithm_lib.Sampling
  probability: float

  has_clients = True

  def cohorts(
    self, dataset: client_data.FederatedDataset, seed: int
  ) -> Callable[[int], cohort_lib.Cohort]:
    """Returns round -> the cohort of those who stay; `seed` seeds all draws.

    Raises:
      errors.InputError: as `sampling`.
    """
    drawn = self.sampling.cohorts(dataset, seed)

    def leaves(round_number: int, number: int) -> bool:
      random = np.random.default_rng([seed, round_number, number, _PURPOSE])
      return random.random() < self.probability

    def cohort(round_number: int) -> cohort_lib.Cohort:
      found = drawn(round_number)
      numbers = found.numbers
      if numbers is None:
        numbers = [int(client.client_id) for client in found.examples]
      stay = [i for i, n in enumerate(numbers) if not leaves(round_number, n)]
      values = cohort_lib.Values(found.examples.__getitem__, stay)
      return cohort_lib.Cohort(
        values if stay else cohort_lib.nobody(dataset.train),
        found.skipped,
        tuple(found.client_ids[i] for i in stay if found.client_ids),
        tuple(numbers[i] for i in stay),
        (found.dropouts or 0) + len(numbers) - len(stay),
      )

    return cohort


def with_dropout(
  algorithm: algorithm_lib.Algorithm, probability: float
) -> algorithm_lib.Algorithm:
  """Returns the algorithm, of whose drawn clients each leaves with a probability.

  Args:
    algorithm: with its `sampling` of clients.
    probability: at least 0 and less than 1; 0: the algorithm as it is.

  Raises:
    ValueError: the probability is outside its bounds, or there are no clients.
  """
  if not 0 <= probability < 1:
    raise ValueError(f'probability {probability}: expected 0 <= p < 1')
  if not probability:
    return algorithm
  if algorithm.sampling is None or not algorithm.has_clients:
    raise ValueError('the algorithm draws no clients that could leave')
  return dataclasses.replace(
    algorithm, sampling=Dropout(algorithm.sampling, probability)
  )
