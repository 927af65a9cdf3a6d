"""NegOnly: softmax over the target and sampled negatives (FedSS, eq. 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedss
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

_EQUAL_NEGATIVES = hp.Hyperparameter(
  'equal_negatives',
  False,
  'NegOnly samples m + |P_k| - 1 negatives, so that each example has as many'
  ' classes besides its target as in FedSS with m (FedSS, fig. 6)',
)


def negonly(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  negatives: int = 80,
  softmax_correction: str = 'negatives',
  equal_negatives: bool = False,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns NegOnly (eq. 7).

  Args:
    model: as in `fedss`.
    max_positives: as in `fedss`.
    negatives: m.
    softmax_correction: as in `fedss`.
    equal_negatives: draw m' = m + |P_k| - 1 negatives. In FedSS with m, this
      many classes push a target away: the fair comparison of figure 6.
    local_training: as in `fedss`.
  """
  return fedss.sampled(
    model,
    local_training,
    'negatives',
    max_positives,
    negatives,
    softmax_correction,
    equal_negatives,
  )


ENTRY = entry.Entry(
  'negonly',
  negonly,
  "FedSS's NegOnly: softmax over the target and the sampled negatives",
  'FedSS',
  entry.Answers(
    'own classes, m negatives',
    'softmax of the target and the negatives',
    'deltas added by class',
    'optimizer step',
  ),
  (*settings.SAMPLED, fedss.NEGATIVES, fedss.CORRECTION, _EQUAL_NEGATIVES),
  needs=(entry.ONE_LABEL,),
)

build_negonly = entry.builder(negonly)
