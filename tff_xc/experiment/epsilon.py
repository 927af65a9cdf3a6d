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
  """Returns a function from the number of finished rounds to epsilon.

  The algorithm must have the part 'dp'. If clients add the noise, the function returns the
  epsilon of the client that participated most often. In this case, callers must pass numbers
  of rounds in ascending order.
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
  """Returns the least noise multiplier for which `rounds` rounds cost at most `epsilon`."""
  hidden = algorithm.part('dp')
  if hidden.bits:
    epsilon_of = _distributed(algorithm, dataset, seed)
    return privacy_loss.least_noise(
      lambda z: epsilon_of(dataclasses.replace(hidden, dp_noise_multiplier=z), rounds), epsilon
    )
  sampling, events = _events(algorithm, dataset, seed)
  return privacy_loss.noise_multiplier(epsilon, hidden.dp_delta, events(rounds), sampling)


def _events(algorithm, dataset, seed):
  """Returns (`Sampling`, a function from a number of rounds to the number of noisy releases).

  A noisy release is the noisy sum of a round. With local privacy, a noisy release is the noisy
  update of a client. The function then counts the updates of the client that participates most
  often.
  """
  if not algorithm.part('dp').local:
    if not hasattr(algorithm.sampling, 'participation'):
      raise errors.InputError(
        f'{type(algorithm.sampling).__name__} has no method participation(dataset),'
        ' which says how clients are sampled; add it, because epsilon depends on it'
      )
    algorithm.sampling.cohorts(dataset, seed)  # Raises InputError if there are too few clients.
    sampling = privacy_loss.Sampling(*algorithm.sampling.participation(dataset))
    return sampling, lambda rounds: rounds
  # With `FIXED`, neighbors differ in one update. Two clipped updates differ by at most twice the
  # clipping norm. The rate is 1, because the server knows which clients participate.
  sampling = privacy_loss.Sampling(privacy_loss.FIXED, 1.0)
  part = _participation(algorithm, dataset, seed)
  return sampling, lambda rounds: part(rounds)[0]


def _distributed(algorithm, dataset, seed):
  """Returns a function (`Privacy` with `bits`, number of rounds) -> epsilon.

  Callers must pass numbers of rounds in ascending order. The function assumes that every round
  has only as much noise as the round with the fewest clients.
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
  """Returns a function from a number of rounds to two numbers about participation.

  The first is the largest number of rounds in which one client participates. The second is the
  smallest number of clients in a round, without counting rounds that have no clients. Callers
  must pass numbers of rounds in ascending order.
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
  """Returns how many numbers a client update has if the client receives all rows."""
  specs = frozen.trained_part(algorithm, algorithm.model.weight_specs())
  whole = classifier.union(specs.encoder, specs.encoder_state)
  sent = [specs.tables[t.name] for t in algorithm.tables if t.merge.sends_rows]
  return sum(spec.shape.num_elements() for spec in (*whole.values(), *sent))
