"""Reads the files of a run directory without TensorFlow.

A run directory contains
  config.json: all settings of the run in one object, such as `task`, `algorithm` and
    `seed`. The object also has `hyperparameters`, `versions`, `git_revision`, and `data`,
    the fingerprint of the data (`tff_xc.data.fingerprint`).
  metrics.csv: one row per round; the first column is `round`. A cell without a
    measurement is empty or `nan`. Row 0 has only the scores of the initial model.
  classes.csv, if the classes have names: the columns `class,name,count` are the number
    of each class, its name, and its number of training examples.
  description.json: the form of an example and of the labels
    (`tff_xc.data.description`), so that a program can use the model without the data.
  summary.json, once the run has finished: `final` and `best` metrics, `rounds`,
    `rounds_to_target`, and totals.
"""

import csv
import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_xc import errors, files, wording
from tff_xc.lazy import pd
from tff_xc.measure import catalog

CONFIG = 'config.json'
METRICS = 'metrics.csv'
SUMMARY = 'summary.json'
CLASSES = 'classes.csv'
DESCRIPTION = 'description.json'

# Settings of config.json that do not change a run's results. A resumed run may change these
# settings, and runs of one method with different seeds may differ in them. `data_dir` is in
# this list because results depend on the data but not on their path. The runtime and the
# device change the last digits, so they are not in this list. `eval_every` is not in the
# list, because it determines the rounds from which `best` is selected.
NOT_CONFIGURATION = (
  'best_by',
  'checkpoint_every',
  'client_threads',
  'cluster_address',
  'cluster_without_token',
  'data_dir',
  'dp_noise',
  'git_revision',
  'run_dir',
  'early_stopping_patience',
  'target',
  'tracker',
  'unset',
  'versions',
  'worker_timeout',
)
# Keys of config.json that are not settings of a method. Some of them identify a run, some do not
# change its results, and `hyperparameters` and `options` are dictionaries of settings.
_NOT_SETTINGS = frozenset(
  {*NOT_CONFIGURATION, 'task', 'algorithm', 'hyperparameters', 'options', 'data', 'seed'}
)
# The prefix of the settings that are properties of the data.
DATA = 'data.'
# The types of the optional keys of config.json.
_OPTIONAL = {
  'hyperparameters': dict,
  'options': dict,
  'data': dict,
  'target': str,
  'early_stopping_patience': int,
}
# The keys of summary.json that contain scores, and all keys whose values are not numbers.
_OF_SCORES = ('final', 'best', 'best_round')
_NO_TOTALS = (*_OF_SCORES, 'rounds_to_target', 'warnings', 'baselines')


@dataclasses.dataclass(frozen=True)
class Run:
  """The contents of one run directory."""

  path: pathlib.Path
  config: dict[str, Any]
  metrics: 'pd.DataFrame'  # float64, one row for each round; nan if not measured.
  summary: dict[str, Any] | None  # None if the run has not finished.

  @property
  def task(self) -> str:
    return self.config['task']

  @property
  def algorithm(self) -> str:
    return self.config['algorithm']

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def hyperparameters(self) -> dict[str, Any]:
    return self.config.get('hyperparameters', {})


def is_run(path: str | os.PathLike) -> bool:
  """Whether `path` is a run directory, which means that it has a config.json."""
  return (pathlib.Path(path) / CONFIG).is_file()


def read_run(path: str | os.PathLike, needs_metrics: bool = True) -> Run:
  """Reads the directory of a finished or unfinished run.

  If metrics.csv is missing, the directory counts as damaged with `needs_metrics`, and as a
  run without rounds otherwise.
  """
  path = pathlib.Path(path)
  if not is_run(path):
    what = f'it has no {CONFIG}' if path.is_dir() else 'it is no directory'
    raise errors.InputError(
      f'{path} is no run directory, {what}; give the --run_dir of a launch.train.'
    )
  config = read_config(path / CONFIG)
  summary = read_summary(path)
  if needs_metrics or (path / METRICS).exists():
    metrics = read_metrics(path / METRICS)
  else:
    metrics = pd.DataFrame({'round': []}, dtype='float64')
  return Run(path, config, metrics, summary)


def is_finished(config: Mapping[str, Any], summary: Mapping[str, Any] | None) -> bool:
  """Whether a run has done all its rounds or has stopped early."""
  return summary is not None and (
    summary['rounds'] >= config.get('rounds', 0)
    or summary.get('stopped_after', 0) == config.get('early_stopping_patience', 0) > 0
  )


def read_summary(path: pathlib.Path) -> dict[str, Any] | None:
  """Reads a run's summary.json; None if the run has not finished."""
  file = path / SUMMARY
  if not file.is_file():
    return None
  optional = {'best': dict, 'best_round': dict}
  summary = _read_object(file, {'final': dict, 'rounds': int}, optional)
  numbers = {k: v for k, v in summary.items() if k not in _NO_TOTALS}
  for values in (numbers, *(summary.get(n) or {} for n in _OF_SCORES)):
    for key, value in values.items():
      is_number = isinstance(value, int | float | None) and abs(value or 0) < math.inf
      if key != 'by' and not is_number:
        raise files.damaged(file, f'"{wording.shown(key)}" is no number')
  return summary


def read_config(path: pathlib.Path) -> dict[str, Any]:
  """Reads a config.json."""
  required = {'task': str, 'algorithm': str, 'seed': int, 'rounds': int}
  config = _read_object(path, required, _OPTIONAL)
  for name in ('task', 'algorithm'):  # Programs print them, so escape control characters.
    config[name] = wording.shown(config[name])
  return config


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a configuration with its options and hyperparameters as top-level keys."""
  settings = config.get('options', {}) | config.get('hyperparameters', {})
  return {**config, **settings}


def settings_of(run: Run) -> dict[str, Any]:
  """Returns the settings that affect results by name, except task, algorithm and seed."""
  settings = {key: value for key, value in run.config.items() if key not in _NOT_SETTINGS}
  settings |= run.config.get('options', {}) | run.hyperparameters
  data = run.config.get('data', {})
  settings |= {f'{DATA}{key}': value for key, value in data.items()}
  return {key: value for key, value in settings.items() if value is not None}


def class_names(file: pathlib.Path, num_classes: int) -> list[str] | None:
  """Reads a classes.csv; returns None if the file is missing.

  Raises `errors.DamageError` if the file is damaged.
  """
  if not file.exists():
    return None
  try:
    text = io.StringIO(files.read_text(file), newline='')
    header, *found = csv.reader(text)
    names = [row[header.index('name')] for row in found]
    if len(names) != num_classes:
      raise ValueError(f'{len(names)} names of {num_classes} classes')
  except (OSError, ValueError, IndexError, csv.Error) as e:
    raise files.damaged(file, str(e)) from e
  return names


def first_rounds(run: Run, rounds: int) -> Run:
  """Returns a run as it was after `rounds` rounds.

  If the run has finished, its means of bytes, class rows and seconds still cover the whole run.
  A best round after `rounds` is left out.
  Raises InputError if the run was not evaluated after this round.
  """
  metrics = run.metrics[run.metrics['round'] <= rounds]
  scores = [name for name in catalog.SCORES if name in metrics]
  measured = metrics.dropna(subset=scores, how='all')
  if measured.empty or measured['round'].iloc[-1] != rounds:
    known = run.metrics.dropna(subset=scores, how='all')['round'].astype(int)
    raise errors.InputError(
      f'{run.path} has no scores of round {rounds}; it was evaluated after '
      f'rounds {", ".join(map(str, known))}.'
    )
  # Use None instead of nan, like summary.json.
  final = {
    name: None if math.isnan(value) else value
    for name, value in measured[scores].iloc[-1].astype(float).items()
  }
  summary = (run.summary or {}) | {'final': final, 'rounds': rounds}
  if (summary.get('best_round') or {}).get('round', 0) > rounds:
    summary['best_round'] = None
  config = run.config | {'rounds': rounds}
  return dataclasses.replace(run, config=config, metrics=metrics, summary=summary)


def _read_object(path, required, optional):
  """Reads a JSON object, checks the types of its values, and drops optional nulls."""
  try:
    obj = files.read_json(path)
  except (OSError, ValueError) as e:
    raise files.damaged(path, str(e)) from e
  if not isinstance(obj, dict):
    raise files.damaged(path, 'expected a JSON object')
  for key, kind in {**required, **optional}.items():
    value = obj.get(key)
    is_right = isinstance(value, kind) and not isinstance(value, bool)
    if not is_right and (key in required or value is not None):
      raise files.damaged(path, f'expected "{key}" to be of type {kind.__name__}')
  return {k: v for k, v in obj.items() if k not in optional or v is not None}


def read_metrics(path: pathlib.Path) -> 'pd.DataFrame':
  """Reads a metrics.csv in the form of `Run.metrics`."""
  try:
    text = files.read_text(path)
    header, *lines = text.splitlines() or ['']
    names = header.split(',')
    if names[0] != 'round' or len(set(names)) < len(names):
      raise ValueError('expected a header of distinct columns, "round" first')
    for number, line in enumerate(lines, 2):
      if line.count(',') != header.count(','):
        raise ValueError(f'line {number} has other cells than the header')
    table = pd.read_csv(io.StringIO(text), dtype='float64', float_precision='round_trip')
    rounds = table['round']
    if rounds.isna().any() or (rounds.diff() <= 0).any():
      raise ValueError('rounds must ascend')
  except FileNotFoundError as e:
    raise errors.DamageError(f'{path} is missing; delete {path.parent} and train again.') from e
  except (OSError, ValueError) as e:
    raise files.damaged(path, str(e)) from e
  return table
