"""The runs of a sweep, resolved before any of them starts."""

import contextlib
import dataclasses
import hashlib
import itertools
import pathlib
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tasks import experiment
from tff_xc import errors
from tff_xc import wording
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.report import run_files

# Of a directory; file systems take 255 bytes, and a log lies beside it.
_LONGEST_NAME = 200
_WORDS = {'true': True, 'false': False}


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a sweep, or of a published table."""

  values: Mapping[str, Any]  # Of the grids, or those of the table's row.
  config: Mapping[str, Any]  # From `experiment.resolve`.
  folder: pathlib.Path
  name: str = ''  # Of the grid point or row, for people; '': its values.

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def point(self) -> str:
    """The grid point, for people: 'client_learning_rate=0.1 negatives=40'."""
    return self.name or ' '.join(
      f'{name}={_shown(value)}' for name, value in self.values.items()
    )


def points(
  grids: Sequence[str], parameters: Mapping[str, hp.Hyperparameter]
) -> list[dict[str, Any]]:
  """Returns the product of grids NAME:VALUE,VALUE,...: values by name, the last fastest."""
  found: dict[str, list] = {}
  for grid in grids:
    name, _, texts = grid.partition(':')
    try:
      if not texts:
        raise errors.InputError(
          'expected NAME:VALUE,VALUE, such as client_learning_rate:0.01,0.1'
        )
      if name in found:
        raise errors.InputError(f'{name} has a grid already')
      found[name] = _values(name, texts, parameters)
    except errors.InputError as e:
      raise errors.InputError(f'--grid={grid}: {e}') from e
  return [
    dict(zip(found, values, strict=True))
    for values in itertools.product(*found.values())
  ]


def _values(name: str, texts: str, parameters) -> list:
  if name == 'seed':
    raise errors.InputError('seeds are given by --seeds')
  if name in ('task', 'algorithm'):
    raise errors.InputError(f'a sweep has one {name}; run a sweep for each')
  if name not in parameters or name in run_files.NOT_CONFIGURATION:
    raise errors.InputError(
      f'{name} is no setting that changes results'
      f'{wording.meant(name, parameters)}; `python -m launch.list algorithms`'
      ' lists hyper-parameters'
    )
  values = [_value(parameters[name], t.strip()) for t in texts.split(',')]
  shown = [_shown(value) for value in values]
  for text in shown:
    if shown.count(text) > 1:
      raise errors.InputError(f'it has {text} twice')
  return values


def _value(parameter: hp.Hyperparameter, text: str) -> bool | int | float | str:
  """Returns a text as a value of the parameter's type; its bounds come later."""
  kind, value = type(parameter.default), text
  if kind is bool:
    value = _WORDS.get(text.lower(), text)
  elif kind is not str:
    # The parameter refuses what stays a text, and says what it expects.
    with contextlib.suppress(ValueError):
      value = kind(text)
  return parameter.checked(value)


def seeds(text: str) -> list[int]:
  """Returns the seeds of a text such as '0,1,2', all different."""
  try:
    found = [int(part) for part in text.split(',')]
  except ValueError:
    found = []
  if not found or len(set(found)) < len(found):
    raise errors.InputError(
      f'--seeds={text}: expected different whole numbers, such as 0,1,2'
    )
  return found


def runs(
  task: str,
  algorithm: str,
  given: Mapping[str, Any],
  grid_points: Sequence[Mapping[str, Any]],
  run_seeds: Sequence[int],
  output: pathlib.Path,
) -> list[Run]:
  """Returns all runs of a sweep, all seeds of a point after each other."""
  found = []
  for values in grid_points:
    if both := set(values) & set(given):
      name = min(both)
      raise errors.InputError(f'--{name} is given, and has a --grid as well')
    for seed in run_seeds:
      changes = {**given, **values, 'seed': seed}
      config = experiment.resolve(task, algorithm, changes)
      experiment.check_private(config)
      folder = folder_of(output, values) / f'seed{seed}'
      found.append(Run(values, config, folder))
  if len({run.folder for run in found}) < len(found):
    raise errors.InputError(
      '--grid has two values whose directories would have one name; sweep over'
      ' them separately'
    )
  return found


def folder_of(
  root: pathlib.Path, values: Mapping[str, Any], *first: str
) -> pathlib.Path:
  """Returns ROOT/client_learning_rate=0.1_negatives=40, after words that go first.

  A name that file systems would refuse is cut, and ends with a digest of all of it.
  """
  words = [_word(name, value) for name, value in values.items()]
  return root / _cut('_'.join([*first, *words]))


def _cut(name: str) -> str:
  if len(name) <= _LONGEST_NAME:
    return name
  digest = hashlib.sha256(name.encode()).hexdigest()[:12]
  return f'{name[: _LONGEST_NAME - len(digest) - 1]}_{digest}'


def _word(name: str, value) -> str:
  return f'{name}={re.sub(r"[^A-Za-z0-9.+-]", "-", _shown(value))}'


def _shown(value) -> str:
  if isinstance(value, bool):
    return str(value).lower()
  return f'{value:.12g}' if isinstance(value, float) else str(value)
