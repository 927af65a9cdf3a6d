"""SCAFFOLD: control variates correct client drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning", ICML 2020, arXiv:1910.06378, Algorithm 1. The server has a control variate c,
and each of the N clients stores a control variate c_k. All control variates start at zero. From the
model x, a client takes K local steps with learning rate eta,

  y <- y - eta (g_k(y) - c_k + c)

and updates its control variate:

  option I   c_k+ = g_k(x), the gradient at the model received
  option II  c_k+ = c_k - c + (x - y) / (K eta), the mean gradient of its steps

The client sends y - x and c_k+ - c_k. The server adds the mean of y - x over the round's clients S
to x, and |S| / N times the mean of c_k+ - c_k to c. Thus c is always the mean of all clients'
control variates. The first round is FedAvg with equal client weights.
"""

import collections
import dataclasses
from collections.abc import Collection
from typing import Any

from tff_xc.algorithms import base, fedavg, feddyn
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts

STEPS, GRADIENT = 'steps', 'gradient'


@hp.declared
class SCAFFOLD(fedavg.FedAvg):
  """FedAvg with control variates.

  A control variate has an entry for each trained weight. To train the same weights in every round,
  all clients receive all class rows. A round sends twice as many bytes as FedAvg in both
  directions. Batch statistics have no control variate.
  """

  name = 'scaffold'
  keeps_models = True
  paper = 'Karimireddy 2020'
  answers = base.Answers(
    'all classes, variates',
    'softmax, difference of variates',
    'mean delta, clients alike',
    'optimizer step, sum of variates',
  )
  client_optimizer: str = hp.own('sgd')
  scaffold_variate: str = hp.field(
    STEPS,
    "how a client computes its new control variate. 'steps' (option II): the mean gradient of its"
    " local steps; 'gradient' (option I): the gradient of its examples at the model that it"
    ' received, which takes another pass over the examples',
    choices=(STEPS, GRADIENT),
  )

  def make(self, model, facts):
    return dataclasses.replace(super().make(model, facts), weighting='uniform')

  def finish(self, made, facts):
    made = super().finish(made, facts)
    variates = _Variates(
      facts.all_clients(),
      self.scaffold_variate == STEPS,
      made.frozen,
      feddyn.trained(made.model.weight_specs(), made.frozen),
    )
    return dataclasses.replace(
      made, penalties=(*made.penalties, _Correction(made.frozen)), parts=(variates, *made.parts)
    )


@dataclasses.dataclass(frozen=True)
class _Correction:
  """The penalty <c - c_k, theta>, whose gradient is c - c_k."""

  frozen: Collection[str]

  def __call__(self, step):
    now, variate, own = map(
      tf.nest.flatten,
      (feddyn.trained(step.weights, self.frozen), step.received[_Variates.name], step.state.value),
    )
    each = zip(now, variate, own, strict=True)
    return tf.add_n([tf.reduce_sum((c - k) * w) for w, c, k in each])


@dataclasses.dataclass(frozen=True)
class _Variates(parts.Part):
  """Updates the server's c and the clients' c_k.

  If `of_steps` is True, clients use option II, else option I.
  """

  num_clients: int
  of_steps: bool
  frozen: Collection[str]
  spec: Any

  name = 'scaffold'

  @property
  def reply_spec(self):
    return self.spec

  def initial(self):
    return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), self.spec)

  def on_client(self, local):
    old = local.kept.value
    if not self.of_steps:
      encoder, tables = local.gradients()
      new = collections.OrderedDict(encoder=encoder, tables=tables)
    else:
      share = tf.math.divide_no_nan(1.0, local.steps * local.rate)
      # With a learning rate of 0, a client keeps its control variate.
      moves = tf.cast(share > 0, tf.float32)
      new = tf.nest.map_structure(
        lambda k, c, x, y: k - moves * c + share * (x - y),
        old,
        local.received,
        *(feddyn.trained(w, self.frozen) for w in (local.before, local.after)),
      )
    return parts.Answer(new, tf.nest.map_structure(tf.subtract, new, old))

  def on_server(self, state, total, of_round, merged):
    def moved(c, change):
      return c + change / self.num_clients

    return parts.Next(tf.nest.map_structure(moved, state, total))


build_scaffold = base.builder(SCAFFOLD)
