"""FedRep: clients share an encoder, and each client keeps its own head.

Collins, Hassani, Mokhtari, Shakkottai: "Exploiting Shared Representations for Personalized
Federated Learning", ICML 2021, arXiv:2102.07078, Algorithm 1. In a round, a client first trains its
class rows (head) with the received encoder (representation) fixed. The client then trains the
encoder with these rows fixed, sends the encoder's change, and keeps the rows. The server moves the
encoder by the mean change.

In the paper, all clients have equal weights. Here, the weights are the clients' numbers of
examples, as in FedAvg. With --virtual_client_size, all clients have equal weights. With zero head
epochs, FedRep is FedBABU.
"""

import collections
import dataclasses
from typing import Any

from tff_xc.algorithms import base, fedbabu
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts


@hp.declared
class FedRep(fedbabu.FedBABU):
  """FedAvg of the encoder. Each client trains and keeps its own class rows.

  In its first round, a client starts with the server's initial class rows. All clients have these
  rows, and the server's model keeps them. `launch.evaluate --per_client` scores each client with
  its own rows.
  """

  name = 'fedrep'
  paper = 'Collins 2021'
  answers = base.Answers(
    'none: rows are its own',
    'softmax, first by its rows, then by the encoder',
    'no rows are sent',
    'rows keep their values',
  )
  head_epochs: int = hp.field(
    10,
    "number of passes over a client's examples that train the client's own class rows, before"
    ' other passes train the encoder. With 0, FedRep equals FedBABU',
    least=0,
    most=1000,
  )

  def finish(self, made, facts):
    made = super().finish(made, facts)
    rows = made.model.weight_specs().class_table
    return dataclasses.replace(
      made,
      head_epochs=self.head_epochs,
      parts=(_Head(collections.OrderedDict(head=rows)), *made.parts),
    )

  def warnings(self, num_classes, max_positives):
    return [
      *super().warnings(num_classes, max_positives),
      "this run's scores use the server's own class rows, which no client trains;"
      ' launch.evaluate --per_client scores each client with its own rows',
    ]


@dataclasses.dataclass(frozen=True)
class _Head(parts.Part):
  """The part of the round in which a client loads and stores its class rows."""

  spec: Any

  name = 'fedrep'

  def own_model(self, weights, kept):
    from tff_xc import classifier

    rows = tf.cond(kept.known, lambda: kept.value['head'], lambda: weights.class_table)
    tables = classifier.replaced(weights.tables, {classifier.CLASS: rows})
    return weights._replace(tables=tables)

  def on_client(self, local):
    rows = local.before.class_table
    return parts.Answer(collections.OrderedDict(head=rows))


build_fedrep = base.builder(FedRep)
