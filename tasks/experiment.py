"""Configures and runs experiments: a task, an algorithm and changes of their defaults.

  config = experiment.resolve('omniglot', 'fedss', {'negatives': 40})
  summary = experiment.run(config, 'runs/mine')

`assemble` and `run` import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tasks import encoders, registry as tasks, task as task_lib
from tff_xc import environment, errors, precision, wording
from tff_xc.algorithms import base, registry as algorithms
from tff_xc.experiment import same_run, trackers
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import calibration, hyperparameters as hp, importance
from tff_xc.report import run_files
from tff_xc.runtime import registry as runtimes

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.data import client_data, description as description_lib
  from tff_xc.round import algorithm as algorithm_lib

_OF_TRAINING = (
  'rounds',
  'eval_every',
  'checkpoint_every',
  'seed',
  'target',
  'evaluate_clients',
)
# The key in config.json of the noise multiplier that is computed from --dp_epsilon.
DP_NOISE = 'dp_noise'
# With fewer rounds per client, most class rows stay near their initial values.
FEW_VISITS = 3
# The largest number of floats in a table, 8 GiB.
_MOST_FLOATS = 2**31
# Settings that locate a run's data. The data may have moved since.
DATA_FILES = ('data_dir', 'split', 'test_file', 'classes')
MORE_METRICS = 'more_metrics'
START_FROM, START_FROM_ROWS = 'start_from', 'start_from_rows'
SAME_NAMES = 'same_names'
# Settings of the initial weights, which a checkpoint replaces.
_OF_START = {'encoder_weights', START_FROM, START_FROM_ROWS}

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
    _setting('rounds', 0, "number of rounds; default: the task's", 1),
    _setting('eval_every', 0, "number of rounds between evaluations; default: the task's", 1),
    _setting(
      'checkpoint_every',
      0,
      'number of rounds between checkpoints. A checkpoint is also written after about five'
      ' minutes without one. Default: eval_every',
      least=1,
    ),
    _setting(
      'client_threads',
      0,
      'number of clients that train at the same time; with --runtime=cluster, in each worker.'
      ' 0: one per core',
      most=1024,
    ),
    hp.Hyperparameter(
      'runtime',
      runtimes.DEFAULT,
      'runtime that executes TFF computations',
      choices=runtimes.names(),
    ),
    hp.Hyperparameter(
      'device',
      '',
      "devices that train clients: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1';"
      ' default: the GPUs that TensorFlow sees, or the CPU if there are none',
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
      'with --runtime=cluster: seconds without progress after which a worker is stopped and'
      ' other workers train its clients',
      least=1,
    ),
    hp.Hyperparameter(
      'cluster_address',
      '',
      "with --runtime=cluster: address IP:PORT of the head of a running Ray cluster, or 'auto'"
      ' for the cluster on this machine. Default: $RAY_ADDRESS; without it, Ray starts on this'
      ' machine for this run',
    ),
    hp.Hyperparameter(
      'cluster_without_token',
      False,
      'accept a Ray cluster without a token. Such a cluster runs the programs of anybody who can'
      ' reach it',
    ),
    hp.Hyperparameter(
      'target',
      '',
      'scores to reach, METRIC:VALUE separated by commas, such as top1:0.7,mcc:0.5. The run'
      " counts the rounds until it reaches each score. Default: the task's",
    ),
    hp.Hyperparameter(
      'best_by',
      '',
      'score that chooses the best round, such as hit@10_validation. A score of test examples'
      " makes the test scores of that round too high. Default: the task's",
    ),
    hp.Hyperparameter(
      'tracker',
      trackers.NONE,
      'experiment tracker that also receives settings, metrics and pictures. mlflow uses'
      ' $MLFLOW_TRACKING_URI, by default a folder of the run, and wandb uses $WANDB_MODE. A'
      ' resumed run may use another tracker',
      choices=trackers.NAMES,
    ),
    hp.Hyperparameter(
      MORE_METRICS,
      '',
      "scores to measure besides the task's, separated by commas:"
      ' top5,hit@3,recall@5,retrieval_recall@1, ...',
    ),
    hp.Hyperparameter(
      START_FROM,
      '',
      'run directory or folder of `launch.export --format=npz` that gives the initial encoder'
      ' and class rows; default: random weights',
    ),
    hp.Hyperparameter(
      START_FROM_ROWS,
      SAME_NAMES,
      "class rows to take from --start_from: 'same_names', the rows of classes that have the"
      " same name there; 'none', no rows, so all class rows start at random",
      choices=(SAME_NAMES, 'none'),
    ),
    _setting(
      'early_stopping_patience',
      0,
      'stop after this many evaluations without a better --best_by; 0: never stop early',
    ),
    hp.Hyperparameter(
      'client_test_fraction',
      0.0,
      "share of each client's examples that is held out of training to score single clients."
      ' Drawn with --data_seed, or with seed 0 if the task has no such option',
      least=0,
      most=0.5,
    ),
    hp.Hyperparameter(
      'unseen_clients',
      0.0,
      'share of the clients that is held out of training, to score clients that the model has'
      ' not seen. Drawn with --data_seed',
      least=0,
      most=0.9,
    ),
    hp.Hyperparameter(
      'dp_epsilon',
      0.0,
      'with --dp: epsilon of the model after all rounds, from which --dp_noise_multiplier is'
      ' computed. 0: --dp_noise_multiplier sets the noise',
      least=0,
    ),
    _setting(
      'evaluate_clients',
      0,
      'number of training clients that score the model on their own held-out examples at every'
      ' evaluation. Drawn with --seed. 0: none',
    ),
    hp.Hyperparameter(
      'data_dir',
      os.environ.get(DATA_VARIABLE, DEFAULT_DATA_DIR),
      f'directory of all data sets, or your own data; default: ${DATA_VARIABLE}',
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
  """Returns a run's configuration as `resolve` returns it, from its config.json.

  Files of initial weights and of class probabilities are left out. A checkpoint has all
  weights, and only training needs the probabilities.
  """
  task, algorithm = config['task'], config['algorithm']
  taken = {*SETTINGS, *tasks.OPTIONS, *algorithms.HYPERPARAMETERS}
  taken |= {*config.get('options', {}), *config.get('hyperparameters', {})}
  given = {
    name: value
    for name, value in run_files.flat(without_importance(config)).items()
    if name in taken - _OF_START and value is not None
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
    changes |= more


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
  metrics = (*task.metrics, *_more_metrics(values))
  if values['evaluate_clients']:
    metrics = (*metrics, *catalog.OF_CLIENTS)
  targets_lib.parse(values['target'], metrics)
  targets_lib.check_best(values['best_by'], values['early_stopping_patience'], metrics)
  if START_FROM_ROWS in given and not values[START_FROM]:
    raise errors.InputError(f'--{START_FROM_ROWS} goes with --{START_FROM}; leave it out')
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


def _more_metrics(settings: Mapping) -> list[str]:
  """Returns the metrics of --more_metrics, which are measured besides the task's."""
  text = settings.get(MORE_METRICS, '')
  names = [name.strip() for name in text.split(',')] if text else []
  for name in names:
    if name not in catalog.SCORES:
      meant = wording.meant(name, catalog.SCORES)
      raise errors.InputError(
        f'--{MORE_METRICS}: there is no score {name}{meant}; `python -m launch.list'
        ' metrics` lists them'
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
  """Refuses label sets and invalid files of class probabilities before the data are read."""
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


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A configuration with its data and its algorithm."""

  config: Mapping[str, Any]  # The configuration from `resolve`.
  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  metrics: tuple[str, ...]  # The metrics that the data allow, the headline first.
  warnings: tuple[str, ...]  # Warnings about settings and data that are likely to fail.
  run_dir: str = ''  # The run directory that it was assembled for.

  def run(self, run_dir: str) -> dict[str, Any]:
    """Trains or resumes a run in `run_dir`; returns the summary."""
    from tff_xc.experiment import checkpoints, training

    check_private(self.config)
    hidden = self.algorithm.part('dp')
    needs_secret = (
      hidden and self.config['dp_epsilon'] and hidden.needs_secret and hidden.of_clients
    )
    if needs_secret and self.run_dir != run_dir:
      raise ValueError(
        'dp_epsilon depends on which clients participate, and so on the secret of the run: give'
        ' its run_dir when you assemble the experiment'
      )
    drawn_seed = checkpoints.seed_of(hidden, run_dir, self.config['seed'])
    # This check is not in `assemble`, because workers assemble the data but hold no model.
    task_lib.check_memory(
      self.algorithm.model,
      f'the model of {self.dataset.num_classes:,} classes',
      'lower its sizes, or give data with fewer classes',
    )
    return training.train(
      self.algorithm,
      self.dataset,
      run_dir,
      metrics=self.metrics,
      **{name: self.config[name] for name in _OF_TRAINING},
      best=targets_lib.BestRound(
        # No round is chosen if the data cannot measure the default --best_by.
        self.config['best_by'] * (self.config['best_by'] in self.metrics),
        self.config['early_stopping_patience'],
      ),
      config=self.config,
      warnings=self.warnings,
      source=functools.partial(own_values, {**self.config, 'seed': drawn_seed}),
      tracker=self.config['tracker'],
    )


def install_runtime(config: Mapping) -> None:
  """Installs a configuration's runtime; call this before TensorFlow is used."""
  runtimes.install(
    config['runtime'],
    client_threads=config['client_threads'],
    device=config['device'],
    worker_timeout=config['worker_timeout'],
    cluster_address=config['cluster_address'],
    cluster_without_token=config['cluster_without_token'],
  )


def assemble(config: Mapping, data_dir: str | None = None, run_dir: str = '') -> Experiment:
  """Loads the data and the model of a configuration, and builds its algorithm."""
  data_dir = config['data_dir'] if data_dir is None else data_dir
  load = tasks.get(config['task']).load
  return with_data(config, load(data_dir, config['options']), run_dir)


def with_data(config: Mapping, loaded: task_lib.Loaded, run_dir: str = '') -> Experiment:
  """Assembles a configuration with data and a model that may be different from its task's.

  `run_dir` is the directory of the run that trains, which may have a secret seed.
  '': --seed is used.
  """
  task, chosen = tasks.get(config['task']), algorithms.get(config['algorithm'])
  dataset, model = loaded
  # `replace` makes a new model, which computes its sizes again.
  if model.precision != config['precision']:
    model = dataclasses.replace(model, precision=config['precision'])
  options, values = config['options'], dict(config['hyperparameters'])
  dataset = _held_out(config, dataset)
  warnings = dataset.warnings()
  unset = config[same_run.UNSET]
  if 'clients_per_round' in unset:
    warnings += _fit_clients(values, dataset.train.partition)
  warnings += _few_visits(config, values, task, dataset.train.partition)
  default = values.get('negatives')
  chosen.fit(values, values.keys() - {*unset}, dataset.num_classes)
  if values.get('negatives') != default:
    warnings.append(
      f'all {values["negatives"]} other classes are negatives, because the default'
      ' --negatives is larger'
    )
  probabilities = _class_probabilities(values, dataset)
  if values.get('calibration_probabilities'):  # The content of this file may change.
    from tff_xc.data import fingerprint

    checksum = fingerprint.checksum([probabilities])
    config = {**config, same_run.PROBABILITIES: checksum}
  most = dataset.train.largest_label_set * model.rows_per_label
  if model.encoder.tied:
    most = dataset.train.largest_tied_set
  made = chosen(**values)
  algorithm = made.algorithm(
    model,
    max_positives=most,
    num_clients=len(dataset.train.partition),
    class_probabilities=probabilities,
    examples_per_round=options.get('examples_per_round', 0),
  )
  drawn = values.get('virtual_client_size') or options.get('examples_per_round', 0)
  algorithm = _with_feature_rows(algorithm, dataset, options, drawn)
  config, algorithm = _started(config, algorithm, dataset)
  if epsilon := config.get('dp_epsilon'):
    from tff_xc.experiment import epsilon as epsilon_lib

    seed = config['seed']
    if run_dir:
      from tff_xc.experiment import checkpoints

      seed = checkpoints.seed_of(algorithm.part('dp'), run_dir, seed)
    noise = config.get(DP_NOISE) or epsilon_lib.noise_multiplier(
      algorithm, dataset, seed, config['rounds'], epsilon
    )
    config = {**config, DP_NOISE: noise}
    hidden = dataclasses.replace(algorithm.part('dp'), dp_noise_multiplier=noise)
    algorithm = algorithm.with_part(hidden)
  metrics = _metrics(config, task, dataset, algorithm.model)
  warnings += _without_validation(config, task, metrics)
  return Experiment(
    {**config, 'hyperparameters': values},
    dataset,
    algorithm,
    metrics,
    (*warnings, *made.warnings(dataset.num_classes, most)),
    run_dir,
  )


def _held_out(config: Mapping, dataset):
  """Returns the data without the examples and clients that are held out of training."""
  from datasets.splits import hold_out

  options = config['options']
  fraction, unseen = config['client_test_fraction'], config['unseen_clients']
  seed = options.get('data_seed', 0)
  has_own_test = options.get('test_fraction') and not fraction
  if has_own_test:
    dataset = hold_out.with_own_test(dataset, seed)
  if fraction or unseen or has_own_test:
    dataset = hold_out.hold_out_parts(dataset, fraction, unseen, seed)
  return dataset


def _metrics(config: Mapping, task, dataset, model) -> tuple[str, ...]:
  """Returns the metrics to measure. Refuses requested metrics that need other data."""
  asked = _more_metrics(config)
  found = task.metrics_of(dataset, model, asked)
  for name in asked:
    if name not in found or (model.label_sets and name in catalog.OF_ONE_LABEL):
      needs = ' and '.join(catalog.SCORES[name].needs)
      one = ', with one label each' if name in catalog.OF_ONE_LABEL else ''
      raise errors.InputError(
        f'--{MORE_METRICS}={name} needs {needs}{one}, which this data or this model'
        ' does not have; leave it out'
      )
  return found


def _without_validation(config: Mapping, task, metrics) -> list[str]:
  """Returns a warning if the data lack the examples for the task's default --best_by.

  Raises InputError if the user gave such a --best_by or asked for early stopping.
  """
  best_by = config['best_by']
  if not best_by or best_by in metrics:
    return []
  if best_by != task.best_by or config['early_stopping_patience']:
    raise errors.InputError(
      f'--best_by={best_by}: these data do not have the examples that measure this score; give'
      ' another --best_by, or leave out --best_by and --early_stopping_patience'
    )
  return [f'no best round is chosen, because the data have no examples for {best_by}']


def trained_model(
  config: Mapping, description: description_lib.Description
) -> classifier.EmbeddingClassifier:
  """Builds the model of a run from its config.json, without its data."""
  import numpy as np

  task, chosen = tasks.get(config['task']), algorithms.get(config['algorithm'])
  options, values = (config.get(group, {}) for group in ('options', 'hyperparameters'))
  # A checkpoint has all weights.
  options = {**options, **{n: '' for n in options if n == 'encoder_weights'}}
  task.checked_options(options)
  if unknown := values.keys() - {*chosen.names}:
    raise errors.InputError(f'--{min(unknown)} is not a hyper-parameter of {chosen.name}')
  try:
    network = task.network(options, description)
  except KeyError as e:
    raise errors.InputError(f'the option {e} is missing') from e
  made = chosen(**values).algorithm(
    network,
    max_positives=(description.largest_label_set or 1) * network.rows_per_label,
    num_clients=description.num_clients or 1,
    # Only training uses the probabilities. A broadcast needs no memory, whatever number of
    # classes a file claims.
    class_probabilities=np.broadcast_to(1.0, network.num_classes),
  )
  return made.model


def _fit_clients(values: dict, partition) -> list[str]:
  """Lowers a default --clients_per_round to the number of clients; returns warnings."""
  clients, count = len(partition), values['clients_per_round']
  if values.get('virtual_client_size'):
    if values['virtual_client_replace']:
      return []
    clients = int((partition.sizes > 0).sum())  # Clients without examples are never drawn.
  if not 0 < clients < count:
    return []
  values['clients_per_round'] = clients
  return [
    f'a round has all {wording.count(clients, "client")}, because the default'
    f' --clients_per_round={count} is larger'
  ]


def _few_visits(config: Mapping, values: Mapping, task, partition) -> list[str]:
  """Warns if clients participate so rarely that the model learns little.

  There is no warning for a paper's task with its own numbers of rounds and clients.
  """
  rounds, each = config['rounds'], values.get('clients_per_round', 0)
  is_papers = not task.data_is_named and 'num_clients' not in config['options']
  is_papers &= (rounds, each) == (task.rounds, task.clients_per_round)
  clients = int((partition.sizes > 0).sum())
  if is_papers or not 0 < rounds * each < FEW_VISITS * clients:
    return []
  return [
    f'each client participates in only {rounds * each / clients:.1f} rounds on average, so most'
    f' class rows will hardly learn: give --rounds={-(-FEW_VISITS * clients // each)} or more, or'
    ' raise --clients_per_round; `launch.plan` compares both'
  ]


def _class_probabilities(values: Mapping, dataset):
  """Returns unnormalized class probabilities, float64 [n], or None if no option needs them."""
  import numpy as np

  from datasets.readers import class_probabilities

  chosen = values.get('importance_weights')
  if values.get('calibration') == calibration.PRIOR:
    chosen = values.get('calibration_probabilities') or importance.OF_TRAIN
  if chosen == importance.OF_TRAIN:
    _, labels = dataset.train.owned_labels()
    return np.bincount(labels, minlength=dataset.num_classes).astype(float)
  if chosen in (None, *importance.NAMED):
    return None
  return class_probabilities.read(chosen, dataset.num_classes, dataset.class_names)


def _with_feature_rows(algorithm, dataset, options: Mapping, drawn: int):
  """Returns the algorithm with the task's options for feature tables."""
  from tff_xc.round import algorithm as algorithm_lib, optimizers

  rate = options.get('feature_learning_rate')
  optimizer = rate and optimizers.RowMomentum(rate)
  for name, table in algorithm.model.encoder.tables.items():
    most = 0
    if algorithm.has_clients and options['select_features']:
      most = dataset.train.largest_feature_set(drawn)
    algorithm = algorithm_lib.own_rows(algorithm, name, min(most, table.num_rows), optimizer)
  return algorithm


def _started(config: Mapping, algorithm, dataset):
  """Returns the configuration and the algorithm with the initial weights of --start_from."""
  path = config[START_FROM]
  if not path:
    return config, algorithm
  from tff_xc.experiment import start

  source = start.read(path)
  start.check_features(dataset.preprocessing, dataset.class_names, source, path)
  model, checksum, told = start.started(
    algorithm.model, dataset.class_names, source, path, config[START_FROM_ROWS] == SAME_NAMES
  )
  print(told, file=sys.stderr)
  config = {**config, same_run.STARTED: checksum}
  return config, dataclasses.replace(algorithm, model=model)


def own_values(config: Mapping, data_dir: str):
  """Reads a worker's copy of a run's data. The configuration's seed draws the cohorts."""
  from tff_xc.data import fingerprint
  from tff_xc.experiment import storage

  found = assemble({**without_importance(config), START_FROM: ''}, data_dir)
  # The watch starts before the fingerprint, so no change of the files is missed.
  watch = storage.Watch(found.dataset.train.pool.files)
  cohorts = found.algorithm.sampling.cohorts(found.dataset, config['seed'])
  values_of = functools.lru_cache(2)(lambda number: cohorts(number).examples)
  return fingerprint.fingerprint(found.dataset), values_of, watch.check


def without_importance(config: Mapping) -> dict[str, Any]:
  """Returns a configuration without files of class probabilities, which may have moved."""
  values = dict(config.get('hyperparameters', {}))
  if values.get('calibration_probabilities'):
    values = {n: v for n, v in values.items() if not n.startswith('calibration')}
  if values.get('importance_weights', '') not in ('', *importance.NAMED):
    values['importance_weights'] = importance.NONE
  return {**config, 'hyperparameters': values}


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains or resumes a configured run; returns the summary."""
  # Every check of the input precedes the first write.
  check_private(config)
  if config[START_FROM] and not os.path.isdir(config[START_FROM]):
    raise errors.InputError(
      f'--{START_FROM}={config[START_FROM]} is not a folder; name the directory of a run,'
      ' or an export in npz format'
    )
  same_run.check_config(run_dir, config)
  trackers.check(config['tracker'])
  install_runtime(config)
  if config['precision'] != precision.FLOAT32:
    from tff_xc.runtime.in_process import context

    precision.check(context.visible_devices(config['device']))
  return assemble(config, run_dir=run_dir).run(run_dir)
