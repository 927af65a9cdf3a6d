"""Experiments: a task, an algorithm and changes, resolved and assembled.

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
# In config.json, the noise multiplier that follows from --dp_epsilon.
DP_NOISE = 'dp_noise'
# Of a client. With fewer, most class rows hardly move from where they start.
FEW_VISITS = 3
# Floats of a table, 8 GiB.
_MOST_FLOATS = 2**31
# Settings that say where a run's data are, which may have moved.
DATA_FILES = ('data_dir', 'split', 'test_file', 'classes')
MORE_METRICS = 'more_metrics'
START_FROM, START_FROM_ROWS = 'start_from', 'start_from_rows'
SAME_NAMES = 'same_names'
# Settings of the first weights, which a checkpoint replaces.
_OF_START = {'encoder_weights', START_FROM, START_FROM_ROWS}

DATA_VARIABLE = 'TFF_XC_DATA'
DEFAULT_DATA_DIR = os.path.join('..', 'shared', 'data')


def _setting(name, default, text, least=0, most=hp.INT32_MAX):
  return hp.Hyperparameter(name, default, text, least=least, most=most)


# Settings of a run that are neither its task's nor its algorithm's; 0: the default of
# the task.
SETTINGS: Mapping[str, hp.Hyperparameter] = {
  setting.name: setting
  for setting in (
    # NumPy's generators accept only seeds below 2³².
    _setting('seed', 0, 'seed of all random draws', most=2**32 - 1),
    _setting('rounds', 0, "number of rounds; default: the task's", 1),
    _setting('eval_every', 0, "rounds between evaluations; default: the task's", 1),
    _setting(
      'checkpoint_every',
      0,
      'rounds between checkpoints. A checkpoint is also written after about five minutes'
      ' without one. Default: eval_every',
      least=1,
    ),
    _setting(
      'client_threads',
      0,
      'number of clients that train at the same time, in each worker of --runtime=cluster; 0:'
      ' one per core',
      most=1024,
    ),
    hp.Hyperparameter(
      'runtime', runtimes.DEFAULT, 'runtime of TFF computations', choices=runtimes.names()
    ),
    hp.Hyperparameter(
      'device',
      '',
      "devices that train clients: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1';"
      ' default: the GPUs that TensorFlow sees, else the CPU',
    ),
    hp.Hyperparameter(
      'precision',
      precision.FLOAT32,
      "number format of the products and logits of clients' networks. bfloat16 needs a CPU with"
      ' AMX or AVX512-BF16, or a GPU',
      choices=precision.NAMES,
    ),
    _setting(
      'worker_timeout',
      runtimes.WORKER_TIMEOUT,
      'with --runtime=cluster: seconds without progress after which a worker is stopped, and'
      ' other workers train its clients',
      least=1,
    ),
    hp.Hyperparameter(
      'cluster_address',
      '',
      "with --runtime=cluster: head of a running Ray cluster, IP:PORT, or 'auto' for the"
      ' cluster on this machine. Default: $RAY_ADDRESS; otherwise Ray starts on this machine for'
      ' this run',
    ),
    hp.Hyperparameter(
      'cluster_without_token',
      False,
      'accept a Ray cluster without a token, which runs the programs of anybody who can reach it',
    ),
    hp.Hyperparameter(
      'target',
      '',
      'scores to reach, METRIC:VALUE with commas between them, such as top1:0.7,mcc:0.5. The'
      " run counts the rounds until it reaches each score. Default: the task's",
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
      "scores to measure besides the task's, with commas between them:"
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
      "class rows to take from --start_from: 'same_names', those of classes that have"
      " the same name there; 'none', so that all class rows start at random",
      choices=(SAME_NAMES, 'none'),
    ),
    _setting(
      'early_stopping_patience',
      0,
      'stop after this many evaluations without a better --best_by; 0: all rounds',
    ),
    hp.Hyperparameter(
      'client_test_fraction',
      0.0,
      "share of each client's examples that is held out of training to score single clients;"
      ' drawn by --data_seed (0 where a task has none)',
      least=0,
      most=0.5,
    ),
    hp.Hyperparameter(
      'unseen_clients',
      0.0,
      'share of the clients that are held out of training, to score clients that the model has'
      ' not seen; drawn by --data_seed',
      least=0,
      most=0.9,
    ),
    hp.Hyperparameter(
      'dp_epsilon',
      0.0,
      'epsilon of the model after all rounds, with --dp. --dp_noise_multiplier is computed from'
      ' it. 0: --dp_noise_multiplier sets the noise',
      least=0,
    ),
    _setting(
      'evaluate_clients',
      0,
      'number of training clients, drawn by --seed, that score the model on their own held-out'
      ' examples at every evaluation; 0: none',
    ),
    hp.Hyperparameter(
      'data_dir',
      os.environ.get(DATA_VARIABLE, DEFAULT_DATA_DIR),
      f"directory of all data sets, or one's own data; default ${DATA_VARIABLE}",
    ),
  )
}


def resolve(task: str, algorithm: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
  """Returns a run's configuration: every setting, as in config.json."""
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

  The first weights and probabilities of classes in a file are left out: a checkpoint
  has all weights, and only training needs them.
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
  """Returns those of the settings `given` with which `resolved` has all of them.

  What has its default is left out, since flags exclude each other.
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
  """Returns the settings of a task's run, those given among them."""
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
  """Refuses settings of a private run that put exact facts about clients' data beside
  its model."""
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
      'is missing: which columns are numbers depends on the cells of single clients',
      'name the columns of features',
    ),
    (
      'classes',
      options.get('classes') == '',
      'is missing: classes that are named by the data alone tell that a client has them',
      'give a FILE of public class names, one a line',
    ),
  ):
    if is_exact:
      raise errors.InputError(f'--{flag} {what}, which --dp={values["dp"]} does not cover; {cure}')


def _more_metrics(settings: Mapping) -> list[str]:
  """Returns the metrics that are asked for besides the task's."""
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
  """Refuses tables that are too large, whatever memory there is."""
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
        f'--{flag}={given[flag]}: a table of {size:,} rows of {row:,} numbers has'
        f' more than {_MOST_FLOATS:,} (8 GiB); lower one of them'
      )


def _check_weights_of_classes(
  task: task_lib.Task, values: Mapping, num_classes: int | None
) -> None:
  """Refuses sets of labels, and a bad file of weights, before the data are read."""
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
    # Only the data say how many classes photographs have, and their names.
    if num_classes is not None and 'corrupt' not in task.option_values():
      from datasets.readers import class_probabilities  # It imports NumPy.

      class_probabilities.read(chosen, num_classes)


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A configuration with its data and its algorithm."""

  config: Mapping[str, Any]  # From `resolve`.
  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  metrics: tuple[str, ...]  # Those that it can measure, the headline first.
  warnings: tuple[str, ...]  # Of settings and data that are likely to fail.
  run_dir: str = ''  # Of the run that it was assembled for.

  def run(self, run_dir: str) -> dict[str, Any]:
    """Trains in `run_dir`, or resumes; returns the summary."""
    from tff_xc.experiment import checkpoints, training

    check_private(self.config)
    hidden = self.algorithm.part('dp')
    needs_secret = (
      hidden and self.config['dp_epsilon'] and hidden.needs_secret and hidden.of_clients
    )
    if needs_secret and self.run_dir != run_dir:
      raise ValueError(
        'dp_epsilon depends on who takes part, and so on the secret of the run: give'
        ' its run_dir when you assemble the experiment'
      )
    drawn_seed = checkpoints.seed_of(hidden, run_dir, self.config['seed'])
    # Not as the data are assembled: a worker reads them, and holds no model.
    task_lib.check_memory(
      self.algorithm.model,
      f'the model of {self.dataset.num_classes:,} classes',
      'lower its sizes, or give data of fewer classes',
    )
    return training.train(
      self.algorithm,
      self.dataset,
      run_dir,
      metrics=self.metrics,
      **{name: self.config[name] for name in _OF_TRAINING},
      best=targets_lib.BestRound(
        # A default by validation, of data that have none, chooses no round.
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
  """Loads a configuration's data and model, and asks the algorithm."""
  data_dir = config['data_dir'] if data_dir is None else data_dir
  load = tasks.get(config['task']).load
  return with_data(config, load(data_dir, config['options']), run_dir)


def with_data(config: Mapping, loaded: task_lib.Loaded, run_dir: str = '') -> Experiment:
  """Assembles a configuration with data and model that need not be its task's.

  `run_dir` is of the run that trains, which may have a secret seed; '': --seed counts.
  """
  task, chosen = tasks.get(config['task']), algorithms.get(config['algorithm'])
  dataset, model = loaded
  # A new model computes its sizes anew.
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
      f'all other classes are negatives, {values["negatives"]}: the default'
      ' --negatives is more than there are'
    )
  probabilities = _class_probabilities(values, dataset)
  if values.get('calibration_probabilities'):  # A file, whose content may change.
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
  """Returns the task's metrics and those asked for; refuses what needs more data."""
  asked = _more_metrics(config)
  found = task.metrics_of(dataset, model, asked)
  for name in asked:
    if name not in found or (model.label_sets and name in catalog.OF_ONE_LABEL):
      needs = ' and '.join(catalog.SCORES[name].needs)
      one = ', with one label each' if name in catalog.OF_ONE_LABEL else ''
      raise errors.InputError(
        f'--{MORE_METRICS}={name} needs {needs}{one}, which these data or this model'
        ' do not have; leave it out'
      )
  return found


def _without_validation(config: Mapping, task, metrics) -> list[str]:
  """Returns a warning if the task chooses a round by validation that the data lack.

  InputError where the user asks for such a choice.
  """
  best_by = config['best_by']
  if not best_by or best_by in metrics:
    return []
  if best_by != task.best_by or config['early_stopping_patience']:
    raise errors.InputError(
      f'--best_by={best_by}: these data do not have the examples that it is measured'
      ' on; give another --best_by, and leave --early_stopping_patience out if none'
      ' is there'
    )
  return [f'no round is chosen: the data have no examples for {best_by}']


def trained_model(
  config: Mapping, description: description_lib.Description
) -> classifier.EmbeddingClassifier:
  """Returns the model that a run trains, from its config.json and without its data."""
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
    # Of training: no part of a model. One number, however many classes a file claims.
    class_probabilities=np.broadcast_to(1.0, network.num_classes),
  )
  return made.model


def _fit_clients(values: dict, partition) -> list[str]:
  """Lowers a default --clients_per_round to the clients there are; returns why."""
  clients, count = len(partition), values['clients_per_round']
  if values.get('virtual_client_size'):
    if values['virtual_client_replace']:
      return []
    clients = int((partition.sizes > 0).sum())  # Others are never drawn.
  if not 0 < clients < count:
    return []
  values['clients_per_round'] = clients
  return [
    f'a round has all {wording.count(clients, "client")}: the default'
    f' --clients_per_round={count} is more than there are'
  ]


def _few_visits(config: Mapping, values: Mapping, task, partition) -> list[str]:
  """Warns where clients take part so rarely that little is learned.

  Rounds that a task of fixed data has by default are those of its paper.
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
  """Returns p of classes up to a factor, float64 [n], or None if it is not asked for."""
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
  """Returns the algorithm with the task's options of feature tables."""
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
  """Returns the configuration, and the algorithm that starts as --start_from says."""
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
  """Reads a run's data for a worker that has a copy; `seed` draws the cohorts."""
  from tff_xc.data import fingerprint
  from tff_xc.experiment import storage

  found = assemble({**without_importance(config), START_FROM: ''}, data_dir)
  # It begins before the data are compared with the run's.
  watch = storage.Watch(found.dataset.train.pool.files)
  cohorts = found.algorithm.sampling.cohorts(found.dataset, config['seed'])
  values_of = functools.lru_cache(2)(lambda number: cohorts(number).examples)
  return fingerprint.fingerprint(found.dataset), values_of, watch.check


def without_importance(config: Mapping) -> dict[str, Any]:
  """Returns a configuration without the probabilities of a file, which may be elsewhere."""
  values = dict(config.get('hyperparameters', {}))
  if values.get('calibration_probabilities'):
    values = {n: v for n, v in values.items() if not n.startswith('calibration')}
  if values.get('importance_weights', '') not in ('', *importance.NAMED):
    values['importance_weights'] = importance.NONE
  return {**config, 'hyperparameters': values}


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains as configured, or resumes; returns the summary."""
  # Every check of the input precedes the first write.
  check_private(config)
  if config[START_FROM] and not os.path.isdir(config[START_FROM]):
    raise errors.InputError(
      f'--{START_FROM}={config[START_FROM]} is no folder; name the directory of a run,'
      ' or an export of the form npz'
    )
  same_run.check_config(run_dir, config)
  trackers.check(config['tracker'])
  install_runtime(config)
  if config['precision'] != precision.FLOAT32:
    from tff_xc.runtime.in_process import context

    precision.check(context.visible_devices(config['device']))
  return assemble(config, run_dir=run_dir).run(run_dir)
