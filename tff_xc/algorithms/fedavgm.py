"""FedAvgM: FedAvg with momentum on the server.

Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for
Federated Visual Classification", 2019, arXiv:1909.06335; and, by the same authors,
the FedVC / FedIR paper: v <- beta v + g, theta <- theta - gamma v, with the
pseudo-gradient g, gamma = 1 and beta = 0.9.
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


def fedavgm(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAvg with plain (not Nesterov's) momentum 0.9 on the server.

  The effective learning rate is that of the clients over 1 - beta.

  Args:
    model: the embedding classifier.
    local_training: the clients' SGD.
  """
  return fullsoftmax.fullsoftmax(model=model, local_training=local_training)


ENTRY = entry.Entry(
  'fedavgm',
  fedavgm,
  'FedAvg with momentum on the server',
  'FedVC',
  entry.Answers(
    'all classes', 'softmax', 'mean delta of the table', 'momentum step'
  ),
  settings.FEDERATED,
  own={'server_optimizer': 'sgd', 'server_momentum': 0.9},
)

build_fedavgm = entry.builder(fedavgm)
