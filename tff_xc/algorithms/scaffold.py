"""SCAFFOLD: control variates correct the drift of clients from each other.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020, arXiv:1910.06378, Algorithm 1. The server
has a variate c, and each of N clients keeps one, c_k; all begin as zeros. From the model
x, a client takes K local steps of rate eta,

  y <- y - eta (g_k(y) - c_k + c)

and its variate becomes

  option I   c_k+ = g_k(x), the gradient at the model received
  option II  c_k+ = c_k - c + (x - y) / (K eta), the mean gradient of its steps

It sends y - x and c_k+ - c_k. Of the clients S of a round, the server moves x by the
mean of the former, and c by |S| / N times that of the latter. So c is the mean of all
clients' variates. In the first round it is FedAvg whose clients count alike.
"""

from __future__ import annotations

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
  """FedAvg with control variates, which clients keep and send, and the server sends.

  A variate has a number for each weight that is trained, so that all clients receive
  all class rows, and a round has twice the bytes in both directions. Batch statistics
  have none.
  """

  name = 'scaffold'
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
    "new control variate of a client: 'steps' is the mean gradient of its local steps (option"
    " II); 'gradient' is the gradient of its examples at the model that it received, which costs"
    ' another pass (option I)',
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

  @classmethod
  def keeps_models(cls, values):
    del values
    return True


@dataclasses.dataclass(frozen=True)
class _Correction:
  """<c - c_k, theta>, whose gradient is c - c_k."""

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
  """The server's c, and the clients' c_k; `of_steps` is option II."""

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
      # At a rate of 0 nothing tells of gradients, and a client keeps its variate.
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
