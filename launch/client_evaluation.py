"""Scores of a run's single clients, of `launch.evaluate`. Imports TensorFlow."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING
from typing import Any

import pandas as pd

from tff_xc import wording
from tff_xc.experiment import personalization
from tff_xc.measure import client_scores
from tff_xc.report import clients
from tff_xc.report import text_table

if TYPE_CHECKING:
  from launch import evaluation


def run(
  trained: evaluation.Trained, how: personalization.Personalization | None
) -> pd.DataFrame:
  """Scores the global model on each client's own held-out examples.

  Returns `client_scores.clients` with the column `clients.GLOBAL` and, unless `how` is
  None and clients keep no models, `clients.PERSONAL`; nan of clients without such
  examples.
  """
  dataset, evaluator = trained.dataset, trained.evaluator
  frame = client_scores.clients(dataset)
  scores = [
    evaluator.of_clients(trained.weights, held_out)
    for _, _, held_out in client_scores.parts(dataset)
  ]
  frame[clients.GLOBAL] = [each for part in scores for each in part]
  if how or trained.kept:
    frame[clients.PERSONAL] = personalization.scores(
      how or personalization.Personalization(0),
      trained.algorithm,
      dataset,
      evaluator,
      trained.state,
      trained.weights,
      frame[clients.GLOBAL].to_numpy(),
      trained.client_threads,
      trained.kept,
    )
  return frame


def summary(
  frame: pd.DataFrame,
  trained: evaluation.Trained,
  how: personalization.Personalization | None,
) -> dict[str, Any]:
  """Returns what evaluation.json says of the clients of each part."""
  found = {}
  for name, part in frame.groupby('part', sort=False):
    scored = part.dropna(subset=[clients.GLOBAL])
    found[name] = {'clients': len(scored), 'left_out': len(part) - len(scored)}
    for column in (clients.GLOBAL, clients.PERSONAL):
      if column in frame:
        of = client_scores.statistics(scored[column].to_numpy())
        found[name] |= {f'{column}_{what}': value for what, value in of.items()}
  if trained.kept:
    found['keep_models'] = len(trained.kept.kept)
  if how:
    own = {'class_rows': _class_rows(trained)}
    found['personalize'] = dataclasses.asdict(how) | own
  return found


def _class_rows(trained: evaluation.Trained) -> str:
  """Returns which class rows a client has while it personalizes the model."""
  request = trained.algorithm.tables[0].request
  if not request.selects:
    return 'all'
  more = request.negatives
  return f'its own and {more} sampled ones' if more else 'its own'


def show(
  frame: pd.DataFrame,
  trained: evaluation.Trained,
  how: personalization.Personalization | None,
) -> None:
  """Prints the table, and how many clients it leaves out."""
  rows, width = clients.table(frame), text_table.terminal_width()
  title = 'top-1 of single clients on their own held-out examples'
  if trained.kept:
    number = wording.count(len(trained.kept.kept), 'client')
    title += f', and with what {number} kept in this run'
  if how:
    steps = wording.count(how.steps, 'local step')
    title += (
      f', and after {steps} of each (--personalize_part={how.part}, class rows that'
      f' it has: {_class_rows(trained)})'
    )
  print(textwrap.fill(f'{title}:', width))
  print(text_table.to_text(rows, width=width), end='')
  if left := int(frame[clients.GLOBAL].isna().sum()):
    print(f'{wording.count(left, "client")} without such examples left out')
