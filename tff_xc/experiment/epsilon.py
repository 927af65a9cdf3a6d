"""Epsilon of a run: what an accountant needs to know of its clients."""

import collections
from collections.abc import Callable

from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.experiment import cohort
from tff_xc.measure import privacy_loss
from tff_xc.round import algorithm as algorithm_lib


def of_rounds(
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  seed: int,
) -> Callable[[int], float]:
  """Returns a function: rounds done -> epsilon of an algorithm with `privacy`.

  With noise of the clients it is that of the one which took part most often; ask for
  rounds in ascending order, then.
  """
  hidden, sampling, events = _events(algorithm, dataset, seed)
  noise = hidden.noise_multiplier
  accountant = privacy_loss.Accountant(noise, sampling, hidden.delta)
  return lambda rounds: accountant.epsilon(events(rounds))


def noise_multiplier(
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  seed: int,
  rounds: int,
  epsilon: float,
) -> float:
  """Returns the z with which a run of so many rounds has at most `epsilon`."""
  hidden, sampling, events = _events(algorithm, dataset, seed)
  count = events(rounds)
  return privacy_loss.noise_multiplier(epsilon, hidden.delta, count, sampling)


def _events(algorithm, dataset, seed):
  """Returns (`Privacy`, `Sampling`, rounds -> how often noise hides a client)."""
  hidden = algorithm.privacy
  if not hidden.local:
    if not hasattr(algorithm.sampling, 'participation'):
      raise errors.InputError(
        f'{type(algorithm.sampling).__name__} has no method participation(dataset),'
        ' which says how clients come to take part; add it, to know an epsilon'
      )
    sampling = algorithm.sampling.participation(dataset)
    return hidden, sampling, lambda rounds: rounds
  # Any two updates are two norms apart at most; who takes part is no secret.
  sampling = privacy_loss.Sampling(privacy_loss.FIXED, 1.0)
  cohorts = algorithm.sampling.cohorts(dataset, seed)
  clients, counts = len(dataset.train.partition), collections.Counter()
  done = 0

  def most(rounds: int) -> int:
    nonlocal done
    for round_number in range(done, rounds):
      numbers = cohort.numbers_of(cohorts(round_number))
      counts.update(number % clients for number in numbers)
    done = max(done, rounds)
    return max(counts.values(), default=0)

  return hidden, sampling, most
