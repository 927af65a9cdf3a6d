"""Flags of a run, checked and resolved without importing TensorFlow."""

import os
import tempfile
from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from absl import flags

from datasets import cache_folder
from tasks import experiment
from tasks import registry as tasks
from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import registry as algorithms

_CHOSEN = {'task': tasks.TASKS, 'algorithm': algorithms.ALGORITHMS}


def parameters() -> dict[str, hp.Hyperparameter]:
  """Returns all that a flag may set, by name."""
  return {
    **experiment.SETTINGS,
    **algorithms.HYPERPARAMETERS,
    **tasks.OPTIONS,
  }


def define_experiment_flags(without: Collection[str] = ()) -> None:
  """Defines --task, --algorithm, and a flag for every parameter."""
  for name, entries in _CHOSEN.items():
    listed = f'`python -m launch.list {name}s` describes them'
    flags.DEFINE_string(name, None, f'{", ".join(entries)}; {listed}')
  define_cache_flag()
  define_flags(p for p in parameters().values() if p.name not in without)


def define_flags(of: Iterable[hp.Hyperparameter]) -> None:
  """Defines a flag for each of these parameters; `changes` has those set."""
  for parameter in of:
    define = {
      bool: flags.DEFINE_bool,
      int: flags.DEFINE_integer,
      float: flags.DEFINE_float,
      str: flags.DEFINE_string,
    }[type(parameter.default)]
    text = parameter.help
    if parameter.choices:
      text += ' (' + '|'.join(parameter.choices) + ')'
    define(parameter.name, None, text)


def define_jobs_flag() -> None:
  """Defines `--jobs`, of commands that train several runs."""
  flags.DEFINE_integer(
    'jobs',
    0,
    'runs side by side; default: the first run runs alone, then as many as there'
    ' are cores and as fit the memory',
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )


def define_cache_flag() -> None:
  """Defines `--cache_dir`; `use_cache_dir` makes it take effect."""
  flags.DEFINE_string(
    'cache_dir',
    None,
    'directory that keeps parsed text files for the next run; default '
    f'${cache_folder.VARIABLE}, then $XDG_CACHE_HOME/tff_xc, then '
    '~/.cache/tff_xc. May be deleted at any time.',
  )


def use_cache_dir() -> None:
  """Makes this process and its children use `--cache_dir`, if it is given."""
  if not flags.FLAGS.cache_dir:
    return
  chosen = os.path.abspath(flags.FLAGS.cache_dir)
  try:
    os.makedirs(chosen, exist_ok=True)
    tempfile.TemporaryFile(dir=chosen).close()
  except OSError as e:
    raise errors.InputError(
      f'--cache_dir={chosen} cannot be written ({e.strerror}); name another'
    ) from e
  os.environ[cache_folder.VARIABLE] = chosen


def refuse_arguments(arguments) -> None:
  """Refuses arguments of a command line that are not flags."""
  if arguments:
    raise errors.InputError(
      f'{arguments[0]!r} is no flag; flags are written --name=value'
    )


def given() -> tuple[str, str, dict[str, Any]]:
  """Returns the task, the algorithm and the parameters that flags set."""
  values = flags.FLAGS
  for name, known in _CHOSEN.items():
    if values[name].value is None:
      raise errors.InputError(f'--{name} is missing: ' + ', '.join(known))
  return values.task, values.algorithm, changes()


def changes() -> dict[str, Any]:
  """Returns the parameters that flags set, by name."""
  values = flags.FLAGS
  known = [name for name in parameters() if name in values]
  return {n: values[n].value for n in known if values[n].value is not None}


def resolve() -> dict[str, Any]:
  """Returns config.json's content from the parsed flags of `launch.train`."""
  return experiment.resolve(*given())
