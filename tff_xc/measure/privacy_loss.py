"""Computes epsilon of a run's differential privacy, and the noise for a given epsilon.

Google's library dp-accounting computes most of the numbers. Epsilon bounds what the run's
model reveals about all data of one client. Epsilon does not cover what the client's requests
reveal. Importing this module does not import TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from tff_xc import errors

POISSON, FIXED = 'poisson', 'fixed'
# The discretization interval of privacy losses. Results are upper bounds, at most a few
# thousandths above those of a finer interval.
_INTERVAL = 1e-3
# If Renyi's bound exceeds this epsilon, `Accountant` does not compute a tighter value. A loss
# distribution would take gigabytes, and such a large epsilon gives no privacy.
_LARGE = 50.0
_LEAST, _MOST = 1e-3, 1e5  # The search range of noise multipliers.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How the clients of a round are sampled.

  Attributes:
    kind: `POISSON` or `FIXED`. `POISSON` samples each client independently with probability
      `rate`, and two data sets are neighbors if one has one more client. `FIXED` samples the
      same share `rate` of the clients in every round, uniformly without replacement. Two data
      sets are then neighbors if they differ in the data of one client. Epsilon does not hide
      the number of clients in this case.
    rate: the probability that a client participates. If clients have different
      probabilities, the largest of them.
  """

  kind: str
  rate: float

  def __post_init__(self):
    if not 0 < self.rate <= 1:
      raise ValueError(f'rate {self.rate}: expected more than 0, at most 1')

  @property
  def neighbors(self) -> str:
    """A phrase that tells users how neighboring data sets differ."""
    if self.kind == POISSON:
      return 'one client more or less'
    return "another client in one's place"


class Accountant:
  """Computes epsilon for Gaussian noise on sums over the clients of a round."""

  def __init__(self, noise_multiplier: float, sampling: Sampling, delta: float):
    """Stores the parameters of the noise and of the sampling.

    Args:
      noise_multiplier: the standard deviation of the noise, divided by the clipping norm.
      sampling: how clients are sampled.
      delta: delta of (epsilon, delta).
    """
    if not 0 < delta < 1:
      raise ValueError(f'delta {delta}: expected between 0 and 1')
    self._sampling, self._delta = sampling, delta
    # Adding a client changes the sum by at most one clipping norm. Replacing a client changes the
    # sum by at most two clipping norms.
    apart = 2.0 if sampling.kind == FIXED else 1.0
    self._noise = noise_multiplier / apart

  def epsilon(self, rounds: int) -> float:
    """Returns an upper bound of epsilon after `rounds` rounds; inf without noise."""
    if not rounds:
      return 0.0
    if self._noise <= 0:
      return math.inf
    bound = self._renyi(rounds)
    sampled_fixed = self._sampling.kind == FIXED and self._sampling.rate < 1
    if bound > _LARGE or sampled_fixed:
      # For fixed-size sampling, the library has no loss distribution.
      return bound
    composed = self._one_round.self_compose(rounds)
    return min(bound, float(composed.get_epsilon_for_delta(self._delta)))

  @functools.cached_property
  def _one_round(self):
    """The privacy loss distribution of one round."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
      self._noise, value_discretization_interval=_INTERVAL, sampling_prob=self._sampling.rate
    )

  def _renyi(self, rounds: int) -> float:
    """Returns the upper bound of epsilon from Renyi divergences."""
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, divergences = self._divergences
    found, _ = rdp_privacy_accountant.compute_epsilon(orders, rounds * divergences, self._delta)
    return float(found)

  @functools.cached_property
  def _divergences(self):
    """Renyi orders, and the Renyi divergences of one round. Divergences of rounds add up."""
    import dp_accounting
    from dp_accounting import rdp

    rate, event = (self._sampling.rate, dp_accounting.GaussianDpEvent(self._noise))
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if self._sampling.kind == FIXED and rate < 1:
      relation = dp_accounting.NeighboringRelation.REPLACE_ONE
      # Epsilon depends only on the ratio of sample size and population size.
      size = max(1, math.ceil(rate * 10**9))
      event = dp_accounting.SampledWithoutReplacementDpEvent(10**9, size, event)
    elif rate < 1:
      event = dp_accounting.PoissonSampledDpEvent(rate, event)
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event)
    # Rounding errors may make divergences slightly negative.
    return accountant._orders, np.maximum(accountant._rdp, 0.0)


def skellam_epsilon(
  distance: float, numbers: int, variance: float, delta: float, rounds: int
) -> float:
  """Returns an upper bound of epsilon for Skellam noise on integers; inf without noise.

  The function uses the Renyi divergences of Agarwal, Kairouz, Liu: "The Skellam Mechanism for
  Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995.

  Args:
    distance: the L2 distance between the vectors of neighboring data sets.
    numbers: the number of integers in a vector.
    variance: the variance of the noise on each integer.
    delta: delta of (epsilon, delta).
    rounds: the number of rounds, each with one vector.
  """
  from dp_accounting.rdp import rdp_privacy_accountant

  if not rounds:
    return 0.0
  if variance <= 0:
    return math.inf
  orders = np.unique(np.geomspace(2, 10_000, 400).astype(int)).astype(float)
  divergences = skellam_divergences(orders, distance, numbers, variance)
  found, _ = rdp_privacy_accountant.compute_epsilon(orders, rounds * divergences, delta)
  return float(found)


def skellam_divergences(
  orders: np.ndarray, distance: float, numbers: int, variance: float
) -> np.ndarray:
  """Returns bounds of Renyi divergences for integer orders; see `skellam_epsilon`."""
  # A bound of the L1 distance, because no integer's absolute value exceeds its square.
  total = distance * min(math.sqrt(numbers), distance)
  more = np.minimum(
    ((2 * orders - 1) * distance**2 + 6 * total) / (4 * variance**2), 3 * total / (2 * variance)
  )
  return orders * distance**2 / (2 * variance) + more


def noise_multiplier(epsilon: float, delta: float, rounds: int, sampling: Sampling) -> float:
  """Returns the smallest noise multiplier with at most `epsilon` after `rounds` rounds.

  The result is accurate to 0.1 %. Raises `errors.InputError` if no noise in the search range
  is enough.
  """

  def accountant(z):
    return Accountant(z, sampling, delta)

  # First search with Renyi's bound, because its cost does not depend on the noise.
  most = least_noise(lambda z: accountant(z)._renyi(rounds), epsilon)
  # Loss distributions allow less noise. Search with them between a third of `most` and `most`.
  return least_noise(lambda z: accountant(z).epsilon(rounds), epsilon, most / 3, most)


def least_noise(
  epsilon_of: Callable[[float], float], epsilon: float, least: float = _LEAST, most: float = _MOST
) -> float:
  """Returns the smallest noise multiplier z such that `epsilon_of(z)` is at most `epsilon`.

  The result is accurate to 0.1 %. Raises `errors.InputError` if `epsilon_of(most)` exceeds
  `epsilon`.
  """
  if epsilon_of(most) > epsilon:
    raise errors.InputError(
      f'--dp_epsilon={epsilon:g}: no noise gives it for the rounds, --dp_delta and'
      ' other settings of this run; give a larger one'
    )
  while most - least > _TOLERANCE * most:
    middle = math.sqrt(least * most)
    if epsilon_of(middle) > epsilon:
      least = middle
    else:
      most = middle
  return most
