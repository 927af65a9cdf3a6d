"""PosOnly: softmax over the client's own classes (FedSS, eq. 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedss
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def posonly(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns PosOnly (eq. 8): only a client's own classes, no correction."""
  return fedss.sampled(model, local_training, 'positives', max_positives)


def warn_of_one_class(who: str, max_positives: int) -> list[str]:
  """Returns a warning if a softmax over own classes has one term only."""
  if max_positives > 1:
    return []
  return [
    f"{who} trains a softmax over a client's own classes, and no client has"
    ' more than one: its loss is 0 and nothing is learned; use'
    ' --algorithm=fedaws'
  ]


ENTRY = entry.Entry(
  'posonly',
  posonly,
  "FedSS's PosOnly: softmax over the client's own classes",
  'FedSS',
  entry.Answers(
    'own classes',
    'softmax over own classes',
    'deltas added by class',
    'optimizer step',
  ),
  settings.SAMPLED,
  warn=lambda values, n, most: warn_of_one_class('posonly', most),
  needs=(entry.ONE_LABEL,),
)

build_posonly = entry.builder(posonly)
