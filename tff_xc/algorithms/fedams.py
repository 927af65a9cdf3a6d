"""FedAMS: FedAvg with AMSGrad on the server's pseudo-gradient.

Wang, Lin, Chen: "Communication-Efficient Adaptive Federated Learning", ICML 2022,
arXiv:2205.02719. TurboSVM-FL runs PyTorch's Adam with `amsgrad`, and so does this:
the largest second moment, bias-corrected, and epsilon added to its root. (The
paper's own form takes the maximum with epsilon inside, and corrects no bias.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedadam
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedams(
  *,
  model: classifier.EmbeddingClassifier,
  frozen_statistics: bool = False,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAvg with AMSGrad of rate 0.001 on the server.

  Args:
    model: the embedding classifier.
    frozen_statistics: as in `fedadam`.
    local_training: the clients' SGD.
  """
  return fedadam.adaptive(
    model, local_training, frozen_statistics, amsgrad=True
  )


ENTRY = entry.Entry(
  'fedams',
  fedams,
  "FedAvg with AMSGrad on the server's pseudo-gradient",
  'TurboSVM-FL',
  entry.Answers(
    'all classes', 'softmax', 'mean delta of the table', 'AMSGrad step'
  ),
  (*settings.FEDERATED, fedadam.FROZEN_STATISTICS),
  own={'server_optimizer': 'amsgrad'},
)

build_fedams = entry.builder(fedams)
