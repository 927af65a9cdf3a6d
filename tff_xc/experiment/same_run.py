"""Whether a directory holds a run of the same settings and the same data.

Importing this does not import TensorFlow.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_xc import errors
from tff_xc import wording
from tff_xc.report import run_files

# A checksum of FedIR's target distribution; in config.json once it is read.
PROBABILITIES = 'class_probabilities'
# In config.json: those of `FITTED` that have their defaults.
UNSET = 'unset'
# A checksum of the weights that training started from, once they are read.
STARTED = 'started_from'
FITTED = ('clients_per_round', 'negatives')


def check_config(path: str | os.PathLike, config: Mapping) -> None:
  """Refuses a directory that holds a run of another configuration or data.

  A larger number of rounds continues the run; a smaller one is refused. Of `config`,
  `data` is there once they are loaded.
  """
  path = pathlib.Path(path)
  file = path / run_files.CONFIG
  if path.exists() and not path.is_dir():
    raise errors.InputError(f'--run_dir={path} is a file; name a directory')
  if not file.exists():
    left = [
      n for n in (run_files.METRICS, 'checkpoints') if (path / n).exists()
    ]
    if left:
      raise errors.InputError(
        f'{path} has {" and ".join(left)} of a run, but no {run_files.CONFIG};'
        ' restore it, or choose another --run_dir'
      )
    return
  found = run_files.read_config(file)
  wanted = json.loads(json.dumps(config))
  was, is_now = _settings(found), _settings(wanted)
  if 'data' not in wanted:  # Until then, no defaults are fitted to them.
    unset = dict.fromkeys(wanted.get(UNSET, ()))
    was, is_now = was | unset, is_now | unset
  if told := differences(was, is_now):
    raise errors.InputError(
      f'{path} holds a run of another configuration: {told}; choose another'
      ' --run_dir, or give the same flags to go on with that run'
    )
  _check_source(path, found, wanted)
  if 'data' in wanted:
    check_data(path, found, wanted['data'])
    if found.get(PROBABILITIES) != wanted.get(PROBABILITIES):
      raise errors.InputError(
        f'{path} holds a run with other probabilities of classes, and'
        ' --importance_weights or --calibration_probabilities names a file that has'
        ' changed since; restore it, or choose another --run_dir'
      )
    if found.get(STARTED) != wanted.get(STARTED):
      raise errors.InputError(
        f'{path} holds a run that started from other weights: those of'
        ' --start_from have changed since, or are of another source; restore them, or'
        ' choose another --run_dir'
      )
  if wanted.get('dp_epsilon') and wanted['rounds'] > found['rounds']:
    raise errors.InputError(
      f'{path} holds a run whose noise gives --dp_epsilon={wanted["dp_epsilon"]:g}'
      f' after {wording.count(found["rounds"], "round")}; more rounds need more noise'
      ' from the start:'
      ' choose another --run_dir'
    )
  if wanted['rounds'] < found['rounds']:
    raise errors.InputError(
      f'{path} holds a run of {wording.count(found["rounds"], "round")}; give at'
      ' least as many'
    )


def _check_source(path: pathlib.Path, found: Mapping, wanted: Mapping) -> None:
  """Refuses a run that began without a source, or from another one that is still there.

  A source may have been moved: its weights are compared when they have been read.
  """
  was, is_now = (str(c.get('start_from') or '') for c in (found, wanted))
  if bool(was) != bool(is_now):
    began = f'started from {was}' if was else 'did not start from another one'
    raise errors.InputError(
      f'{path} holds a run that {began}; give the same --start_from, or choose another'
      ' --run_dir'
    )
  is_moved = not os.path.isdir(was)
  if was and not is_moved and os.path.realpath(was) != os.path.realpath(is_now):
    raise errors.InputError(
      f'{path} holds a run that started from {was}, not from {is_now}; choose another'
      ' --run_dir'
    )


def check_data(path: str | os.PathLike, config: Mapping, data: Mapping) -> None:
  """Refuses data, by their fingerprint, that differ from those of a config.json."""
  if told := differences(config.get('data', {}), data):
    raise errors.InputError(
      f'{path} holds a run on other data: {told}; give the data of that run,'
      ' or choose another --run_dir'
    )


def _settings(config: Mapping) -> dict[str, Any]:
  """Returns the settings that must be equal: one flat dictionary, by name."""
  groups = ('options', 'hyperparameters')
  own = ('rounds', 'data', PROBABILITIES, STARTED, 'start_from')
  left_out = {*run_files.NOT_CONFIGURATION, *own, *groups}
  settings = {k: v for k, v in config.items() if k not in left_out}
  for group in groups:
    settings |= config.get(group, {})
  return dict(sorted(settings.items()))


def differences(found: Mapping, wanted: Mapping) -> str:
  """Returns 'examples was 60 and is 80, ...'; empty if both are equal."""
  return ', '.join(
    wording.shown(f'{name} was {found.get(name)} and is {wanted.get(name)}')
    for name in {**wanted, **found}
    if found.get(name) != wanted.get(name)
  )
