"""Which runs belong together: all settings equal but the seed.

A configuration is named by its algorithm and by what tells it from the other
configurations that it is shown with.
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

from datasets import errors
from tff_xc.measure import run_files

# Settings in which runs of one configuration may differ.
_NOT_CONFIGURATION = frozenset(
  {
    'task',
    'algorithm',
    'hyperparameters',
    'options',
    'seed',
    'versions',
    'git_revision',
    'run_dir',
    'data_dir',
    'checkpoint_every',
  }
)


@dataclasses.dataclass(frozen=True)
class Group:
  """Finished runs of one configuration.

  Attributes:
    label: the algorithm and the settings that tell it from the other groups.
    algorithm: its name.
    runs: by ascending seed, at least one, seeds distinct.
  """

  label: str
  algorithm: str
  runs: tuple[run_files.Run, ...]


def group_runs(runs: Sequence[run_files.Run]) -> list[Group]:
  """Groups finished runs of one task by everything but their seed.

  Returns:
    Groups in the order of their first runs.

  Raises:
    errors.InputError: for runs of different tasks, a run that has not finished,
      or two runs of one configuration and seed.
  """
  _check_comparable(runs)
  by_settings: dict[str, list[run_files.Run]] = {}
  for run in runs:
    key = json.dumps([run.algorithm, settings_of(run)], sort_keys=True)
    by_settings.setdefault(key, []).append(run)
  members = [
    sorted(group, key=lambda run: run.seed) for group in by_settings.values()
  ]
  for group in members:
    for a, b in itertools.pairwise(group):
      if a.seed == b.seed:
        raise errors.InputError(
          f'{a.path} and {b.path} have the same configuration and seed '
          f'{a.seed}; name only one of them.'
        )
  labels = _labels([group[0] for group in members])
  return [
    Group(label, group[0].algorithm, tuple(group))
    for label, group in zip(labels, members, strict=True)
  ]


def _check_comparable(runs):
  for run in runs:
    if run.task != runs[0].task:
      raise errors.InputError(
        f'{runs[0].path} is a run of task {runs[0].task} and {run.path} of '
        f'task {run.task}; compare runs of one task.'
      )
    wanted = run.config.get('rounds', 0)
    if run.summary is None or run.summary['rounds'] < wanted:
      raise errors.InputError(
        f'{run.path} has not finished its {wanted} rounds; run launch.train '
        'again with its flags and this --run_dir to finish it.'
      )


def settings_of(run: run_files.Run) -> dict[str, Any]:
  """Returns what decides a run's numbers besides its algorithm and seed.

  One flat dictionary of settings, task options and hyper-parameters; what is
  null does not apply to the run and is left out.
  """
  settings = {
    key: value
    for key, value in run.config.items()
    if key not in _NOT_CONFIGURATION
  }
  settings |= run.config.get('options', {}) | run.hyperparameters
  return {key: value for key, value in settings.items() if value is not None}


def _labels(runs: Sequence[run_files.Run]) -> list[str]:
  """Returns a label for each of `runs`, one a configuration.

  A setting is named where the runs that have it differ in it, or where at most
  half of the algorithms have it, such as FedSS's `negatives` next to
  FullSoftmax, unless it is an option that is off everywhere.
  """
  settings = [settings_of(run) for run in runs]
  algorithms = {run.algorithm for run in runs}
  named = []
  for key in dict.fromkeys(key for each in settings for key in each):
    values = {
      json.dumps(each[key], sort_keys=True) for each in settings if key in each
    }
    takers = {
      run.algorithm
      for run, each in zip(runs, settings, strict=True)
      if key in each
    }
    # Runs of one algorithm may differ in whether they have the key at all.
    uneven = any(
      run.algorithm in takers and key not in each
      for run, each in zip(runs, settings, strict=True)
    )
    # An option that only few have says nothing while all leave it off.
    rare = 2 * len(takers) <= len(algorithms) and values != {'false'}
    if len(values) > 1 or uneven or rare:
      named.append(key)
  return [
    ' '.join(
      [run.algorithm]
      + [f'{key}={_show(each[key])}' for key in named if key in each]
    )
    for run, each in zip(runs, settings, strict=True)
  ]


def _show(value) -> str:
  if isinstance(value, str):
    return value
  return json.dumps(value, sort_keys=True)
