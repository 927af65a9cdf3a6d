"""Computes the epsilon of a run from how often its clients participate."""

import collections
import dataclasses
from collections.abc import Callable

from tff_xc import classifier, errors
from tff_xc.data import client_data
from tff_xc.measure import privacy_loss
from tff_xc.round import algorithm as algorithm_lib, cohort, frozen


def of_rounds(
  algorithm: algorithm_lib.Algorithm, dataset: client_data.FederatedDataset, seed: int
) -> Callable[[int], float]:
  """Returns a function rounds done -> epsilon, for an algorithm with the part 'dp'.

  If clients add the noise, epsilon is that of the client that participated most often, and
  callers must ask for rounds in ascending order.
  """
  hidden = algorithm.part('dp')
  if hidden.bits:
    epsilon = _distributed(algorithm, dataset, seed)
    return lambda rounds: epsilon(hidden, rounds)
  sampling, events = _events(algorithm, dataset, seed)
  accountant = privacy_loss.Accountant(hidden.dp_noise_multiplier, sampling, hidden.dp_delta)
  return lambda rounds: accountant.epsilon(events(rounds))


def noise_multiplier(
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  seed: int,
  rounds: int,
  epsilon: float,
) -> float:
  """Returns the noise multiplier z with which a run of `rounds` has at most `epsilon`."""
  hidden = algorithm.part('dp')
  if hidden.bits:
    epsilon_of = _distributed(algorithm, dataset, seed)

    def with_noise(z):
      return dataclasses.replace(hidden, dp_noise_multiplier=z)

    return privacy_loss.least_noise(lambda z: epsilon_of(with_noise(z), rounds), epsilon)
  sampling, events = _events(algorithm, dataset, seed)
  return privacy_loss.noise_multiplier(epsilon, hidden.dp_delta, events(rounds), sampling)


def _events(algorithm, dataset, seed):
  """Returns (`Sampling`, a function from rounds to the number of noisy sums or updates)."""
  if not algorithm.part('dp').local:
    if not hasattr(algorithm.sampling, 'participation'):
      raise errors.InputError(
        f'{type(algorithm.sampling).__name__} has no method participation(dataset),'
        ' which says how clients are sampled; add it, because epsilon depends on it'
      )
    sampling = privacy_loss.Sampling(*algorithm.sampling.participation(dataset))
    return sampling, lambda rounds: rounds
  # Two updates differ by at most twice the norm. Participation is not secret.
  sampling = privacy_loss.Sampling(privacy_loss.FIXED, 1.0)
  part = _participation(algorithm, dataset, seed)
  return sampling, lambda rounds: part(rounds)[0]


def _distributed(algorithm, dataset, seed):
  """Returns a function (`Privacy` with `bits`, rounds) -> epsilon, for ascending rounds.

  It assumes that every round has only the noise of the round with the fewest clients.
  """
  part = _participation(algorithm, dataset, seed)
  count = numbers_sent(algorithm)

  def epsilon(hidden, rounds: int) -> float:
    most, fewest = part(rounds)
    integers = hidden.integers
    return privacy_loss.skellam_epsilon(
      integers.distance(hidden.dp_clip, count),
      count,
      fewest * integers.stddev**2,
      hidden.dp_delta,
      most,
    )

  return epsilon


def _participation(algorithm, dataset, seed):
  """Returns a function rounds -> (most rounds of a client, fewest clients of a round).

  Callers must ask for rounds in ascending order.
  """
  cohorts = algorithm.sampling.cohorts(dataset, seed)
  clients, counts = len(dataset.train.partition), collections.Counter()
  done, fewest = 0, clients

  def found(rounds: int) -> tuple[int, int]:
    nonlocal done, fewest
    for round_number in range(done, rounds):
      numbers = cohort.numbers_of(cohorts(round_number))
      counts.update(number % clients for number in numbers)
      if numbers:
        fewest = min(fewest, len(numbers))
    done = max(done, rounds)
    return max(counts.values(), default=0), fewest

  return found


def numbers_sent(algorithm: algorithm_lib.Algorithm) -> int:
  """Returns how many numbers a client sends if it receives all rows."""
  specs = frozen.trained_part(algorithm, algorithm.model.weight_specs())
  whole = classifier.union(specs.encoder, specs.encoder_state)
  sent = [t.name for t in algorithm.tables if t.merge.sends_rows]
  each = [*whole.values(), *(specs.tables[name] for name in sent)]
  return sum(spec.shape.num_elements() for spec in each)
