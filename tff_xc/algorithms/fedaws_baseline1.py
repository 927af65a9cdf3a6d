"""FedAwS's Baseline-1: no spreadout, so that classes collapse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import positive
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def baseline1(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  hinge_margin: float = 0.9,
  client_weighting: str = 'uniform',
  row_update: str = 'replace',
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns Baseline-1: no spreadout; rows are normalised. See `fedaws`."""
  from tff_xc.encoders import normalization

  made = positive.algorithm(
    model,
    max_positives,
    local_training,
    hinge_margin,
    client_weighting,
    positive.merge_of(row_update),
  )
  return positive.with_steps(made, normalization.unit_norm)


ENTRY = entry.Entry(
  'fedaws_baseline1',
  baseline1,
  "FedAwS's Baseline-1: no spreadout, so that classes collapse",
  'FedAwS',
  entry.Answers(
    'own classes',
    'hinge of the positive cosine',
    'rows replaced, or moved by the mean (--row_update)',
    'unit rows',
  ),
  (*settings.FEDERATED, *positive.POSITIVE, positive.ROW_UPDATE),
  {'server_momentum': 0.0},
  needs=positive.NEEDS,
)

build_baseline1 = entry.builder(baseline1)
