"""What differential privacy a run has: epsilon after some rounds, and the noise for one.

Numbers come from dp-accounting, Google's library. They are about the model that a run
gives, with clients as the unit; what requests tell is not in them. This does not import
TensorFlow.
"""

import dataclasses
import functools
import math

from tff_xc import errors

POISSON, FIXED = 'poisson', 'fixed'
# Of privacy losses; results are upper bounds, at most some thousandths above those of
# a finer one.
_INTERVAL = 1e-3
# Noise multipliers between which one is searched, and how exactly.
_LEAST, _MOST, _TOLERANCE = 0.05, 1e4, 1e-3


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
    if self._sampling.kind == FIXED and self._sampling.rate < 1:
      return self._of_fixed(rounds)
    composed = self._one_round.self_compose(rounds)
    return float(composed.get_epsilon_for_delta(self._delta))

  @functools.cached_property
  def _one_round(self):
    """The privacy loss distribution of a round."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
      self._noise,
      value_discretization_interval=_INTERVAL,
      sampling_prob=self._sampling.rate,
    )

  def _of_fixed(self, rounds: int) -> float:
    """By Renyi divergences: of this sampling the library has no loss distribution."""
    import dp_accounting
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(
      neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    # Only the quotient counts.
    scale = 10**9
    size = max(1, math.ceil(self._sampling.rate * scale))
    event = dp_accounting.SampledWithoutReplacementDpEvent(
      scale, size, dp_accounting.GaussianDpEvent(self._noise)
    )
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(self._delta))


def noise_multiplier(
  epsilon: float, delta: float, rounds: int, sampling: Sampling
) -> float:
  """Returns the least z, to a thousandth, with at most `epsilon` after the rounds.

  Raises `errors.InputError` if there is none that the accountant can tell.
  """
  least, most = _LEAST, _LEAST
  of = lambda z: Accountant(z, sampling, delta).epsilon(rounds)
  while of(most) > epsilon:
    least, most = most, 2 * most
    if most > _MOST:
      raise errors.InputError(
        f'--dp_epsilon={epsilon:g}: no noise gives it for {rounds:,} rounds and'
        f' --dp_delta={delta:g}; give a larger one'
      )
  while most - least > _TOLERANCE * most:
    middle = (least + most) / 2
    if of(middle) > epsilon:
      least = middle
    else:
      most = middle
  return most
