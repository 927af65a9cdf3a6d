"""Reads what a run has trained, without its data. Imports TensorFlow.

found = trained.load('runs/demo')
embeddings = found.model.embed(found.weights, x)
"""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from launch import evaluation
from tasks import experiment
from tasks import registry as tasks
from tasks import task as task_lib
from tff_xc import classifier
from tff_xc import errors
from tff_xc import files
from tff_xc import wording
from tff_xc.data import description as description_lib
from tff_xc.experiment import checkpoints
from tff_xc.experiment import storage
from tff_xc.measure import catalog
from tff_xc.report import run_files

LAST, BEST = 'last', 'best'
# The best round if the run chose it by validation, else the last.
CHOSEN = 'chosen'


class Trained(NamedTuple):
  """The global model of a run after some rounds."""

  config: Mapping[str, Any]  # The run's config.json.
  model: classifier.EmbeddingClassifier  # As the algorithm makes it.
  # As of `LearningProcess.get_model_weights`: all pending updates are applied.
  weights: classifier.ModelWeights
  rounds: int
  description: description_lib.Description
  class_names: list[str] | None  # None: they are their numbers.
  # After these rounds; empty if they were not measured.
  scores: dict[str, float]
  # Of a private run, its epsilon after these rounds; None: unknown, or not private.
  epsilon: float | None = None


def load(
  run_dir: str,
  round_wanted: str = CHOSEN,
  named: Mapping[str, str] | None = None,
) -> Trained:
  """Loads the model of a round: 'chosen', 'last', 'best' (by --best_by) or a number.

  `named` has the encoder, if the user names it. Raises
  `errors.InputError` for what is missing, damaged or not trusted.
  """
  path, named = pathlib.Path(run_dir), named or {}
  run = run_files.read_run(path, needs_metrics=False)
  chosen = _round(run, round_wanted)
  evaluation.check_encoder(path, run.config, named)
  description = _description(path / run_files.DESCRIPTION)
  model = _model(path, run.config, description)
  rounds, weights = _weights(path, model, chosen)
  measured = run.metrics[run.metrics['round'] == rounds]
  scores = {
    name: float(measured[name].iloc[0])
    for name in _scores(run)
    if len(measured) and measured[name].notna().all()
  }
  names = run_files.class_names(path / run_files.CLASSES, model.num_classes)
  epsilon = None
  if 'epsilon' in measured and measured['epsilon'].notna().any():
    epsilon = float(measured['epsilon'].iloc[0])
  return Trained(
    run.config,
    model,
    weights,
    rounds,
    description,
    names,
    scores,
    epsilon,
  )


def check_rows(config: Mapping, instead: str) -> None:
  """Refuses classes of a run whose clients train class rows of their own alone.

  `config` is the run's config.json, and `instead` what to do.
  """
  if config.get('hyperparameters', {}).get('head_epochs'):
    raise errors.InputError(
      f"clients of {config['algorithm']} keep class rows of their own, and the server's,"
      f' which nobody trains, give classes by chance; {instead}'
    )


def round_of(run_dir: str, wanted: str) -> int | None:
  """Returns the number of the round that `load` takes; None: the newest sound one."""
  return _round(run_files.read_run(run_dir, needs_metrics=False), wanted)


def _round(run: run_files.Run, wanted: str) -> int | None:
  """Returns the number of a round that has a checkpoint; None: the newest sound one."""
  kept = checkpoints.kept(run.path)
  if not kept:
    raise errors.InputError(
      f'{run.path} has no checkpoint; start launch.train on it again'
    )
  there = ', '.join(map(str, kept))
  if wanted == LAST:
    return None
  measured = _scores(run)
  by = run.config.get('best_by') or ''
  is_chosen = by in measured and by.endswith(catalog.VALIDATION)
  if wanted == CHOSEN and not is_chosen:
    return None
  if wanted in (BEST, CHOSEN):
    if not measured:
      raise errors.InputError(
        f'--round=best: {run.path} has no scores; give last or one of {there}'
      )
    by = by if by in measured else measured[0]
    values = run.metrics[by]
    is_lower = catalog.SCORES[by].better == 'lower'
    row = values.idxmin() if is_lower else values.idxmax()
    best = int(run.metrics['round'][row])
    if best not in kept and wanted == CHOSEN:
      print(
        f'warning: the round {best}, which is best by {by}, has no checkpoint; the'
        ' last one is taken',
        file=sys.stderr,
      )
      return None
    if best not in kept:
      raise errors.InputError(
        f'--round=best: the best round by {by}, {best}, has no checkpoint any more;'
        f' give last or one of {there}'
      )
    return best
  if not wanted.isdecimal() or len(wanted) > 18:
    raise errors.InputError(
      f'--round={wanted}: give last, best, or a round with a checkpoint: {there}'
    )
  if int(wanted) not in kept:
    raise errors.InputError(
      f'--round={wanted}: {run.path} has no checkpoint of it; give last or one of'
      f' {there}'
    )
  return int(wanted)


def _scores(run: run_files.Run) -> list[str]:
  """Returns the scores that a run measured, the headline first."""
  return [
    name
    for name in tasks.get(run.task).metrics
    if name in run.metrics and run.metrics[name].notna().any()
  ]


def _description(file: pathlib.Path) -> description_lib.Description:
  try:
    return description_lib.from_json(files.read_json(file))
  except (OSError, ValueError) as e:
    raise errors.DamageError(
      f'{file} is missing or damaged ({wording.shown(e)}); resume the run for a moment, which'
      ' writes it again'
    ) from e


def _model(path: pathlib.Path, config: Mapping, description):
  try:
    model = experiment.trained_model(config, description)
  except errors.InputError as e:
    file = path / run_files.CONFIG
    raise errors.InputError(f'{file}: {wording.shown(e)}') from e
  task_lib.check_memory(
    model,
    f'{path}: the model of {model.num_classes:,} classes',
    'free some, or take a smaller model',
  )
  return model


def _weights(path: pathlib.Path, model, chosen: int | None):
  """Returns (round, weights) of the chosen checkpoint, or of the newest sound one."""
  specs = model.weight_specs()
  versions = checkpoints.kept(path) if chosen is None else [chosen]
  for version in reversed(versions):
    try:
      return version, checkpoints.load_model(path, version, specs)
    except storage.DamagedError as e:
      damage = e
      if chosen is None and version != versions[0]:
        print(
          f'warning: the checkpoint of round {version} is damaged ({e}); the one'
          ' before is taken',
          file=sys.stderr,
        )
  file = checkpoints.path_of(path, version)
  raise errors.DamageError(
    f'{file} is damaged ({damage}); give another --round, or restore it'
  )
