"""FedAdam: FedAvg with Adam on the server's pseudo-gradient.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: "Adaptive Federated
Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2, with Adam in PyTorch's form
(bias correction, epsilon added to the root), as TurboSVM-FL runs it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc import errors
from tff_xc.algorithms import entry
from tff_xc.algorithms import fullsoftmax
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

FROZEN_STATISTICS = hp.Hyperparameter(
  'frozen_statistics',
  False,
  "the server never moves BatchNorm's running statistics, as TurboSVM-FL's"
  ' published code: its optimizer knows parameters only, so its FedAdam and FedAMS'
  ' are evaluated with mean 0 and variance 1',
)


def fedadam(
  *,
  model: classifier.EmbeddingClassifier,
  frozen_statistics: bool = False,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAvg with Adam of rate 0.001 on the server.

  Args:
    model: the embedding classifier.
    frozen_statistics: the encoder's weights without gradients keep their
      initial values (a quirk of TurboSVM-FL's published code).
    local_training: the clients' SGD.
  """
  return adaptive(model, local_training, frozen_statistics, amsgrad=False)


def adaptive(model, local_training, frozen_statistics, amsgrad: bool):
  """Returns FedAvg with Adam or AMSGrad on the server."""
  from tff_xc.round import optimizers

  if frozen_statistics and not model.weight_specs().encoder_state:
    raise errors.InputError(
      '--frozen_statistics: this network has no batch statistics; leave it out'
    )
  made = fullsoftmax.fullsoftmax(model=model, local_training=local_training)
  optimizer = optimizers.TorchAdam(1e-3, amsgrad=amsgrad)
  return dataclasses.replace(
    fullsoftmax.with_optimizer(made, optimizer),
    moves_encoder_state=not frozen_statistics,
  )


ENTRY = entry.Entry(
  'fedadam',
  fedadam,
  "FedAvg with Adam on the server's pseudo-gradient",
  'TurboSVM-FL',
  entry.Answers(
    'all classes', 'softmax', 'mean delta of the table', 'Adam step'
  ),
  (*settings.FEDERATED, FROZEN_STATISTICS),
  own={'server_optimizer': 'adam'},
)

build_fedadam = entry.builder(fedadam)
