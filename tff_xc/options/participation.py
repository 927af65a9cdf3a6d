"""Options of all federated algorithms that decide which clients participate in a round."""

import dataclasses

from tff_xc import errors
from tff_xc.options import hyperparameters as hp, option


@hp.declared
class Participation(option.Option):
  """How clients are drawn, and how often they drop out."""

  clients_per_round: int = hp.field(
    16, 'K, the number of clients in a round; default: set by the task', least=1
  )
  virtual_client_size: int = hp.field(
    0,
    'N_VC, the number of examples that every client draws for a round (FedVC). Clients are then'
    ' sampled in proportion to their numbers of examples, and have equal weights. They train for'
    ' one local epoch, which is N_VC / batch_size steps. 0: clients are sampled uniformly and use'
    ' all their examples',
    least=0,
    most=10_000_000,
  )
  virtual_client_replace: bool = hp.field(
    False,
    'sample the clients of a round with replacement. A client may then participate twice in a'
    ' round, with different examples',
    of='virtual_client_size',
    not_with=(0,),
  )
  client_sampling: str = hp.field(
    'fixed',
    "how to sample the clients of a round. 'fixed': a fixed number of clients; 'poisson': each"
    ' client independently, so that --clients_per_round is the expected number',
    choices=('fixed', 'poisson'),
  )
  client_failure_rate: float = hp.field(
    0.0,
    'probability that a sampled client leaves the round before it sends anything. The round'
    ' continues with the other clients',
    least=0,
    below=1,
  )

  def added(self, algorithm, facts):
    from tff_xc.round import cohort

    count, poisson = self.clients_per_round, self.client_sampling == 'poisson'
    sampling, changed = cohort.UniformClients(count, facts.examples_per_round, poisson), {}
    if self.virtual_client_size:
      sampling = cohort.VirtualClients(
        count, self.virtual_client_size, self.virtual_client_replace, poisson
      )
      training = dataclasses.replace(algorithm.local_training, epochs=1, steps=0)
      changed = {'weighting': 'uniform', 'local_training': training}
    if self.client_failure_rate:
      sampling = cohort.Dropout(sampling, self.client_failure_rate)
    return dataclasses.replace(algorithm, sampling=sampling, **changed)

  @classmethod
  def check(cls, values):
    examples, size = values['virtual_client_size'], values['batch_size']
    if examples % size:
      raise errors.InputError(
        f'--virtual_client_size={examples} is not a multiple of --batch_size={size}; give'
        ' a multiple, because a client takes exactly virtual_client_size / batch_size'
        ' steps'
      )
