"""Checks that a directory contains a run with the same settings and the same data.

Importing this module does not import TensorFlow.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_xc import errors, files, wording
from tff_xc.report import run_files

# Key in config.json: a checksum of class probabilities, such as FedIR's target distribution.
PROBABILITIES = 'class_probabilities'
# Key in config.json: the names in `FITTED` that the user did not set.
UNSET = 'unset'
# Key in config.json: a checksum of the weights from --start_from.
STARTED = 'started_from'
# Settings with defaults that a run lowers to fit a small data set.
FITTED = ('clients_per_round', 'negatives')


def check_config(path: str | os.PathLike, config: Mapping) -> None:
  """Raises InputError if a directory contains a run with other settings or other data.

  `config` must not have fewer rounds than the earlier run. Except with --dp_epsilon, it may
  have more rounds. `config` has the key 'data' only after the data are loaded. Before that,
  the function compares only settings that do not depend on the data.
  """
  path = pathlib.Path(path)
  file = path / run_files.CONFIG
  if path.exists() and not path.is_dir():
    raise errors.InputError(f'--run_dir={path} is a file; name a directory')
  if not file.exists():
    left = [n for n in (run_files.METRICS, 'checkpoints') if (path / n).exists()]
    if left:
      raise errors.InputError(
        f'{path} has {" and ".join(left)} of a run, but no {run_files.CONFIG};'
        ' restore it, or choose another --run_dir'
      )
    return
  found = run_files.read_config(file)
  wanted = files.plain_json(config)
  was, is_now = _settings(found), _settings(wanted)
  # Before the data are loaded, leave out the settings that the user did not set: a run lowers
  # their defaults to fit the data.
  if 'data' not in wanted:
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
    for key, what, flags in (
      (
        PROBABILITIES,
        'other probabilities of classes',
        '--importance_weights or --calibration_probabilities',
      ),
      (STARTED, 'other first weights', '--start_from'),
    ):
      if found.get(key) != wanted.get(key):
        raise errors.InputError(
          f'{path} holds a run with {what}, so what {flags} names has changed; restore'
          ' it, or choose another --run_dir'
        )
  rounds = wording.count(found['rounds'], 'round')
  if wanted['rounds'] < found['rounds']:
    raise errors.InputError(f'{path} holds a run of {rounds}; give at least as many')
  if wanted.get('dp_epsilon') and wanted['rounds'] > found['rounds']:
    raise errors.InputError(
      f'{path} holds a run whose noise gives --dp_epsilon={wanted["dp_epsilon"]:g}'
      f' after {rounds}; more rounds need more noise from the start: choose another'
      ' --run_dir'
    )


def _check_source(path: pathlib.Path, found: Mapping, wanted: Mapping) -> None:
  """Raises InputError if the run in the directory used a different --start_from.

  If the source of that run no longer exists, the user may have moved it, so any path is
  accepted. `check_config` compares the weights later, after they are read.
  """
  was, is_now = (str(c.get('start_from') or '') for c in (found, wanted))
  is_other = os.path.realpath(was) != os.path.realpath(is_now)
  if bool(was) != bool(is_now) or (os.path.isdir(was) and was and is_other):
    raise errors.InputError(
      f'{path} holds a run with --start_from={was}, not {is_now or "without it"}; give'
      ' the same, or choose another --run_dir'
    )


def check_data(path: str | os.PathLike, config: Mapping, data: Mapping) -> None:
  """Raises InputError if `data` is not the data fingerprint in a run's `config`."""
  if told := differences(config.get('data', {}), data):
    raise errors.InputError(
      f'{path} holds a run on other data: {told}; give the data of that run,'
      ' or choose another --run_dir'
    )


def _settings(config: Mapping) -> dict[str, Any]:
  """Returns the settings that must be equal, as one flat dictionary by name."""
  groups = ('options', 'hyperparameters')
  own = ('rounds', 'data', PROBABILITIES, STARTED, 'start_from')
  left_out = {*run_files.NOT_CONFIGURATION, *own, *groups}
  settings = {k: v for k, v in config.items() if k not in left_out}
  for group in groups:
    settings |= config.get(group, {})
  return dict(sorted(settings.items()))


def differences(found: Mapping, wanted: Mapping) -> str:
  """Returns a text such as 'examples was 60 and is 80'; empty if the two are equal."""
  return ', '.join(
    wording.shown(f'{name} was {found.get(name)} and is {wanted.get(name)}')
    for name in {**wanted, **found}
    if found.get(name) != wanted.get(name)
  )
