"""FedAwS as the FedSS paper compares it: PosOnly, then spreadout on all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import positive
from tff_xc.algorithms import posonly
from tff_xc.algorithms import settings
from tff_xc.algorithms import spreadout_settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedaws_posonly(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  spreadout_weight: float = 0.01,
  spreadout_neighbours: int = 10,
  spreadout_distance: str = 'sq_euclidean',
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAwS as in the FedSS paper's tables.

  Clients train PosOnly, and the server takes its momentum step. Then it takes
  one spreadout step on all n rows. Its size is lambda, which includes the
  learning rate. Its gradient goes through the rows' normalisation, because the
  logits are cosines.

  Args:
    model: see the module.
    max_positives: see the module.
    spreadout_weight: lambda; needs a search, as the paper gives no value.
    spreadout_neighbours: k of eq. (8); 0: all other classes.
    spreadout_distance: 'sq_euclidean' or 'cosine'.
    local_training: see the module.
  """
  from tff_xc.algorithms import spreadout

  made = posonly.posonly(
    model=model, max_positives=max_positives, local_training=local_training
  )
  spread = spreadout.Spreadout(
    spreadout_weight, spreadout_neighbours, spreadout_distance, tangent=True
  )
  return positive.with_steps(made, spread, on_all=True)


def _warn_posonly(values, num_classes: int, max_positives: int) -> list[str]:
  return [
    *posonly.warn_of_one_class('fedaws_posonly', max_positives),
    *spreadout_settings.warn(values, num_classes, max_positives),
  ]


ENTRY = entry.Entry(
  'fedaws_posonly',
  fedaws_posonly,
  "FedAwS in FedSS's comparison: PosOnly, then spreadout on all rows",
  'FedSS',
  entry.Answers(
    'own classes',
    'softmax over own classes',
    'deltas added by class',
    'optimizer step, spreadout on all rows',
  ),
  (
    *settings.SAMPLED,
    spreadout_settings.WEIGHT,
    spreadout_settings.NEIGHBOURS,
    spreadout_settings.DISTANCE,
  ),
  {'spreadout_weight': 0.01},
  _warn_posonly,
  needs=(entry.ONE_LABEL,),
)

build_fedaws_posonly = entry.builder(fedaws_posonly)
