"""FedDyn: each client stores a gradient that corrects its objective.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: "Federated Learning Based on Dynamic
Regularization", ICLR 2021, arXiv:2111.04263, Algorithm 1. There are m clients, and the clients in
P_t train in round t. A client minimises

  L_k(theta) - <g_k, theta> + alpha / 2 |theta - theta_G|^2            eq. (1)

and then stores g_k <- g_k - alpha (theta_k - theta_G). At an optimum, g_k is the gradient of the
client's loss. The server stores the drift h <- h - alpha / m sum (theta_k - theta_G), with the sum
over P_t. The new model is the mean of the clients' models, minus h / alpha.
"""

import collections
import dataclasses
from collections.abc import Collection
from typing import Any

from tff_xc.algorithms import base
from tff_xc.lazy import tf, tff
from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts


@hp.declared
class FedDyn(base.Federated):
  """FedAvg with a dynamic regularizer, for which each client stores a gradient.

  The stored gradient g_k has an entry for each trained weight. To train the same weights in every
  round, all clients receive all class rows. P_t contains the clients whose updates arrive and are
  finite. Only these clients change their g_k, so h is always the mean of all clients' g_k. With
  --dp, the server does not know the size of P_t, and uses clients_per_round instead.
  """

  name = 'feddyn'
  keeps_models = True
  paper = 'Acar 2021'
  answers = base.Answers(
    'all classes',
    'softmax, kept gradient, squared distance',
    'mean delta, clients alike',
    'mean less the drift',
  )
  feddyn_alpha: float = hp.field(
    0.01, 'alpha, the weight of the regularizer (FedDyn: 0.1, 0.01 or 0.001)', above=0
  )

  def make(self, model, facts):
    made = base.softmax(model, self.local_training())
    optimizer = _less_the_drift(facts.all_clients())
    return dataclasses.replace(
      made,
      tables=tuple(dataclasses.replace(table, optimizer=optimizer) for table in made.tables),
      weighting='uniform',
      encoder_optimizer=optimizer,
    )

  def finish(self, made, facts):
    made = super().finish(made, facts)
    alpha, frozen = self.feddyn_alpha, made.frozen
    spec = trained(made.model.weight_specs(), frozen)
    return dataclasses.replace(
      made,
      penalties=(_Regulariser(alpha, frozen), *made.penalties),
      parts=(_Gradient(alpha, frozen, spec), *made.parts),
    )


def trained(weights, frozen) -> collections.OrderedDict:
  """Returns by name the weights that have a gradient and are not frozen."""

  def kept(named):
    return collections.OrderedDict(
      (name, value) for name, value in named.items() if name not in frozen
    )

  return collections.OrderedDict(encoder=kept(weights.encoder), tables=kept(weights.tables))


@dataclasses.dataclass(frozen=True)
class _Regulariser:
  """The penalty - <g_k, theta> + alpha / 2 |theta - theta_G|^2, with g_k = 0 at the start."""

  alpha: float
  frozen: Collection[str]

  def __call__(self, step):
    now, received, kept = map(
      tf.nest.flatten,
      (
        trained(step.weights, self.frozen),
        trained(step.initial_weights, self.frozen),
        step.state.value,
      ),
    )
    return tf.add_n(
      [
        self.alpha * tf.nn.l2_loss(w - r) - tf.reduce_sum(g * w)
        for w, r, g in zip(now, received, kept, strict=True)
      ]
    )


@dataclasses.dataclass(frozen=True)
class _Gradient(parts.Part):
  """The part of the round in which a client updates and stores g_k."""

  alpha: float
  frozen: Collection[str]
  spec: Any

  name = 'feddyn'

  def on_client(self, local):
    kept = tf.nest.map_structure(
      lambda g, b, a: g - self.alpha * (a - b),
      local.kept.value,
      trained(local.before, self.frozen),
      trained(local.after, self.frozen),
    )
    return parts.Answer(kept)


def _less_the_drift(all_clients: int):
  """Returns the server's optimizer: the new model is the mean minus h / alpha."""

  class LessTheDrift(tff.learning.optimizers.Optimizer):
    """Takes as gradient the negative mean change of `clients` clients.

    The optimizer's state is h / alpha, so the optimizer does not need alpha.
    """

    def __init__(self, clients=None):
      self._clients = clients

    def of_clients(self, clients):
      return LessTheDrift(clients)

    def initialize(self, specs):
      return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)

    def next(self, state, weights, gradients):
      each, share = tf.nest.map_structure, self._clients / all_clients
      drift = each(lambda h, g: h + share * g, state, gradients)
      return drift, each(lambda w, g, h: w - g - h, weights, gradients, drift)

  return LessTheDrift()


build_feddyn = base.builder(FedDyn)
