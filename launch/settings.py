"""Flags of a run, checked and resolved without importing TensorFlow."""

import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from absl import flags

from datasets import cache_folder
from tasks import registry as tasks
from tasks import task as task_lib
from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import registry as algorithms

DEFAULT_DATA_DIR = os.path.join('..', 'shared', 'data')
# Floats of a class table, 8 GiB.
_MOST_TABLE_FLOATS = 2**31
_PACKAGES = (
  'tensorflow-cpu',
  'tensorflow',
  'tensorflow-federated',
  'numpy',
  'scikit-learn',
)


def define_parameter_flags() -> None:
  """Defines a flag for every hyper-parameter and task option."""
  for parameter in (*hp.HYPERPARAMETERS.values(), *task_lib.OPTIONS.values()):
    kind = type(parameter.default)
    define = {
      bool: flags.DEFINE_bool,
      int: flags.DEFINE_integer,
      float: flags.DEFINE_float,
      str: flags.DEFINE_string,
    }[kind]
    text = parameter.help
    if parameter.choices:
      text += ' (' + '|'.join(parameter.choices) + ')'
    define(parameter.name, None, text)


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
  """Makes this process and its children use `--cache_dir`, if it is given.

  Raises:
    errors.InputError: the directory cannot be written.
  """
  if not flags.FLAGS.cache_dir:
    return
  chosen = os.path.abspath(os.path.expanduser(flags.FLAGS.cache_dir))
  try:
    os.makedirs(chosen, exist_ok=True)
  except OSError as e:
    raise errors.InputError(
      f'--cache_dir={chosen} cannot be made ({e.strerror}); name another'
    ) from e
  if not os.access(chosen, os.W_OK):
    raise errors.InputError(
      f'--cache_dir={chosen} cannot be written; name another'
    )
  os.environ[cache_folder.VARIABLE] = chosen


def refuse_arguments(arguments) -> None:
  """Refuses arguments of a command line that are not flags."""
  if arguments:
    raise errors.InputError(
      f'{arguments[0]!r} is no flag; flags are written --name=value'
    )


def _given(names) -> dict[str, Any]:
  values = {name: flags.FLAGS[name].value for name in names}
  return {name: v for name, v in values.items() if v is not None}


def _task_options(task: task_lib.Task, algorithm, who: str) -> dict[str, Any]:
  given = _given(task_lib.OPTIONS)
  for name in given:
    if name not in task.options:
      raise errors.InputError(
        f'--{name} is not an option of task {task.name}, which takes: '
        + (', '.join(f'--{n}' for n in task.options) or 'none')
      )
  if algorithm.cohort == 'pooled':
    for name in task_lib.OF_CLIENTS:
      if name in given:
        raise errors.InputError(
          f'--{name} does not apply to {who}, which has no clients'
        )
  options = task.option_values() | given
  for name, value in options.items():
    task_lib.OPTIONS[name].check(value)
  classes, dim = task.known_classes(options), options.get('embedding_dim', 1)
  if classes and classes * dim > _MOST_TABLE_FLOATS:
    raise errors.InputError(
      f'--embedding_dim={dim}: a table of {classes:,} classes with rows of'
      f' this length has more than {_MOST_TABLE_FLOATS:,} numbers (8 GiB); lower'
      ' it, or the number of classes'
    )
  return options


def resolve() -> dict[str, Any]:
  """Returns config.json's content from the parsed flags of `launch.train`.

  Raises:
    errors.InputError: a name is unknown, a flag does not apply, or a value is
      out of bounds.
  """
  values = flags.FLAGS
  for name in ('task', 'algorithm'):
    if values[name].value is None:
      known = tasks.TASKS if name == 'task' else algorithms.ALGORITHMS
      raise errors.InputError(f'--{name} is missing: ' + ', '.join(known))
  task = tasks.get(values.task)
  algorithm = algorithms.get(values.algorithm)
  options = _task_options(task, algorithm, values.algorithm)
  hyperparameters = hp.resolve(
    algorithm.hyperparameters,
    _given(hp.HYPERPARAMETERS),
    task.hyperparameters(values.algorithm),
    values.algorithm,
    algorithm.defaults,
  )
  _fit_negatives(hyperparameters, task.known_classes(options, values.data_dir))
  eval_every = _or(values.eval_every, task.eval_every)
  config = {
    'task': task.name,
    'algorithm': values.algorithm,
    'seed': values.seed,
    'rounds': _or(values.rounds, task.rounds),
    'eval_every': eval_every,
    'checkpoint_every': _or(values.checkpoint_every, eval_every),
    'clients_per_round': _clients_per_round(task, algorithm, values),
    'runtime': values.runtime,
    'client_threads': values.client_threads,
    'device': values.device,
    'data_dir': values.data_dir,
    'options': options,
    'hyperparameters': hyperparameters,
  }
  return {**config, **environment()}


def _fit_negatives(hyperparameters: dict, num_classes: int | None) -> None:
  """Refuses too many negatives; lowers a default to the other classes."""
  if num_classes is None or 'negatives' not in hyperparameters:
    return
  if flags.FLAGS.negatives is None:
    most = max(num_classes - 1, 1)
    hyperparameters['negatives'] = min(hyperparameters['negatives'], most)
  hp.check_negatives(hyperparameters['negatives'], num_classes)


def _clients_per_round(task, algorithm, values) -> int | None:
  if algorithm.cohort == 'pooled':
    if values.clients_per_round is not None:
      raise errors.InputError(
        f'--clients_per_round does not apply to {values.algorithm}, which has'
        ' no clients'
      )
    return None
  return _or(values.clients_per_round, task.clients_per_round)


def _or(value, default):
  return default if value is None else value


def environment() -> dict[str, Any]:
  """Returns versions and the git revision, for the record."""
  versions = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
      continue
  return {'versions': versions, 'git_revision': _git_revision()}


def _git_revision() -> str | None:
  try:
    found = subprocess.run(
      ['git', 'describe', '--always', '--dirty', '--abbrev=12'],
      cwd=os.path.dirname(os.path.abspath(__file__)),
      capture_output=True,
      text=True,
      timeout=10,
      check=False,
    )
  except OSError:
    return None
  return found.stdout.strip() or None
