"""FedNova: clients that take more local steps do not get a larger weight.

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", NeurIPS 2020, arXiv:2007.07481. A client's change is a sum of its gradients
with the factors a_k. FedNova divides the change by the sum of these factors, ||a_k||_1. The server
averages with the weights p_k = n_k / n and multiplies the mean by tau_eff:

  x <- x + tau_eff sum_k p_k (y_k - x) / ||a_k||_1    tau_eff = sum_k p_k ||a_k||_1

With SGD, ||a_k||_1 is the number tau_k of local steps. With a proximal term of weight mu and
learning rate eta, each step shrinks the change by the factor 1 - eta mu, so ||a_k||_1 is

  (1 - (1 - eta mu)^tau_k) / (eta mu).

If all clients take the same number of steps, FedNova without a proximal term equals FedAvg, and
FedNova with a proximal term equals FedProx. (With a proximal term, the authors' code takes sum_k
p_k tau_k as tau_eff, which is larger.)
"""

import collections
import dataclasses

from tff_xc import errors
from tff_xc.algorithms import base, fedavg
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts


@hp.declared
class FedNova(fedavg.FedAvg):
  """Averages each client's change divided by its number of steps.

  The server multiplies the average by the mean number of steps. With --local_epochs, clients with
  different numbers of examples take different numbers of steps. Batch statistics are averaged as in
  FedAvg. With a proximal term, ||a_k||_1 replaces the number of steps (see the module's docstring).
  """

  name = 'fednova'
  paper = 'Wang J. 2020'
  answers = fedavg.FedAvg.answers._replace(merge='mean delta of a local step, times the mean steps')
  client_optimizer: str = hp.own('sgd')

  def make(self, model, facts):
    part = _Normalised(self.prox_mu)
    return dataclasses.replace(super().make(model, facts), parts=(part,))

  @classmethod
  def check(cls, values):
    super().check(values)
    if values['client_learning_rate'] * values['prox_mu'] >= 1:
      raise errors.InputError(
        '--prox_mu times --client_learning_rate is 1 or more, so a local step would erase or'
        ' reverse the changes of earlier steps; lower one of them'
      )


@dataclasses.dataclass(frozen=True)
class _Normalised(parts.Part):
  """Divides a change by ||a_k||_1, and multiplies the mean by tau_eff."""

  prox_mu: float

  name = 'fednova'

  def on_client(self, local):
    steps = tf.maximum(local.steps, 1.0)
    if self.prox_mu:  # Compute 1 - (1 - decay)^tau without cancellation.
      decay = tf.convert_to_tensor(local.rate * self.prox_mu, tf.float32)
      weighed = -tf.math.expm1(steps * tf.math.log1p(-decay))
      # With a learning rate of 0, the weights do not change.
      steps = tf.where(decay > 0, tf.math.divide_no_nan(weighed, decay), steps)
    encoder, rows = local.change
    of_state = local.before.encoder_state
    encoder = collections.OrderedDict(
      (name, value if name in of_state else value / steps) for name, value in encoder.items()
    )
    rows = collections.OrderedDict((n, r / steps) for n, r in rows.items())
    return parts.Answer(reply=local.weight * steps, change=(encoder, rows))

  def on_server(self, state, total, of_round, merged):
    factor = tf.math.divide_no_nan(total, of_round.weight)
    trained = merged.weights.encoder  # Without batch statistics.
    encoder = collections.OrderedDict(
      (name, t * factor if name in trained else t) for name, t in merged.encoder.items()
    )
    tables = collections.OrderedDict(
      (name, sums._replace(rows=sums.rows * factor)) for name, sums in merged.tables.items()
    )
    return parts.Next(state, merged._replace(encoder=encoder, tables=tables))


build_fednova = base.builder(FedNova)
