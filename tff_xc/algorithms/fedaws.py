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
round's participants ('spreadout_classes'); the distance in eq. (8) ('distance',
see `tff_xc.algorithms.spreadout`); the learning rate of the spreadout step
('spreadout_learning_rate').

All builders share these arguments:
  model: the embedding classifier, with a cosine head; the loss ignores its
    scale.
  max_positives: the largest number of classes that any client holds.
  local_training: the clients' SGD.
  server: its encoder optimizer is used. Default: SGD of rate 1, the mean.
  model_aggregator: joins the encoder's deltas, a `tff.aggregators` factory of
    means.
  max_features: as in `tff_xc.algorithms.fedss`.
  client_weighting: 'uniform' (the paper's) or 'examples' (its footnote's).
  row_update: 'replace' (the paper's) or 'mean': rows move by the mean of the
    cohort's deltas, in which a client without the class counts as zero.
    Baseline-2 does not use it.
  seed: seeds all randomness.
and return a `tff.learning.templates.LearningProcess` (see
`tff_xc.round.process.build_process`).
"""

import dataclasses

import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.algorithms import fedss
from tff_xc.algorithms import spreadout as spreadout_lib
from tff_xc.round import local_training as client_work
from tff_xc.round import losses as objective
from tff_xc.round import merge
from tff_xc.round import optimizers
from tff_xc.round import process
from tff_xc.round import request
from tff_xc.round import server as server_lib
from tff_xc.round import table_optimizers

_ROW_MERGES = {'replace': merge.ReplaceRows(), 'mean': merge.AddRows()}


def _build(
  row_steps: tuple = (),
  table_steps: tuple = (),
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  hinge_margin: float = 0.9,
  row_update: str = 'replace',
  fixed_rows: bool = False,
  local_training: client_work.LocalTraining | None = None,
  server: server_lib.Server | None = None,
  model_aggregator: tff.aggregators.AggregationFactory | None = None,
  client_weighting: str = 'uniform',
  max_features: int = 0,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  if not isinstance(model.head, classifier.CosineHead):
    raise ValueError('FedAwS compares by cosine: give the model a CosineHead')
  server = server or server_lib.Server(optimizers.build_sgd())
  return process.build_process(
    model=dataclasses.replace(
      model, head=dataclasses.replace(model.head, unit_rows=True)
    ),
    request=request.OwnAndSampled(model.num_classes, max_positives),
    objective=objective.PositiveHinge(hinge_margin, fixed_rows),
    local_training=local_training or client_work.LocalTraining(),
    server=dataclasses.replace(
      server,
      table_optimizer=table_optimizers.RowMomentum(),
      row_steps=row_steps,
      table_steps=table_steps,
    ),
    row_merge=merge.KeepRows() if fixed_rows else _ROW_MERGES[row_update],
    model_aggregator=model_aggregator,
    weighting=client_weighting,
    max_features=max_features,
    seed=seed,
  )


def build_fedaws(
  *,
  spreadout_weight: float = 10.0,
  spreadout_learning_rate: float = 0.001,
  k: int = 10,
  distance: str = 'sq_euclidean',
  spreadout_margin: float = 0.0,
  spreadout_classes: str = 'round',
  local_training: client_work.LocalTraining | None = None,
  **shared,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAwS (Algorithm 1).

  With a spreadout weight of 0 it is Baseline-1. The step size lambda eta must
  stay below 1 / (2 k) (see `tff_xc.algorithms.spreadout`).

  Args:
    spreadout_weight: lambda.
    spreadout_learning_rate: eta of line 14; 0 takes the clients' rate.
    k: neighbours of a class in eq. (8); 0: all other classes.
    distance: 'sq_euclidean' or 'cosine'.
    spreadout_margin: nu; if positive, eq. (7) replaces eq. (8).
    spreadout_classes: 'round', the classes that the round's clients hold, or
      'all', all n in every round.
    local_training: the clients' SGD.
    **shared: see the module.
  """
  local_training = local_training or client_work.LocalTraining()
  rate = spreadout_learning_rate or local_training.learning_rate
  spread = spreadout_lib.Spreadout(
    spreadout_weight * rate, k, distance, spreadout_margin
  )
  steps = {
    'round': {'row_steps': (spread, classifier.unit_norm)},
    'all': {
      'table_steps': (server_lib.OnAllRows((spread, classifier.unit_norm)),)
    },
  }
  return _build(
    **steps[spreadout_classes], local_training=local_training, **shared
  )


def build_baseline1(**shared) -> tff.learning.templates.LearningProcess:
  """Builds Baseline-1: no spreadout; rows are normalised."""
  return _build(row_steps=(classifier.unit_norm,), **shared)


def build_baseline2(**shared) -> tff.learning.templates.LearningProcess:
  """Builds Baseline-2: random unit rows that never change."""
  return _build(fixed_rows=True, **shared)


def build_fedaws_posonly(
  *,
  spreadout_weight: float = 0.01,
  k: int = 10,
  distance: str = 'sq_euclidean',
  server: server_lib.Server | None = None,
  **shared,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAwS as in the FedSS paper's tables.

  Clients train PosOnly, and the server takes its momentum step. Then it takes
  one spreadout step on all n rows. Its size is lambda, which includes the
  learning rate. Its gradient goes through the rows' normalisation, because the
  logits are cosines.

  Args:
    spreadout_weight: lambda; needs a search, as the paper gives no value.
    k: neighbours of a class in eq. (8); 0: all other classes.
    distance: 'sq_euclidean' or 'cosine'.
    server: the optimizers of encoder and table. Default: rate 1, momentum 0.9.
    **shared: as `fedss.build_posonly`.
  """
  spread = spreadout_lib.Spreadout(spreadout_weight, k, distance, tangent=True)
  server = server or server_lib.Server(
    table_optimizer=table_optimizers.RowMomentum(1.0, 0.9)
  )
  return fedss.build_posonly(
    server=dataclasses.replace(
      server, table_steps=(server_lib.OnAllRows((spread,)),)
    ),
    **shared,
  )
