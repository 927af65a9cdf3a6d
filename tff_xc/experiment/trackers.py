"""Experiment trackers: MLflow, and Weights & Biases.

A tracker gets a run's settings, the rows of metrics.csv, and the run's pictures. This module
imports the package of a tracker only if the user chose that tracker. MLflow writes to
$MLFLOW_TRACKING_URI, by default to `mlruns` in the run's directory. Weights & Biases writes to
`wandb` in the run's directory. Weights & Biases also sends the records to the server of
`wandb login`, except with $WANDB_MODE=offline.

tracker.json has the id of the tracked run and the last round that the tracker got. A resumed
run continues the same tracked run, and sends no round twice.
"""

import importlib
import importlib.util
import json
import math
import os
import pathlib
import secrets
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_xc import errors, files, wording
from tff_xc.report import run_files

FILE = 'tracker.json'
NONE = 'none'
NAMES = (NONE, 'mlflow', 'wandb')
# The package to install for each tracker. mlflow-skinny is MLflow without its server.
_PACKAGES = {'mlflow': 'mlflow-skinny', 'wandb': 'wandb'}
# MLflow's limits: the number of parameters in a call, and the length of a parameter's value.
_PARAMETERS, _LONGEST = 100, 500
_STARTS = (
  'no tracked run was started; mend that, or leave --tracker out and choose it when the run resumes'
)


def check(name: str) -> None:
  """Raises InputError if a tracker's package is not installed. Does not import the package."""
  if name != NONE and importlib.util.find_spec(name) is None:
    raise errors.InputError(
      f'--tracker={name} needs a package that is not installed for'
      f' {sys.executable}; run `uv pip install --python {sys.executable} --constraint'
      f' requirements.txt {_PACKAGES[name]}` (`pip install uv` brings uv)'
    )


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns config.json as a flat dictionary. Dots join the parts of nested names."""
  flat = {}
  for name, value in run_files.flat(config).items():
    if name in ('options', 'hyperparameters', 'unset'):
      continue
    if isinstance(value, Mapping):
      flat |= {f'{name}.{inner}': of for inner, of in value.items()}
    else:
      flat[name] = value
  return flat


class Tracked:
  """A run's record in a tracker. With the tracker `NONE`, all methods do nothing.

  If the tracker fails after its start, a warning is printed and training continues. The
  tracker gets the missing rows when the run resumes. `finish` marks the tracked run as
  finished. If the context ends without `finish`, the tracked run is marked as stopped.
  """

  def __init__(self, name: str, folder: str | os.PathLike):
    """Checks that the tracker is installed. `folder` is the run's directory."""
    check(name)
    self._name, self._folder = name, pathlib.Path(folder)
    self._tracker, self._id, self._round = None, '', -1

  def start(self, config: Mapping[str, Any], rows: Iterable[Mapping[str, float]]) -> None:
    """Opens or creates the tracked run, and adds those of `rows` that it lacks.

    Raises InputError if the tracker's package fails, for example if a server does not answer.
    """
    if self._name == NONE:
      return
    known = _read(self._folder / FILE)
    is_same = known.get('tracker') == self._name
    kind = {'mlflow': _MLflow, 'wandb': _Wandb}[self._name]
    try:
      self._tracker = kind(self._folder, known['run'] if is_same else '', settings_of(config))
    except Exception as e:  # Each package raises its own types of errors.
      raise errors.InputError(f'--tracker={self._name}: {_line(e)}: {_STARTS}') from e
    self._id = self._tracker.id
    self._round = int(known.get('round', -1)) if is_same else -1
    self._keep()
    for row in rows:
      self.release(row, int(row['round']))

  def release(self, row: Mapping[str, float], round_number: int) -> None:
    """Adds the values of a round's row, unless the tracker already has this round."""
    if self._tracker is None or round_number <= self._round:
      return
    measured = {
      name: float(value) for name, value in row.items() if name != 'round' and not math.isnan(value)
    }
    if self._try(self._tracker.log, measured, round_number):
      self._round = round_number
      self._keep()

  def finish(self, pictures: Sequence[pathlib.Path]) -> None:
    """Adds the pictures, and ends the tracked run."""
    if self._tracker is not None:
      self._try(self._tracker.add_pictures, [p for p in pictures if p.exists()])
      self._end(True)

  def __enter__(self):
    return self

  def __exit__(self, kind, error, trace):
    self._end(False)

  def _end(self, is_finished: bool) -> None:
    if self._tracker is not None:
      self._try(self._tracker.end, is_finished)
      self._tracker = None

  def _try(self, call, *arguments) -> bool:
    """Returns whether a call succeeds. After a failure, prints a warning and drops the tracker."""
    try:
      call(*arguments)
    except Exception as e:
      print(
        f'warning: --tracker={self._name} failed ({_line(e)}); training goes on, and'
        ' its rows follow when the run resumes',
        file=sys.stderr,
      )
      self._tracker = None
      return False
    return True

  def _keep(self) -> None:
    found = {'tracker': self._name, 'run': self._id, 'round': self._round}
    with files.replacing(self._folder / FILE, durable=False) as temporary:
      temporary.write_text(json.dumps(found) + '\n')


def _line(error: Exception) -> str:
  """Returns an error's first line."""
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return wording.shown(lines[0].rstrip('.'))


def _read(file: pathlib.Path) -> dict[str, Any]:
  """Reads a tracker.json; returns {} if it is missing or damaged."""
  try:
    found = files.read_json(file)
  except (OSError, ValueError):
    return {}
  is_right = isinstance(found, dict) and isinstance(found.get('run'), str)
  return found if is_right and isinstance(found.get('round'), int) else {}


class _MLflow:
  """A run in MLflow, by default in the experiment 'tff_xc'.

  MLflow forbids '@' in names, so p@1 becomes p_at_1.
  """

  def __init__(self, folder: pathlib.Path, run: str, settings: Mapping):
    mlflow = importlib.import_module('mlflow')
    self._entities = importlib.import_module('mlflow.entities')
    uri = os.environ.get('MLFLOW_TRACKING_URI')
    self._client = mlflow.MlflowClient(tracking_uri=uri or (folder / 'mlruns').resolve().as_uri())
    if run:
      self._client.update_run(run, status='RUNNING')
      self.id = run
      return
    name = os.environ.get('MLFLOW_EXPERIMENT_NAME', 'tff_xc')
    found = self._client.get_experiment_by_name(name)
    experiment = found.experiment_id if found else self._client.create_experiment(name)
    made = self._client.create_run(experiment, run_name=folder.resolve().name)
    self.id = made.info.run_id
    # Only a new run logs parameters. MLflow forbids changes of parameters, and a resumed run
    # may have another number of rounds.
    parameters = [
      self._entities.Param(_mlflow_name(key), str(value)[:_LONGEST])
      for key, value in settings.items()
    ]
    for start in range(0, len(parameters), _PARAMETERS):
      some = parameters[start : start + _PARAMETERS]
      self._client.log_batch(self.id, params=some)

  def log(self, measured: Mapping[str, float], round_number: int) -> None:
    now = int(1000 * time.time())
    rows = [
      self._entities.Metric(_mlflow_name(name), value, now, round_number)
      for name, value in measured.items()
    ]
    self._client.log_batch(self.id, metrics=rows)

  def add_pictures(self, pictures: Sequence[pathlib.Path]) -> None:
    for picture in pictures:
      self._client.log_artifact(self.id, str(picture))

  def end(self, is_finished: bool) -> None:
    status = 'FINISHED' if is_finished else 'KILLED'
    self._client.set_terminated(self.id, status)


def _mlflow_name(name: str) -> str:
  return name.replace('@', '_at_')


class _Wandb:
  """A run of Weights & Biases in the project $WANDB_PROJECT, by default 'tff_xc'."""

  def __init__(self, folder: pathlib.Path, run: str, settings: Mapping):
    self._wandb = importlib.import_module('wandb')
    self.id = run or secrets.token_hex(4)
    self._run = self._wandb.init(
      project=os.environ.get('WANDB_PROJECT', 'tff_xc'),
      id=self.id,
      resume='allow' if run else None,
      name=folder.resolve().name,
      dir=str(folder),
      # Training shows its progress on the terminal, so wandb must not print there.
      settings=self._wandb.Settings(console='off', quiet=True),
    )
    self._run.config.update(dict(settings), allow_val_change=True)

  def log(self, measured: Mapping[str, float], round_number: int) -> None:
    self._run.log(dict(measured), step=round_number)

  def add_pictures(self, pictures: Sequence[pathlib.Path]) -> None:
    for picture in pictures:
      self._run.log({picture.stem: self._wandb.Image(str(picture))})

  def end(self, is_finished: bool) -> None:
    self._run.finish(exit_code=0 if is_finished else 1)
