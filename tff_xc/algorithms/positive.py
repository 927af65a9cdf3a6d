"""Clients with positive labels only: what the FedAwS algorithms share."""

from __future__ import annotations

import dataclasses

from tff_xc.algorithms import entry
from tff_xc.algorithms import hyperparameters as hp

NEEDS = (entry.ONE_LABEL, entry.COSINES)
POSITIVE = (
  hp.Hyperparameter(
    'client_weighting',
    'uniform',
    "clients' weights in the encoder's mean: equal, or example counts",
    choices=('uniform', 'examples'),
  ),
  hp.Hyperparameter(
    'hinge_margin',
    0.9,
    'cosine of an embedding and its class row from which on the loss is 0'
    ' (FedAwS: 0.9)',
    above=0,
    least=0,
  ),
)
ROW_UPDATE = hp.Hyperparameter(
  'row_update',
  'replace',
  "'replace' sets a class's row to the mean of its clients' rows (FedAwS,"
  " Algorithm 1); 'mean' moves it by the cohort's mean delta, like the encoder",
  choices=('replace', 'mean'),
)


def algorithm(model, max_positives, local_training, margin, weighting, merged):
  """Returns training on the positive hinge, without server steps.

  Args:
    model: the embedding classifier, with a cosine head.
    max_positives: the largest number of classes that any client holds.
    local_training: the clients' SGD, or None.
    margin: of the hinge.
    weighting: of clients, in the encoder's mean.
    merged: how class rows are merged; `KeepRows` fixes them.
  """
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib
  from tff_xc.round import losses
  from tff_xc.round import request
  from tff_xc.round import tables

  if not isinstance(model.head, heads.CosineHead):
    raise ValueError('FedAwS compares by cosine: give the model a CosineHead')
  unit = dataclasses.replace(model.head, unit_rows=True)
  own = request.OwnAndSampled(model.num_rows, max_positives)
  return algorithm_lib.Algorithm(
    dataclasses.replace(model, head=unit),
    (tables.Table(classifier.CLASS, own, merged),),
    losses.PositiveHinge(margin),
    local_training=local_training or local_training_lib.LocalTraining(),
    weighting=weighting,
    frozen=frozenset() if merged.sends_rows else frozenset({classifier.CLASS}),
  )


def merge_of(row_update: str):
  """Returns the merge that `ROW_UPDATE` names."""
  from tff_xc.round import merge

  if ROW_UPDATE.checked(row_update) == 'replace':
    return merge.ReplaceRows()
  # The server's optimizer is that of the encoder alone.
  return merge.SumRows(takes_optimizer=False)


def with_steps(made, *functions, on_all: bool = False):
  """Returns the algorithm whose server applies functions to class rows."""
  from tff_xc.round import server

  steps = tuple(server.RowStep(function, on_all) for function in functions)
  return made.with_table(dataclasses.replace(made.tables[0], steps=steps))
