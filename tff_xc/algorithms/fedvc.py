"""FedVC: FedAvg on virtual clients of equal size.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082, section 5.3. On users whose numbers of
examples differ by orders of magnitude, a client takes part with a probability
that grows with its n_k examples. It draws N_VC of them in every round, takes
N_VC / B steps, and counts like any other. N_VC = 256 and B = 64 are those of the
paper's iNaturalist tables.

`--virtual_clients` does the same to every algorithm with clients:
`fedavgm --virtual_clients=256 --importance_weights=uniform` is the paper's FedAvgM
with FedVC and FedIR. If all clients have N_VC examples and all take part in every
round, FedVC is FedAvg but for the order of the examples.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedvc(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedVC without its sampling: FedAvg whose clients count alike.

  `tff_xc.experiment.cohort.virtual_clients` adds the sampling.

  Args:
    model: the embedding classifier.
    local_training: the clients' SGD.
  """
  made = fedavg.fedavg(model=model, local_training=local_training)
  return dataclasses.replace(made, weighting='uniform')


ENTRY = entry.Entry(
  'fedvc',
  fedvc,
  'FedAvg on virtual clients of equal size, drawn in proportion to their examples',
  'FedVC',
  entry.Answers(
    'all classes', 'softmax', 'mean delta, clients alike', 'optimizer step'
  ),
  settings.FEDERATED,
  own={**settings.PLAIN_SERVER, 'virtual_clients': 256, 'batch_size': 64},
)

build_fedvc = entry.builder(fedvc)
