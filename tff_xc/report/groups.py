"""Groups runs whose settings are all equal, except the seed.

A configuration's label is its algorithm and the settings that distinguish it
from the other configurations shown with it.
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

from tff_xc import errors
from tff_xc import wording
from tff_xc.report import run_files

# Keys that are not settings: they identify a run, or hold settings.
_NOT_SETTINGS = frozenset(
  {
    *run_files.NOT_CONFIGURATION,
    'task',
    'algorithm',
    'hyperparameters',
    'options',
    'data',
    'seed',
  }
)
_DATA = 'data.'
# They change results in their last digits only.
_OF_MACHINES = ('runtime', 'device')


@dataclasses.dataclass(frozen=True)
class Group:
  """Finished runs of one configuration.

  Attributes:
    label: the algorithm and the settings that differ from other groups.
    algorithm: its name.
    runs: by ascending seed, at least one, seeds distinct.
  """

  label: str
  algorithm: str
  runs: tuple[run_files.Run, ...]


def group_runs(runs: Sequence[run_files.Run]) -> list[Group]:
  """Groups finished runs of one task by all settings except the seed.

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
  first = [group[0] for group in members]
  labels = _labels(first, [settings_of(run) for run in first])
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
    if not run_files.is_finished(run.config, run.summary):
      wanted = run.config.get('rounds', 0)
      raise errors.InputError(
        f'{run.path} has not finished its {wanted} rounds; run launch.train '
        'again with its flags and this --run_dir to finish it.'
      )


def settings_of(run: run_files.Run) -> dict[str, Any]:
  """Returns the settings that decide results, except algorithm and seed.

  It is one flat dictionary of settings, task options, hyper-parameters and the
  data's fingerprint (`data.examples`, ...). It omits null settings, which do
  not apply to the run.
  """
  settings = {
    key: value for key, value in run.config.items() if key not in _NOT_SETTINGS
  }
  settings |= run.config.get('options', {}) | run.hyperparameters
  data = run.config.get('data', {})
  settings |= {f'{_DATA}{key}': value for key, value in data.items()}
  return {key: value for key, value in settings.items() if value is not None}


def differing(groups: Sequence[Group]) -> list[str]:
  """Returns the settings in which methods differ, besides the method, rounds first.

  A setting that one method has alone is part of it.
  """
  values: dict[str, dict[str, set[str]]] = {}
  for group in groups:
    for key, value in settings_of(group.runs[0]).items():
      if key not in _OF_MACHINES and not key.startswith(_DATA):
        of_method = values.setdefault(key, {})
        of_method.setdefault(group.algorithm, set()).add(_show(value))
  found = [
    key
    for key, of_method in values.items()
    if any(a != b for a, b in itertools.pairwise(of_method.values()))
  ]
  return sorted(map(_show, found), key=lambda key: key != 'rounds')


def methods(groups: Sequence[Group]) -> list[str]:
  """Returns each group's algorithm with the hyper-parameters that differ.

  Groups that differ only in the task's options, such as the skew of the clients,
  have one.
  """
  runs = [group.runs[0] for group in groups]
  return _labels(
    runs,
    [
      {k: v for k, v in run.hyperparameters.items() if v is not None}
      for run in runs
    ],
  )


def _labels(
  runs: Sequence[run_files.Run], settings: Sequence[dict[str, Any]]
) -> list[str]:
  """Returns labels for `runs` with these settings, each one configuration.

  A label contains a setting if the runs that have it differ in it. It also
  contains a setting that at most half of the algorithms have, such as FedSS's
  `negatives` next to FullSoftmax, unless it is an option that is off
  everywhere. It contains those facts of the data that distinguish runs of equal
  options.
  """
  algorithms = {run.algorithm for run in runs}
  named = []
  keys = list(dict.fromkeys(key for each in settings for key in each))
  for key in keys:
    if key.startswith(_DATA):
      continue
    values = {
      json.dumps(each[key], sort_keys=True) for each in settings if key in each
    }
    takers = {
      run.algorithm
      for run, each in zip(runs, settings, strict=True)
      if key in each
    }
    # Among the runs of one algorithm, some may lack the key.
    uneven = any(
      run.algorithm in takers and key not in each
      for run, each in zip(runs, settings, strict=True)
    )
    # An option of few algorithms says nothing if it is off in all runs.
    rare = 2 * len(takers) <= len(algorithms) and values != {'false'}
    if len(values) > 1 or uneven or rare:
      named.append(key)
  named += _names_of_data(runs, settings, named)
  return [
    _label(run, each, named) for run, each in zip(runs, settings, strict=True)
  ]


def _label(run, settings, named) -> str:
  return ' '.join(
    [run.algorithm]
    + [
      f'{_show(key)}={_show(settings[key])}' for key in named if key in settings
    ]
  )


def _names_of_data(runs, settings, named) -> list[str]:
  """Returns the settings that distinguish runs on different data.

  It skips runs with different options, whose labels already differ.
  """
  part = lambda each: {k: v for k, v in each.items() if k.startswith(_DATA)}
  data = [part(each) for each in settings]
  labels = [
    _label(run, each, named) for run, each in zip(runs, settings, strict=True)
  ]
  alike = [
    (a, b)
    for (i, a), (j, b) in itertools.combinations(enumerate(data), 2)
    if a != b
    and runs[i].config.get('options') == runs[j].config.get('options')
    and (labels[i] == labels[j] or (a and b))
  ]
  found = []
  for key in dict.fromkeys(key for each in data for key in each):
    left = [(a, b) for a, b in alike if a.get(key) == b.get(key)]
    if len(left) < len(alike):
      found.append(key)
    alike = left
  return found


def _show(value) -> str:
  text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
  return wording.shown(text)
