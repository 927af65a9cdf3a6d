"""FedAvg: clients train on all classes, and the server takes the mean.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning
of Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629,
Algorithm 1. TurboSVM-FL, FedVC and FedIR compare with it. `fullsoftmax` is the
same with the server of the FedSS paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fullsoftmax
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedavg(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAvg.

  The new model is the mean of the clients' models, weighted by their numbers of
  examples: SGD of rate 1 on the server.

  Args:
    model: the embedding classifier.
    local_training: the clients' SGD.
  """
  from tff_xc.round import optimizers

  made = fullsoftmax.fullsoftmax(model=model, local_training=local_training)
  return fullsoftmax.with_optimizer(made, optimizers.build_sgd(1.0))


ENTRY = entry.Entry(
  'fedavg',
  fedavg,
  "federated averaging: the mean of the clients' models",
  'FedAvg',
  entry.Answers(
    'all classes', 'softmax', 'mean delta of the table', 'optimizer step'
  ),
  settings.FEDERATED,
  own=settings.PLAIN_SERVER,
)

build_fedavg = entry.builder(fedavg)
