"""FullSoftmax, the name that FedSS gives to FedAvg with server momentum.

FedSS, eq. (2): every client receives and sends all rows. `fedavg` is the same with
SGD of rate 1 on the server, which is the plain mean of the clients' models.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fullsoftmax(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FullSoftmax (eq. 2): every client receives and sends all rows.

  Sets of labels are learned by binary cross entropy of every label.
  """
  from tff_xc.round import losses
  from tff_xc.round import request

  loss = losses.HeldSoftmax(model.num_rows)
  if model.label_sets:
    loss = losses.BinaryCrossEntropy()
  return softmax(model, local_training, request.AllRows(model.num_rows), loss)


def softmax(model, local_training, requested, loss):
  """Returns softmax training with FedSS's server: SGD, rate 1, momentum 0.9."""
  from tff_xc import classifier
  from tff_xc.round import algorithm
  from tff_xc.round import local_training as local_training_lib
  from tff_xc.round import optimizers
  from tff_xc.round import tables

  momentum = optimizers.build_sgd(1.0, 0.9)
  of_rows = optimizers.RowMomentum(1.0, 0.9)
  table = tables.Table(
    classifier.CLASS,
    requested,
    optimizer=of_rows if requested.selects else momentum,
  )
  return algorithm.Algorithm(
    model,
    (table,),
    loss,
    local_training=local_training or local_training_lib.LocalTraining(),
    encoder_optimizer=momentum,
  )


def with_optimizer(made, optimizer):
  """Returns the algorithm with one server optimizer for all its weights."""
  table = dataclasses.replace(made.tables[0], optimizer=optimizer)
  return dataclasses.replace(
    made.with_table(table), encoder_optimizer=optimizer
  )


ENTRY = entry.Entry(
  'fullsoftmax',
  fullsoftmax,
  'softmax over all classes: FedAvg with a server optimizer',
  'FedSS',
  entry.Answers(
    'all classes', 'softmax', 'mean delta of the table', 'optimizer step'
  ),
  settings.FEDERATED,
)

build_fullsoftmax = entry.builder(fullsoftmax)
