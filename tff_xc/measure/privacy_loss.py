"""Computes epsilon of a run's differential privacy, and the noise for a given epsilon.

The numbers come from Google's library dp-accounting. They hold for the model that a run
produces, at the level of clients. They do not cover what requests reveal. Importing this
module does not import TensorFlow.
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
# Above this epsilon nothing is private, and Renyi's bound is returned, because a loss
# distribution would take gigabytes.
_LARGE = 50.0
_LEAST, _MOST = 1e-3, 1e5  # The range of noise multipliers to search.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How the clients of a round are sampled.

  Attributes:
    kind: `POISSON` samples each client independently with probability `rate`; two data
      sets are neighbors if one has one more client. `FIXED` samples the same number of
      clients in every round, the share `rate` of all, uniformly without replacement;
      neighbors differ in the data of one client, so the number of clients is public.
    rate: the probability; if clients have different probabilities, the largest.
  """

  kind: str
  rate: float

  def __post_init__(self):
    if not 0 < self.rate <= 1:
      raise ValueError(f'rate {self.rate}: expected more than 0, at most 1')

  @property
  def neighbors(self) -> str:
    """A phrase for people that says how neighboring data sets differ."""
    if self.kind == POISSON:
      return 'one client more or less'
    return "another client in one's place"


class Accountant:
  """Epsilon of Gaussian noise on sums over the clients of a round."""

  def __init__(self, noise_multiplier: float, sampling: Sampling, delta: float):
    """Takes the noise's deviation over the clipping norm, and delta of (epsilon, delta)."""
    if not 0 < delta < 1:
      raise ValueError(f'delta {delta}: expected between 0 and 1')
    self._sampling, self._delta = sampling, delta
    # Replacing a client changes the sum by at most two clipping norms.
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
      # The library has no loss distribution for fixed-size sampling.
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
    """Renyi orders, and the Renyi divergences of one round, which add up over rounds."""
    import dp_accounting
    from dp_accounting import rdp

    rate, event = (self._sampling.rate, dp_accounting.GaussianDpEvent(self._noise))
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if self._sampling.kind == FIXED and rate < 1:
      relation = dp_accounting.NeighboringRelation.REPLACE_ONE
      # Only the ratio of the two sizes matters.
      size = max(1, math.ceil(rate * 10**9))
      event = dp_accounting.SampledWithoutReplacementDpEvent(10**9, size, event)
    elif rate < 1:
      event = dp_accounting.PoissonSampledDpEvent(rate, event)
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event)
    # Rounding may make divergences slightly negative.
    return accountant._orders, np.maximum(accountant._rdp, 0.0)


def skellam_epsilon(
  distance: float, numbers: int, variance: float, delta: float, rounds: int
) -> float:
  """Returns an upper bound of epsilon for Skellam noise on integers; inf without noise.

  It uses the Renyi divergences of Agarwal, Kairouz, Liu: "The Skellam Mechanism for
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
  # The L1 distance: no integer's absolute value exceeds its square.
  total = distance * min(math.sqrt(numbers), distance)
  more = np.minimum(
    ((2 * orders - 1) * distance**2 + 6 * total) / (4 * variance**2), 3 * total / (2 * variance)
  )
  return orders * distance**2 / (2 * variance) + more


def noise_multiplier(epsilon: float, delta: float, rounds: int, sampling: Sampling) -> float:
  """Returns the smallest z, within 0.1 %, that gives at most `epsilon` after `rounds`.

  Raises `errors.InputError` if no noise in the search range is enough.
  """

  def accountant(z):
    return Accountant(z, sampling, delta)

  # Start with Renyi's bound, whose cost does not depend on the noise.
  most = least_noise(lambda z: accountant(z)._renyi(rounds), epsilon)

  # Search with loss distributions down to a third of this noise.
  def of(z):
    return accountant(z).epsilon(rounds)

  return least_noise(of, epsilon, most / 3, most)


def least_noise(
  epsilon_of: Callable[[float], float], epsilon: float, least: float = _LEAST, most: float = _MOST
) -> float:
  """Returns the smallest z, within 0.1 %, for which `epsilon_of(z)` is at most `epsilon`."""
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
