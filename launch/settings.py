"""Defines and checks the flags of a run, without importing TensorFlow."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from absl import flags

from datasets import cache_folder
from launch import app
from tasks import configuration, registry as tasks
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms
from tff_xc.options import hyperparameters as hp
from tff_xc.report import run_files

# The flags that --help lists besides --task, --algorithm and --run_dir. Most runs need them.
COMMON = ('data_dir', 'split', 'encoder', 'rounds', 'eval_every', 'seed')
COMMON += ('clients_per_round', 'local_epochs', 'batch_size', 'device')
COMMON += ('client_learning_rate', 'server_learning_rate')
# Flags that commands share, and that only --help=all lists.
_RARE = ('cache_dir', 'picture_format')
# The groups of flags in --help=all, in order.
_GROUPS = 'run', 'data and network', 'clients', 'server', 'algorithm', 'runtime'
_RUNTIME = (
  'runtime',
  'device',
  'precision',
  'client_threads',
  'worker_timeout',
  'cluster_address',
  'cluster_without_token',
)
_HELD_OUT = 'data_dir', 'client_test_fraction', 'unseen_clients'
_SERVER = 'server_', 'robust_', 'clipping_'
# Flags by which a user names the data of a run, and their help texts.
MOVED = {
  'data_dir': "path of the run's data, if they have moved since the run was trained",
  'split': 'path of the split file or folder, if it has moved since the run was trained',
  'test_file': 'path of the file of test examples, if it has moved since the run was trained',
  'classes': 'path of the class-names file, if it has moved since the run was trained',
}
_DEFINERS = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
}
_CHOSEN = {'task': tasks.TASKS, 'algorithm': algorithms.ALGORITHMS}


def parameters() -> dict[str, hp.Hyperparameter]:
  """Returns all parameters that flags can set, by name: settings, hyperparameters, task options."""
  return {**configuration.SETTINGS, **algorithms.HYPERPARAMETERS, **tasks.OPTIONS}


def define_experiment_flags(without: Collection[str] = ()) -> None:
  """Defines --task, --algorithm, and a flag for every parameter."""
  for name, entries in _CHOSEN.items():
    text = f'one of {", ".join(entries)}. `python -m launch.list {name}s` describes them'
    flags.DEFINE_string(name, None, f'{text}. --help=all lists all flags')
  define_cache_flag()
  group_of = {name: _group(name) for name in parameters() if name not in without}
  for name in sorted(group_of, key=lambda name: _GROUPS.index(group_of[name])):
    parameter = parameters()[name]
    choices = f' ({"|".join(parameter.choices)})' if parameter.choices else ''
    # The default is None, so that `changes` can tell which flags the user set. --help lists flags
    # with the same `module_name` together.
    define = _DEFINERS[type(parameter.default)]
    define(name, None, parameter.help + choices, module_name=group_of[name])


def _group(name: str) -> str:
  if name in _RUNTIME:
    return 'runtime'
  if name in _HELD_OUT or name in tasks.OPTIONS:
    return 'data and network'
  if name in configuration.SETTINGS:
    return 'run'
  if name.startswith(_SERVER):
    return 'server'
  is_shared = name in algorithms.get('fedavg').names
  return 'clients' if is_shared else 'algorithm'


def narrow_help(arguments: Sequence[str]) -> None:
  """Removes the flags that --help does not list.

  Without --task and --algorithm, --help lists only the flags that most runs need, and --help=all
  lists all flags. With --task or --algorithm, --help lists the flags that apply to the task or
  the algorithm. As their defaults, it shows the values that such a run uses.
  """
  del arguments
  values = flags.FLAGS
  task = tasks.get(values.task) if values.task else None
  algorithm = algorithms.get(values.algorithm) if values.algorithm else None
  known = _that_apply(task, algorithm, changes())
  hidden = {*tasks.OPTIONS} if task else set()
  hidden |= {*algorithms.HYPERPARAMETERS} if algorithm else set()
  if not hidden and not {*app.HELP_ALL} & {*sys.argv}:
    hidden = {*parameters(), *_RARE} - {*COMMON}
  for name in [*values]:
    if known.get(name) not in (None, ''):
      values.set_default(name, known[name])
    elif name in hidden and name not in known:
      delattr(values, name)


def _that_apply(task, algorithm, given: dict[str, Any]) -> dict[str, Any]:
  """Returns the settings, by name, of a run with this task, this algorithm or both."""
  if task and algorithm:
    data = {'data_dir': 'data'} if task.data_is_named else {}
    config = configuration.resolve(task.name, algorithm.name, data | given)
    known = run_files.flat(config)
    return {n: v for n, v in known.items() if n not in data or n in given}
  known = {}
  if task:
    settings = {n: v for n, v in given.items() if n in configuration.SETTINGS}
    options = {n: v for n, v in given.items() if n in tasks.OPTIONS}
    known = configuration.defaults(task, settings) | task.checked_options(options)
  if algorithm:
    names = algorithms.HYPERPARAMETERS
    known = algorithm.resolve({n: given[n] for n in given if n in names})
  return known | given


def define_calibration_flags(what: str = 'the model is scored') -> None:
  """Defines `--calibrate` and its options. `calibration` returns their values."""
  flags.DEFINE_integer(
    'calibrate',
    None,
    f'train the class rows on this number of virtual features per class before {what} (CCVR).'
    ' The virtual features of a class are drawn from a normal distribution, which has the mean'
    " and covariance of all clients' embeddings of the class",
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_integer(
    'calibrate_epochs',
    10,
    'number of passes over the virtual features of --calibrate',
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  app.define_float(
    'calibrate_learning_rate',
    None,
    'learning rate of SGD on the virtual features of --calibrate. Default: the'
    ' --client_learning_rate of the run',
    least=0.0,
    most=1e30,
  )


def calibration() -> tuple[int, int, float | None] | None:
  """Returns the arguments of `launch.trained.calibrated`; None if --calibrate is not given."""
  values = flags.FLAGS
  check_of('calibrate', ('calibrate_epochs', 'calibrate_learning_rate'))
  if not values.calibrate:
    return None
  return values.calibrate, values.calibrate_epochs, values.calibrate_learning_rate


def define_named_flags(**meanings: str) -> None:
  """Defines flags by which a user names the data or the encoder of a run.

  `meanings` has the help text of each flag. `named` returns the values.
  """
  for name, meaning in meanings.items():
    if name == 'encoder':
      meaning += '. The program executes this code only if you name it here'
    flags.DEFINE_string(name, None, meaning)


def named() -> dict[str, str]:
  """Returns the values of the flags of `define_named_flags` that are given, by name."""
  names = ('encoder', *configuration.DATA_FILES)
  return {n: v for n, v in changes().items() if n in names}


def check_of(of: str, names: Sequence[str]) -> None:
  """Refuses the options `names` if the user does not give the flag `of`, to which they belong."""
  if flags.FLAGS[of].value is None:
    refuse(names, f'goes with --{of}; also give --{of}, such as --{of}=5')


def define_jobs_flag() -> None:
  """Defines `--jobs` for commands that train several runs."""
  flags.DEFINE_integer(
    'jobs',
    0,
    'number of runs to train at the same time. 0: train the first run alone, then as many at a'
    ' time as the cores and the memory allow',
    lower_bound=0,
    upper_bound=hp.INT32_MAX,
  )


def define_cache_flag() -> None:
  """Defines `--cache_dir`. `launch.app` applies it."""
  flags.DEFINE_string(
    'cache_dir',
    None,
    'directory that keeps parsed data files for later runs. You may delete it at any time. Default:'
    f' ${cache_folder.VARIABLE} if it is set, else $XDG_CACHE_HOME/tff_xc, else ~/.cache/tff_xc',
  )


def define_picture_flag() -> None:
  """Defines `--picture_format`. `launch.app` applies it."""
  flags.DEFINE_string(
    'picture_format',
    None,
    "also write each picture as pdf, svg or both ('pdf,svg'), with editable text. The program"
    ' always writes a .png',
  )


def refuse(names: Iterable[str], why: str) -> None:
  """Refuses the command line if one of the flags `names` is given; `why` completes the sentence."""
  for name in names:
    if flags.FLAGS[name].present:
      raise errors.InputError(f'--{name} {why}')


def given() -> tuple[str, str, dict[str, Any]]:
  """Returns the task, the algorithm and the parameters that flags set."""
  values = flags.FLAGS
  for name, known in _CHOSEN.items():
    if values[name].value is None:
      raise errors.InputError(
        f'--{name} is missing: {", ".join(known)}; `python -m launch.list {name}s` describes them'
      )
  return values.task, values.algorithm, changes()


def changes() -> dict[str, Any]:
  """Returns the parameters that flags set, by name."""
  values = flags.FLAGS
  known = [name for name in parameters() if name in values]
  return {n: values[n].value for n in known if values[n].value is not None}
