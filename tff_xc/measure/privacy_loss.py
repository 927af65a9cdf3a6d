"""What differential privacy a run has: epsilon after some rounds, and the noise for one.

Numbers come from dp-accounting, Google's library. They are about the model that a run
gives, with clients as the unit; what requests tell is not in them. This does not import
TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from tff_xc import errors

POISSON, FIXED = 'poisson', 'fixed'
# Of privacy losses; results are upper bounds, at most some thousandths above those of
# a finer one.
_INTERVAL = 1e-3
# From here on nothing is private, and Renyi's bound is told; a loss distribution would
# take gigabytes.
_LARGE = 50.0
_LEAST, _MOST = 1e-3, 1e5  # Noise multipliers between which one is searched.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Sampling:
  """Who takes part in a round.

  Attributes:
    kind: `POISSON`: each client by itself, with probability `rate`; two data sets are
      neighbours if one has one client more. `FIXED`: as many clients in every round,
      the share `rate` of all, drawn uniformly without replacement; neighbours differ in
      the data of one client, so that their number is no secret.
    rate: the probability; where clients have several, the largest.
  """

  kind: str
  rate: float

  def __post_init__(self):
    if not 0 < self.rate <= 1:
      raise ValueError(f'rate {self.rate}: expected more than 0, at most 1')

  @property
  def neighbors(self) -> str:
    """In what neighbouring data sets differ, for people."""
    if self.kind == POISSON:
      return 'one client more or less'
    return "another client in one's place"


class Accountant:
  """Epsilon of Gaussian noise on sums over the clients of a round."""

  def __init__(self, noise_multiplier: float, sampling: Sampling, delta: float):
    """Args: z, over the clipping norm; who takes part; delta of (epsilon, delta)."""
    if not 0 < delta < 1:
      raise ValueError(f'delta {delta}: expected between 0 and 1')
    self._sampling, self._delta = sampling, delta
    # One client in another's place changes the sum by two norms.
    apart = 2.0 if sampling.kind == FIXED else 1.0
    self._noise = noise_multiplier / apart

  def epsilon(self, rounds: int) -> float:
    """Returns an upper bound of epsilon after this many rounds, inf without noise."""
    if not rounds:
      return 0.0
    if self._noise <= 0:
      return math.inf
    bound = self._renyi(rounds)
    sampled_fixed = self._sampling.kind == FIXED and self._sampling.rate < 1
    if bound > _LARGE or sampled_fixed:
      # Of this sampling the library has no loss distribution.
      return bound
    composed = self._one_round.self_compose(rounds)
    return min(bound, float(composed.get_epsilon_for_delta(self._delta)))

  @functools.cached_property
  def _one_round(self):
    """The privacy loss distribution of a round."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
      self._noise, value_discretization_interval=_INTERVAL, sampling_prob=self._sampling.rate
    )

  def _renyi(self, rounds: int) -> float:
    """Returns the bound by Renyi divergences."""
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, divergences = self._divergences
    found, _ = rdp_privacy_accountant.compute_epsilon(orders, rounds * divergences, self._delta)
    return float(found)

  @functools.cached_property
  def _divergences(self):
    """Renyi's orders and the divergences of a round, which add up over rounds."""
    import dp_accounting
    from dp_accounting import rdp

    rate, event = (self._sampling.rate, dp_accounting.GaussianDpEvent(self._noise))
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    if self._sampling.kind == FIXED and rate < 1:
      relation = dp_accounting.NeighboringRelation.REPLACE_ONE
      # Only the quotient counts.
      size = max(1, math.ceil(rate * 10**9))
      event = dp_accounting.SampledWithoutReplacementDpEvent(10**9, size, event)
    elif rate < 1:
      event = dp_accounting.PoissonSampledDpEvent(rate, event)
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event)
    # Rounding may leave less than nothing.
    return accountant._orders, np.maximum(accountant._rdp, 0.0)


def skellam_epsilon(
  distance: float, numbers: int, variance: float, delta: float, rounds: int
) -> float:
  """Returns an upper bound of epsilon of Skellam noise on integers, inf without any.

  By the Renyi divergences of Agarwal, Kairouz, Liu: "The Skellam Mechanism for
  Differentially Private Federated Learning", NeurIPS 2021, arXiv:2110.04995.

  Args:
    distance: in the L2 norm, of two vectors that are to look alike.
    numbers: how many integers a vector has.
    variance: of the noise on each number.
    delta: of (epsilon, delta).
    rounds: in which there is such a vector.
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
  """Returns bounds of Renyi's divergences, of whole orders; see `skellam_epsilon`."""
  # Of integers, none is above its square.
  total = distance * min(math.sqrt(numbers), distance)
  more = np.minimum(
    ((2 * orders - 1) * distance**2 + 6 * total) / (4 * variance**2), 3 * total / (2 * variance)
  )
  return orders * distance**2 / (2 * variance) + more


def noise_multiplier(epsilon: float, delta: float, rounds: int, sampling: Sampling) -> float:
  """Returns the least z, to a thousandth, with at most `epsilon` after the rounds.

  Raises `errors.InputError` if there is none that the accountant can tell.
  """

  def accountant(z):
    return Accountant(z, sampling, delta)

  # Renyi's bound first, whose cost does not depend on the noise.
  most = least_noise(lambda z: accountant(z)._renyi(rounds), epsilon)

  # Loss distributions tell of a third less at most, or they are not used.
  def of(z):
    return accountant(z).epsilon(rounds)

  return least_noise(of, epsilon, most / 3, most)


def least_noise(
  epsilon_of: Callable[[float], float], epsilon: float, least: float = _LEAST, most: float = _MOST
) -> float:
  """Returns the least z, to a thousandth, of which `epsilon_of` is `epsilon` at most."""
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
