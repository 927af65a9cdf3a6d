"""FedAwS's Baseline-2: class rows keep their initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import positive
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def baseline2(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  hinge_margin: float = 0.9,
  client_weighting: str = 'uniform',
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns Baseline-2: random unit rows that never change. See `fedaws`."""
  from tff_xc.round import merge

  return positive.algorithm(
    model,
    max_positives,
    local_training,
    hinge_margin,
    client_weighting,
    merge.KeepRows(),
  )


ENTRY = entry.Entry(
  'fedaws_baseline2',
  baseline2,
  "FedAwS's Baseline-2: class rows keep their initial values",
  'FedAwS',
  entry.Answers(
    'own classes',
    'hinge of the positive cosine',
    'no rows are sent',
    'rows keep their values',
  ),
  (*settings.FEDERATED, *positive.POSITIVE),
  {'server_momentum': 0.0},
  needs=positive.NEEDS,
)

build_baseline2 = entry.builder(baseline2)
