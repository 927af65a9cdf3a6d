"""FedProx: FedAvg whose clients stay near the model that they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in
Heterogeneous Networks", MLSys 2020, arXiv:1812.06127. The weight is that of
TurboSVM-FL's code: 0.01 times the squared distance, without a factor of 1/2, which
is mu = 0.02 in the paper's notation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedprox(
  *,
  model: classifier.EmbeddingClassifier,
  proximal_weight: float = 0.01,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedProx; every client does all its local work.

  Args:
    model: the embedding classifier.
    proximal_weight: of the squared distance; 0: FedAvg.
    local_training: the clients' SGD.
  """
  from tff_xc.round import losses

  made = fedavg.fedavg(model=model, local_training=local_training)
  return losses.proximal(made, proximal_weight) if proximal_weight else made


ENTRY = entry.Entry(
  'fedprox',
  fedprox,
  'FedAvg whose clients stay near the model that they received',
  'TurboSVM-FL',
  entry.Answers(
    'all classes',
    'softmax, squared distance from the model received',
    'mean delta of the table',
    'optimizer step',
  ),
  settings.FEDERATED,
  {'proximal_weight': 0.01},
  own=settings.PLAIN_SERVER,
)

build_fedprox = entry.builder(fedprox)
