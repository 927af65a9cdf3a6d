"""FedVC: virtual clients of equal size.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082, section 5.3. A client takes part with
a probability that grows with its number of examples, draws N_VC of them, and
takes N_VC / B steps. All clients of a round count alike.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from tff_xc.data import client_data
from tff_xc.experiment import cohort as cohort_lib
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import examples as examples_lib


@dataclasses.dataclass(frozen=True)
class VirtualClients:
  """K clients a round, drawn in proportion to their examples, and N_VC of these.

  Without replacement, the draws of a round are successive: the next client is
  drawn in proportion to the examples of those that are left. Clients without
  examples are never drawn. A client draws its N_VC examples uniformly in every
  round, without replacement if it has as many, else with replacement. It still
  requests the rows of all its classes.

  Attributes:
    clients_per_round: K.
    examples: N_VC.
    replace: whether a client may be drawn twice in a round. Each time it has
      another id, so that its examples and all its random numbers differ: its
      number plus a multiple of the number of clients.
  """

  clients_per_round: int
  examples: int
  replace: bool = False

  has_clients = True

  def cohorts(
    self, dataset: client_data.FederatedDataset, seed: int
  ) -> Callable[[int], cohort_lib.Cohort]:
    """Returns round -> cohort; `seed` seeds the draws.

    Raises:
      errors.InputError: if fewer than K clients have examples, or none has.
    """
    train = dataset.train
    partition = train.partition
    sizes = partition.sizes
    cohort_lib.check_enough(
      1 if self.replace else self.clients_per_round,
      np.count_nonzero(sizes),
      ' with examples',
    )
    share = sizes / sizes.sum()

    def cohort(round_number: int) -> cohort_lib.Cohort:
      # Its draw of distinct clients is a sequence of independent draws without
      # the repetitions, which is successive sampling.
      drawn = np.random.default_rng([seed, round_number, 0]).choice(
        len(share), self.clients_per_round, self.replace, share
      )

      before = [
        np.count_nonzero(drawn[:place] == index)
        for place, index in enumerate(drawn)
      ]
      numbers = (drawn + len(partition) * np.array(before)).tolist()

      def value(number: int) -> examples_lib.ClientExamples:
        held = partition.of_client(number % len(partition))
        random = np.random.default_rng([seed, round_number, 1 + number])
        used = random.choice(held, self.examples, self.examples > len(held))
        return cohort_lib.client_value(train, used, number, held)

      return cohort_lib.Cohort(
        cohort_lib.Values(value, numbers),
        0,
        tuple(partition.client_ids[i] for i in drawn),
        tuple(numbers),
      )

    return cohort


def virtual_clients(
  algorithm: algorithm_lib.Algorithm,
  clients_per_round: int,
  examples: int,
  replace: bool = False,
) -> algorithm_lib.Algorithm:
  """Returns the algorithm on FedVC's virtual clients, for one local epoch.

  Args:
    algorithm: any with clients.
    clients_per_round: K.
    examples: N_VC, a multiple of the batch size.
    replace: see `VirtualClients`.

  Raises:
    ValueError: `examples` is no multiple of the batch size; or clients keep a
      state, of which a client drawn twice would return two.
  """
  training = algorithm.local_training
  if examples % training.batch_size:
    raise ValueError(
      f'{examples} examples are no multiple of batches of {training.batch_size}'
    )
  if replace and algorithm.client_state is not None:
    raise ValueError('clients that keep a state are drawn without replacement')
  return dataclasses.replace(
    algorithm,
    sampling=VirtualClients(clients_per_round, examples, replace),
    weighting='uniform',
    local_training=dataclasses.replace(training, epochs=1, steps=0),
  )
