"""FedIR: FedAvg with importance-weighted examples.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082, equations (1) to (4). An example of
class y at client k weighs p(y) / q_k(y), as if the client's classes had the
target distribution p, and a minibatch's loss is divided by its weights' sum (see
`tff_xc.round.importance`). On clients with one class each, FedIR is FedAvg.

`--importance_weights` does the same to every algorithm with clients and one
class an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import options
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  import numpy as np

  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedir(
  *,
  model: classifier.EmbeddingClassifier,
  importance_weights: str = options.UNIFORM,
  class_probabilities: np.ndarray | None = None,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedIR.

  Args:
    model: the embedding classifier.
    importance_weights: 'none': FedAvg.
    class_probabilities: p up to a factor, [n]; None: uniform.
    local_training: the clients' SGD.

  Raises:
    ValueError: p is not uniform, and is not given.
  """
  from tff_xc.round import importance

  made = fedavg.fedavg(model=model, local_training=local_training)
  if importance_weights == options.NO_IMPORTANCE:
    return made
  if importance_weights != options.UNIFORM and class_probabilities is None:
    raise ValueError(f'{importance_weights!r} needs class_probabilities')
  return importance.importance_weights(made, class_probabilities)


ENTRY = entry.Entry(
  'fedir',
  fedir,
  'FedAvg with examples weighted as if all clients had the same classes',
  'FedVC',
  entry.Answers(
    'all classes',
    'softmax, weighted by p(y) / q_k(y)',
    'mean delta of the table',
    'optimizer step',
  ),
  settings.FEDERATED,
  {'importance_weights': options.UNIFORM},
  own=settings.PLAIN_SERVER,
  needs=(entry.ONE_LABEL,),
)

build_fedir = entry.builder(fedir)
