"""Centralised training, the oracle of the papers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fullsoftmax
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import options
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

_STEPS_PER_ROUND = hp.Hyperparameter(
  'steps_per_round',
  0,
  'minibatches in a round of centralised training; 0: as many as the average'
  ' client has, ceil(mean n_k / batch_size)',
  least=0,
)


def centralized(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: local_training_lib.LocalTraining | None = None,
  steps_per_round: int = 0,
) -> algorithm_lib.Algorithm:
  """Returns centralised training with softmax over all classes.

  A round has one virtual client, whose examples are IID minibatches of all
  data. The server takes over the client's weights, which is SGD. With one
  minibatch a round and a local learning rate of 1, the server's optimizer
  receives the gradient itself, so that any optimizer works as in centralised
  training.

  Args:
    model: the embedding classifier.
    local_training: SGD on the round's minibatches.
    steps_per_round: minibatches of a round; 0: as many as the average client
      has.
  """
  from tff_xc.experiment import cohort
  from tff_xc.round import optimizers

  made = fullsoftmax.fullsoftmax(model=model, local_training=local_training)
  sgd = optimizers.build_sgd(1.0)
  batches = cohort.IidBatches(made.local_training.batch_size, steps_per_round)
  made = fullsoftmax.with_optimizer(made, sgd)
  return dataclasses.replace(made, sampling=batches)


ENTRY = entry.Entry(
  'centralized',
  centralized,
  'softmax on IID minibatches of all data, without clients (the oracle)',
  'all',
  entry.Answers(
    'all classes, no clients', 'softmax', 'nothing', 'optimizer step'
  ),
  (
    *settings.LOCAL_TRAINING[:4],
    options.TRAIN,
    _STEPS_PER_ROUND,
    *settings.SERVER,
  ),
  defaults={'server_momentum': 0.0},
)

build_centralized = entry.builder(centralized)
