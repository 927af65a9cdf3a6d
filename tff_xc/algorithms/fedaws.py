"""FedAwS, federated averaging with spreadout, and its reference methods.

Yu, Rawat, Menon, Kumar: "Federated Learning with Only Positive Labels", ICML
2020, arXiv:2004.10342.

A client holds examples of one class (or of few) and sees the rows of its own
classes only. It pulls embeddings and rows together (eq. 23) and does not push
classes apart. The server does: it averages the encoder, writes the clients'
rows into the table, takes a spreadout step on the rows of the round's classes
(eq. 7 or 8) and normalises them (Algorithm 1).

  FedAwS            positive hinge, spreadout
  Baseline-1        positive hinge, no spreadout: all classes collapse
  Baseline-2        positive hinge, the initial random table never changes
  FedAwS (FedSS)    PosOnly softmax, server momentum, spreadout on all n rows:
                    the method that the FedSS paper calls FedAwS
  softmax oracle    'centralized' of `tff_xc.algorithms.fedss`

A client may have several classes, and a class several clients: a client sends
all its rows, and a class's new row is the mean of the rows sent, weighted by
examples.

Algorithm 1 replaces a class's row by its client's row, so the row of a rare
class moves as fast as that of a frequent one. If class sizes differ much, rare
rows then end up closest to every embedding, and P@1, which rewards frequent
classes, suffers. 'row_update' = 'mean' averages rows as the paper's footnote
averages the encoder: a row moves by n_i / n of its client's delta (by 1 / K with
uniform weights). With the
weighting 'examples' and one local step on all of a client's examples, a round
then is one step on the positive loss of all its clients' examples. This is not
in the paper.

The paper leaves three choices open: the classes of eq. (8), here those of the
round's participants ('spreadout_classes'); the distance in eq. (8)
('spreadout_distance', see `tff_xc.algorithms.spreadout`); the learning rate of the spreadout step
('spreadout_learning_rate').

All algorithms take `model` (with a cosine head; the hinge ignores its scale),
`max_positives` (the largest number of classes that any client holds) and
`local_training` (the clients' SGD).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import positive
from tff_xc.algorithms import settings
from tff_xc.algorithms import spreadout_settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def fedaws(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  spreadout_weight: float = 10.0,
  spreadout_learning_rate: float = 0.001,
  spreadout_neighbours: int = 10,
  spreadout_distance: str = 'sq_euclidean',
  spreadout_margin: float = 0.0,
  spreadout_classes: str = 'round',
  hinge_margin: float = 0.9,
  client_weighting: str = 'uniform',
  row_update: str = 'replace',
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedAwS (Algorithm 1).

  With a spreadout weight of 0 it is Baseline-1. The step size lambda eta must
  stay below 1 / (2 k) (see `tff_xc.algorithms.spreadout`).

  Args:
    model: see the module.
    max_positives: see the module.
    spreadout_weight: lambda.
    spreadout_learning_rate: eta of line 14; 0 takes the clients' rate.
    spreadout_neighbours: k of eq. (8); 0: all other classes.
    spreadout_distance: 'sq_euclidean' or 'cosine'.
    spreadout_margin: nu; if positive, eq. (7) replaces eq. (8).
    spreadout_classes: 'round', the classes that the round's clients hold, or
      'all', all n in every round.
    hinge_margin: 0.9 in eq. (23).
    client_weighting: 'uniform' (the paper's) or 'examples' (its footnote's).
    row_update: 'replace' (the paper's) or 'mean': rows move by the mean of the
      cohort's deltas, in which a client without the class counts as zero.
    local_training: see the module.
  """
  from tff_xc.algorithms import spreadout
  from tff_xc.encoders import normalization

  made = positive.algorithm(
    model,
    max_positives,
    local_training,
    hinge_margin,
    client_weighting,
    positive.merge_of(row_update),
  )
  rate = spreadout_learning_rate or made.local_training.learning_rate
  spread = spreadout.Spreadout(
    spreadout_weight * rate,
    spreadout_neighbours,
    spreadout_distance,
    spreadout_margin,
  )
  everywhere = spreadout_settings.CLASSES.checked(spreadout_classes) == 'all'
  return positive.with_steps(
    made, spread, normalization.unit_norm, on_all=everywhere
  )


ENTRY = entry.Entry(
  'fedaws',
  fedaws,
  'clients with only positive labels; the server spreads classes apart',
  'FedAwS',
  entry.Answers(
    'own classes',
    'hinge of the positive cosine',
    'rows replaced, or moved by the mean (--row_update)',
    'spreadout, then unit rows',
  ),
  (
    *settings.FEDERATED,
    *positive.POSITIVE,
    positive.ROW_UPDATE,
    *spreadout_settings.SPREADOUT,
  ),
  {'server_momentum': 0.0},
  spreadout_settings.warn,
  needs=positive.NEEDS,
)

build_fedaws = entry.builder(fedaws)
