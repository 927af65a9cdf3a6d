"""MOON: FedAvg with a contrast between the global and the own previous model.

Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257.
Each client keeps its own model of the last round in which it took part, and the
run keeps it with the checkpoints (see `contrast`).

TurboSVM-FL's published code has MOON without an effect: with one local epoch the
contrastive term's softmax runs over a single column, so that it is zero and has no
gradient. What is left is FedAvg on examples in their stored order
(`moon_published`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import options
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

_PUBLISHED = hp.Hyperparameter(
  'moon_published',
  False,
  "MOON as TurboSVM-FL's published code runs it with one local epoch: no"
  ' contrastive term, no shuffling',
)


def moon(
  *,
  model: classifier.EmbeddingClassifier,
  contrastive_weight: float = 1.0,
  contrastive_temperature: float = 0.5,
  moon_published: bool = False,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns MOON.

  Args:
    model: the embedding classifier; its embedding is the paper's projection.
    contrastive_weight: mu; 0: FedAvg.
    contrastive_temperature: tau.
    moon_published: FedAvg without shuffling, for one local epoch.
    local_training: the clients' SGD.

  Raises:
    ValueError: `moon_published` with other than one local epoch.
  """
  from tff_xc.algorithms import contrast

  made = fedavg.fedavg(model=model, local_training=local_training)
  if moon_published:
    _check_published(made.local_training)
    stored = dataclasses.replace(made.local_training, shuffle=False)
    return dataclasses.replace(made, local_training=stored)
  if not contrastive_weight:
    return made
  return contrast.contrastive(made, contrastive_weight, contrastive_temperature)


def _check_published(local_training) -> None:
  if local_training.steps or local_training.epochs != 1:
    raise ValueError(
      'moon_published needs one local epoch: with more, the published code'
      " contrasts with an epoch's earlier features, which is not done here"
    )


def _unless_published(h, **changes):
  return dataclasses.replace(
    h, of=_PUBLISHED.name, only_with=(False,), **changes
  )


# The published form has one epoch, in the stored order, on every task.
_OWN = (
  _PUBLISHED,
  *(
    _unless_published(h)
    for h in settings.LOCAL_TRAINING
    if h.name in ('local_steps', 'local_epochs', 'shuffle')
  ),
  _unless_published(options.CONTRASTIVE_WEIGHT, default=1.0),
  options.CONTRASTIVE_TEMPERATURE,
)

ENTRY = entry.Entry(
  'moon',
  moon,
  "FedAvg with a contrast of the global and the client's previous model",
  'TurboSVM-FL',
  entry.Answers(
    'all classes',
    'softmax, contrast with its previous model',
    'mean delta of the table',
    'optimizer step',
  ),
  (
    *(h for h in settings.FEDERATED if h.name not in {o.name for o in _OWN}),
    *_OWN,
  ),
  own=settings.PLAIN_SERVER,
)

build_moon = entry.builder(moon)
