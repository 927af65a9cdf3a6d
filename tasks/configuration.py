"""Resolves the configuration of a run: a task, an algorithm and changes of their defaults.

  config = configuration.resolve('omniglot', 'fedss', {'negatives': 40})

Nothing here reads data or imports TensorFlow. `tasks.experiment` runs a configuration.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from tasks import encoders, registry as tasks, task as task_lib
from tff_xc import environment, errors, precision, wording
from tff_xc.algorithms import base, registry as algorithms
from tff_xc.experiment import same_run, trackers
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import calibration, hyperparameters as hp, importance
from tff_xc.report import run_files
from tff_xc.runtime import registry as runtimes

# The key in config.json of the noise multiplier that is computed from --dp_epsilon.
DP_NOISE = 'dp_noise'
# With fewer rounds per client, most class rows stay near their initial values.
FEW_VISITS = 3
# The largest number of floats in a table, 8 GiB.
_MOST_FLOATS = 2**31
# Settings that say where a run's data are. The data may have moved since the run.
DATA_FILES = ('data_dir', 'split', 'test_file', 'classes')
MORE_METRICS = 'more_metrics'
START_FROM, START_FROM_ROWS = 'start_from', 'start_from_rows'
SAME_NAMES = 'same_names'
# Settings that choose the initial weights. They are not needed with a checkpoint, because it has
# all weights.
_OF_START = {'encoder_weights', START_FROM, START_FROM_ROWS}
_OF_CLUSTER = {'cluster_address', 'cluster_without_token', 'worker_timeout'}
DATA_VARIABLE = 'TFF_XC_DATA'
DEFAULT_DATA_DIR = os.path.join('..', 'shared', 'data')


def _setting(name, default, text, least=0, most=hp.INT32_MAX):
  return hp.Hyperparameter(name, default, text, least=least, most=most)


# Settings that belong to neither the task nor the algorithm. The task gives the defaults of
# `rounds`, `eval_every`, `target` and `best_by`.
SETTINGS: Mapping[str, hp.Hyperparameter] = {
  setting.name: setting
  for setting in (
    # NumPy's generators accept only seeds below 2³².
    _setting('seed', 0, 'seed of all random draws', most=2**32 - 1),
    _setting('rounds', 0, 'number of rounds of training; default: set by the task', 1),
    _setting('eval_every', 0, 'number of rounds between evaluations; default: set by the task', 1),
    _setting(
      'checkpoint_every',
      0,
      'number of rounds between checkpoints. The run also writes a checkpoint if the last one is'
      ' about five minutes old. Default: the value of --eval_every',
      least=1,
    ),
    _setting(
      'client_threads',
      0,
      'number of clients that train at the same time; with --runtime=cluster, the number in each'
      ' worker. 0: one per core',
      most=1024,
    ),
    hp.Hyperparameter(
      'runtime',
      runtimes.DEFAULT,
      'runtime that executes the TFF computations; see docs/runtime.md',
      choices=runtimes.names(),
    ),
    hp.Hyperparameter(
      'device',
      '',
      "devices that train clients: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1'. Default: all"
      ' GPUs that TensorFlow sees; the CPU if there are none',
    ),
    hp.Hyperparameter(
      'precision',
      precision.FLOAT32,
      "number format of matrix products and logits in clients' networks. bfloat16 needs a CPU"
      ' with AMX or AVX512-BF16, or a GPU',
      choices=precision.NAMES,
    ),
    _setting(
      'worker_timeout',
      runtimes.WORKER_TIMEOUT,
      'with --runtime=cluster: number of seconds without progress after which the run stops a'
      ' worker. Other workers then train its clients',
      least=1,
    ),
    hp.Hyperparameter(
      'cluster_address',
      '',
      "with --runtime=cluster: address IP:PORT of the head of a running Ray cluster, or 'auto'"
      ' for the cluster on this machine. Default: $RAY_ADDRESS. If this variable is not set, the'
      ' run starts Ray on this machine',
    ),
    hp.Hyperparameter(
      'cluster_without_token',
      False,
      'accept a Ray cluster without a token. Anybody who can reach such a cluster can run'
      ' programs on it',
    ),
    hp.Hyperparameter(
      'target',
      '',
      'scores to reach, METRIC:VALUE separated by commas, such as top1:0.7,mcc:0.5. The run'
      ' counts the rounds until it reaches each score. Default: set by the task',
    ),
    hp.Hyperparameter(
      'best_by',
      '',
      'score by which to choose the best round, such as hit@10_validation. If this score is'
      ' measured on test examples, the test scores of the best round are too optimistic. Default:'
      ' set by the task',
    ),
    hp.Hyperparameter(
      'tracker',
      trackers.NONE,
      'experiment tracker to which the run sends settings, metrics and pictures. mlflow writes to'
      ' $MLFLOW_TRACKING_URI, or by default to a folder of the run. wandb reads $WANDB_MODE. A'
      ' resumed run may use another tracker',
      choices=trackers.NAMES,
    ),
    hp.Hyperparameter(
      MORE_METRICS,
      '',
      'additional scores to measure, separated by commas: top5,hit@3,recall@5,retrieval_recall@1,'
      ' ...',
    ),
    hp.Hyperparameter(
      START_FROM,
      '',
      'run directory, or folder of `launch.export --format=npz`, from which the run takes the'
      ' initial encoder and class rows; default: random weights',
    ),
    hp.Hyperparameter(
      START_FROM_ROWS,
      SAME_NAMES,
      "class rows to take from --start_from. 'same_names': the rows of classes whose names are in"
      " --start_from and in this run; 'none': no rows, so that all class rows start at random",
      choices=(SAME_NAMES, 'none'),
    ),
    _setting(
      'early_stopping_patience',
      0,
      'stop the run after this many evaluations in which the score --best_by did not improve; 0:'
      ' never stop early',
    ),
    hp.Hyperparameter(
      'client_test_fraction',
      0.0,
      'share of the examples of each client to hold out of training, for scores of single'
      ' clients. --data_seed decides which examples. Tasks without --data_seed use seed 0',
      least=0,
      most=0.5,
    ),
    hp.Hyperparameter(
      'unseen_clients',
      0.0,
      'share of the clients to hold out of training, for scores on clients that the model has not'
      ' seen. --data_seed decides which clients',
      least=0,
      most=0.9,
    ),
    hp.Hyperparameter(
      'dp_epsilon',
      0.0,
      'with --dp: epsilon that the model should have after all rounds. The program computes'
      ' --dp_noise_multiplier from it. 0: --dp_noise_multiplier sets the noise',
      least=0,
    ),
    _setting(
      'evaluate_clients',
      0,
      'number of training clients that score the model on their own held-out examples at every'
      ' evaluation. --seed decides which clients. 0: none',
    ),
    hp.Hyperparameter(
      'data_dir',
      os.environ.get(DATA_VARIABLE, DEFAULT_DATA_DIR),
      f'directory with all data sets, or path of your own data. Default: ${DATA_VARIABLE} if it is'
      ' set, otherwise ../shared/data',
    ),
  )
}


def resolve(task: str, algorithm: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
  """Returns a run's configuration with every setting, as config.json has it."""
  found, chosen = tasks.get(task), algorithms.get(algorithm)
  _check_needs(found, chosen)
  given = dict(changes or {})
  of_run = {n: v for n, v in given.items() if n in SETTINGS}
  of_task = {n: v for n, v in given.items() if n in tasks.OPTIONS}
  settings = _settings(of_run, found)
  options = found.checked_options(of_task)
  of_clients = {*task_lib.OF_CLIENTS, 'clients_per_round'} & {*given}
  if of_clients and not chosen.has_clients:
    raise errors.InputError(
      f'--{min(of_clients)} does not apply to {algorithm}, which has no clients'
    )
  found.check(options)
  num_classes = found.known_classes(options, settings['data_dir'])
  values = chosen.resolve(
    given,
    {**found.defaults, 'clients_per_round': found.clients_per_round},
    found.by_algorithm.get(algorithm, {}),
    (settings, options),
    num_classes,
  )
  draft = task_lib.Draft(chosen, settings, options, values, given)
  found.fit(draft)
  _check_sizes(draft, 0 if found.data_is_named else num_classes or 0)
  _check_weights_of_classes(found, values, num_classes)
  encoder = options.get('encoder', encoders.SMALL)
  if settings['precision'] != precision.FLOAT32 and encoders.is_code(encoder):
    raise errors.InputError(
      f'--precision={settings["precision"]} is for the networks of `launch.list encoders`, not for'
      f' --encoder={encoder}; leave one of them out'
    )
  return {
    'task': task,
    'algorithm': algorithm,
    **settings,
    same_run.UNSET: [n for n in same_run.FITTED if n in values.keys() - given],
    'options': options,
    'hyperparameters': values,
    **environment.describe(),
  }


def recorded(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a run's configuration in the form of `resolve`; `config` is the run's config.json.

  Files of initial weights are left out, because a checkpoint has all weights. Files of class
  probabilities are left out, because only training needs them.
  """
  task, algorithm = config['task'], config['algorithm']
  taken = {*SETTINGS, *tasks.OPTIONS, *algorithms.HYPERPARAMETERS}
  taken |= {*config.get('options', {}), *config.get('hyperparameters', {})}
  taken -= _OF_START
  if config.get('runtime') != runtimes.CLUSTER:
    taken -= _OF_CLUSTER
  given = {
    name: value
    for name, value in run_files.flat(without_importance(config)).items()
    if name in taken and value is not None
  }
  changes = changes_of(given, lambda tried: resolve(task, algorithm, tried))
  kept = {name: config[name] for name in [DP_NOISE] if name in config}
  return {**resolve(task, algorithm, changes), **kept}


def changes_of(
  given: Mapping[str, Any], resolved: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
  """Returns the settings of `given` from which `resolved` restores all of `given`.

  Settings with their default values are left out, because some flags exclude each other.
  """
  given = dict(given)
  if given.get('local_steps'):
    given.pop('local_epochs', None)  # Epochs do not apply with steps.
  changes = {n: v for n, v in given.items() if n == 'data_dir'}
  while True:
    found = run_files.flat(resolved(changes))
    more = {
      name: value
      for name, value in given.items()
      if name not in changes and (name not in found or found[name] != value)
    }
    if not more:
      return changes
    # A task may have chosen the setting to which a changed setting belongs.
    known = algorithms.HYPERPARAMETERS
    of = {known[name].of for name in more.keys() & known.keys()}
    changes |= more | {name: given[name] for name in of & given.keys()}


def _check_needs(task: task_lib.Task, algorithm: type[base.Base]) -> None:
  missing = [need for need in algorithm.needs if need in task.lacks]
  if missing:
    others = [
      name
      for name, other in algorithms.ALGORITHMS.items()
      if not set(other.needs) & set(task.lacks)
    ]
    raise errors.InputError(
      f'--algorithm={algorithm.name} needs {missing[0]}, which --task={task.name}'
      f' does not have; choose another task, or one of {", ".join(others)}'
    )


def defaults(task: task_lib.Task, given: Mapping) -> dict[str, Any]:
  """Returns the settings of a run: those in `given`, and the task's defaults."""
  values = {name: setting.default for name, setting in SETTINGS.items()}
  values |= {'rounds': task.rounds, 'eval_every': task.eval_every}
  values |= {'target': ','.join(task.targets), 'best_by': task.best_by} | given
  every = given.get('checkpoint_every', values['eval_every'])
  return values | {'checkpoint_every': every}


def _settings(given: Mapping, task: task_lib.Task) -> dict[str, Any]:
  given = {name: SETTINGS[name].checked(value) for name, value in given.items()}
  task.check_data_dir(given.get('data_dir'))
  values = defaults(task, given)
  metrics = (*task.metrics, *more_metrics(values))
  if values['evaluate_clients']:
    metrics = (*metrics, *catalog.OF_CLIENTS)
  targets_lib.parse(values['target'], metrics)
  targets_lib.check_best(values['best_by'], values['early_stopping_patience'], metrics)
  if START_FROM_ROWS in given and not values[START_FROM]:
    raise errors.InputError(f'--{START_FROM_ROWS} goes with --{START_FROM}; leave it out')
  of_cluster = _OF_CLUSTER & {*given}
  if of_cluster and values['runtime'] != runtimes.CLUSTER:
    raise errors.InputError(
      f'--{min(of_cluster)} goes with --runtime={runtimes.CLUSTER}; leave it out'
    )
  return values


def is_private(config: Mapping) -> bool:
  """Whether a run has differential privacy with noise."""
  values = config.get('hyperparameters', {})
  has_noise = config.get('dp_epsilon') or values.get('dp_noise_multiplier')
  return bool(has_noise) and values.get('dp', 'none') != 'none'


def check_private(config: Mapping) -> None:
  """Refuses settings of a private run that reveal exact facts about clients' data."""
  if not is_private(config):
    return
  options, values = config['options'], config['hyperparameters']
  for flag, is_exact, what, cure in (
    (
      'importance_weights=train',
      values.get('importance_weights') == importance.OF_TRAIN,
      'sends the exact class shares of all clients to every client',
      'give a CSV FILE of public probabilities, or --importance_weights=uniform',
    ),
    (
      'calibration=prior',
      values['calibration'] == calibration.PRIOR and not values['calibration_probabilities'],
      'sends the exact class shares of all clients to every client',
      'give a CSV FILE of public --calibration_probabilities',
    ),
    (
      'standardize',
      options.get('standardize') and not options.get('feature_bounds'),
      'puts the exact mean and deviation of all rows into the model',
      'give public --feature_bounds=LOW:HIGH, or --standardize=false',
    ),
    (
      'feature_columns',
      'feature_columns' in options
      and not options['feature_columns'].strip(' ,')
      and not config['data_dir'].lower().endswith('.npz'),
      'is missing: which columns are numeric depends on the cells of single clients',
      'name the feature columns',
    ),
    (
      'classes',
      options.get('classes') == '',
      'is missing: class names taken from the data reveal which classes clients have',
      'give a FILE of public class names, one per line',
    ),
  ):
    if is_exact:
      raise errors.InputError(f'--{flag} {what}, which --dp={values["dp"]} does not cover; {cure}')


def more_metrics(settings: Mapping) -> list[str]:
  """Returns the metrics of --more_metrics, which are measured in addition to the task's."""
  text = settings.get(MORE_METRICS, '')
  names = [name.strip() for name in text.split(',')] if text else []
  for name in names:
    if name not in catalog.SCORES:
      meant = wording.meant(name, catalog.SCORES)
      raise errors.InputError(
        f'--{MORE_METRICS}: there is no score {name}{meant}; `python -m launch.list'
        ' metrics` lists them'
      )
    if name in catalog.OF_CLIENTS:
      raise errors.InputError(
        f'--{MORE_METRICS}: --evaluate_clients measures {name}; give that instead'
      )
  return names


def _check_sizes(draft: task_lib.Draft, num_classes: int) -> None:
  """Refuses tables that are too large for any machine."""
  options, values = draft.options, draft.values
  copies, dim = values.get('hash_tables', 1), options.get('embedding_dim', 1)
  width = options.get('hidden_dim', dim) + 1
  given = {**options, **values}
  for flag, size, row in (
    ('embedding_dim', num_classes, dim),
    ('hashed_features', copies * given.get('hashed_features', 0), width),
    ('hash_buckets', copies * given.get('hash_buckets', 0), width),
  ):
    if size * row > _MOST_FLOATS:
      raise errors.InputError(
        f'--{flag}={given[flag]}: a table of {size:,} rows with {row:,} numbers each has more'
        f' than {_MOST_FLOATS:,} numbers (8 GiB); lower one of the two'
      )


def _check_weights_of_classes(
  task: task_lib.Task, values: Mapping, num_classes: int | None
) -> None:
  """Checks the flags that weight classes, before the data are read.

  Refuses these flags for tasks with label sets, and refuses invalid files of class probabilities.
  """
  weights = values.get('importance_weights', importance.NONE)
  probabilities = values.get('calibration_probabilities', '')
  for flag, chosen, names in (
    ('importance_weights', weights, importance.NAMED),
    ('calibration_probabilities', probabilities, ('',)),
    ('calibration', values['calibration'], calibration.KINDS),
  ):
    if chosen in ('', 'none') and chosen in names:
      continue
    if base.ONE_LABEL in task.lacks:
      raise errors.InputError(
        f'--{flag}={chosen} needs {base.ONE_LABEL}, which --task={task.name} does not'
        ' have; leave it out'
      )
    if chosen in names:
      continue
    if not os.path.isfile(chosen):
      file = 'a CSV with the columns class,probability'
      raise errors.InputError(
        f'--{flag}={chosen} is no file; give {", ".join([*filter(None, names), file])}'
      )
    # The number and the names of classes of photographs are unknown until the data are read.
    if num_classes is not None and 'corrupt' not in task.option_values():
      from datasets.readers import class_probabilities  # It imports NumPy.

      class_probabilities.read(chosen, num_classes)


def without_importance(config: Mapping) -> dict[str, Any]:
  """Returns a configuration without files of class probabilities, which may have moved."""
  values = dict(config.get('hyperparameters', {}))
  if values.get('calibration_probabilities'):
    values['calibration_probabilities'] = ''
  if values.get('importance_weights', '') not in ('', *importance.NAMED):
    values['importance_weights'] = importance.NONE
  return {**config, 'hyperparameters': values}
