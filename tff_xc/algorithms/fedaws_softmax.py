"""FedAwS in the form in which TurboSVM-FL compares with it.

Clients train softmax on all classes. After FedAvg, the server takes one Adam step
down sum_{i < j} max(0, cos(w_i, w_j)) of the class rows, a bias being a row's last
coordinate (`spreadout`). There is neither a weight lambda, nor a margin, nor a
choice of nearest classes, nor training on positive labels only. Adam is PyTorch's
with epsilon 1e-5; its state is kept over rounds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

LOGITS_LEARNING_RATE = hp.Hyperparameter(
  'logits_learning_rate',
  0.01,
  "learning rate of the server's Adam step on class rows (TurboSVM-FL: 0.01)",
  above=0,
)
LOGITS_EPSILON = hp.Hyperparameter(
  'logits_epsilon',
  1e-5,
  "epsilon of the server's Adam step on class rows (TurboSVM-FL: 0.00001)",
  above=0,
)


def fedaws_softmax(
  *,
  model: classifier.EmbeddingClassifier,
  logits_learning_rate: float = 0.01,
  logits_epsilon: float = 1e-5,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAvg with a step that turns class rows away from each other.

  Args:
    model: the embedding classifier.
    logits_learning_rate: of the step.
    logits_epsilon: of the step; gradients well below it move nothing.
    local_training: the clients' SGD.
  """
  from tff_xc.algorithms import spreadout
  from tff_xc.round import optimizers
  from tff_xc.round import server

  made = fedavg.fedavg(model=model, local_training=local_training)
  cosines = spreadout.Spreadout(
    1.0, nearest=0, distance=spreadout.POSITIVE_COSINE, tangent=True
  )
  step = server.DescentStep(
    cosines.gradient,
    optimizers.TorchAdam(logits_learning_rate, epsilon=logits_epsilon),
  )
  return made.with_table(dataclasses.replace(made.tables[0], steps=(step,)))


ENTRY = entry.Entry(
  'fedaws_softmax',
  fedaws_softmax,
  "FedAwS in TurboSVM-FL's comparison: softmax, then a cosine penalty on rows",
  'TurboSVM-FL',
  entry.Answers(
    'all classes',
    'softmax',
    'mean delta of the table',
    'optimizer step, Adam step on positive cosines',
  ),
  (*settings.FEDERATED, LOGITS_LEARNING_RATE, LOGITS_EPSILON),
  own=settings.PLAIN_SERVER,
)

build_fedaws_softmax = entry.builder(fedaws_softmax)
