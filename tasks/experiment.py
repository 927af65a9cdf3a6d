"""Runs experiments: assembles a configuration's data, model and algorithm, and trains.

  config = configuration.resolve('omniglot', 'fedss', {'negatives': 40})
  summary = experiment.run(config, 'runs/mine')

`assemble` and `run` import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks import configuration, registry as tasks, task as task_lib
from tff_xc import errors, precision, wording
from tff_xc.algorithms import registry as algorithms
from tff_xc.experiment import same_run, trackers
from tff_xc.lazy import np, sparse
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import calibration, importance
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


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A configuration with its data and its algorithm."""

  config: Mapping[str, Any]  # From `configuration.resolve`.
  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  metrics: tuple[str, ...]  # The metrics that the data allow. The headline metric is first.
  warnings: tuple[
    str, ...
  ]  # Warnings about settings and data with which training probably works badly.
  run_dir: str = ''  # The run directory for which the experiment was assembled.

  def run(self, run_dir: str) -> dict[str, Any]:
    """Trains or resumes a run in `run_dir`; returns the summary."""
    from tff_xc.experiment import checkpoints, training

    configuration.check_private(self.config)
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
        self.config['best_by'] * _is_measured(self.config['best_by'], self.metrics),
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
  """Assembles a configuration with the data and model `loaded`, without loading its task's.

  `run_dir` is the directory of the run that trains. A private run has a secret seed there. If
  `run_dir` is '', --seed is used.
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
  if values.get('calibration_probabilities'):  # A checksum detects changes of this file.
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
    noise = config.get(configuration.DP_NOISE) or epsilon_lib.noise_multiplier(
      algorithm, dataset, seed, config['rounds'], epsilon
    )
    config = {**config, configuration.DP_NOISE: noise}
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
  is_apart = fraction and dataset.test is not None
  if config['best_by'] in catalog.OF_CLIENTS and not is_apart:
    raise errors.InputError(
      f'--best_by={config["best_by"]} would choose by test examples; give'
      ' --client_test_fraction=0.1, and data with other test examples (such as'
      ' --test_fraction=0.2), or another --best_by'
    )
  seed = options.get('data_seed', 0)
  has_own_test = options.get('test_fraction') and not fraction
  if has_own_test:
    dataset = hold_out.with_own_test(dataset, seed)
  if fraction or unseen or has_own_test:
    dataset = hold_out.hold_out_parts(dataset, fraction, unseen, seed)
  return dataset


def _metrics(config: Mapping, task, dataset, model) -> tuple[str, ...]:
  """Returns the metrics to measure. Refuses requested metrics that need other data."""
  asked = configuration.more_metrics(config)
  found = task.metrics_of(dataset, model, asked)
  for name in asked:
    part = catalog.SCORES[name].needs[0]
    pool = dataset.train.pool if part == 'train' else getattr(dataset, part, None)
    has_sets = model.label_sets or (pool is not None and sparse.issparse(pool.labels))
    if name not in found or (has_sets and name in catalog.OF_ONE_LABEL):
      needs = ' and '.join(catalog.SCORES[name].needs)
      one = ', with one label each' if name in catalog.OF_ONE_LABEL else ''
      raise errors.InputError(
        f'--{configuration.MORE_METRICS}={name} needs {needs}{one}, which this data or this model'
        ' does not have; leave it out'
      )
  return found


def _is_measured(best_by: str, metrics) -> bool:
  """Whether a run with `metrics` measures the score `best_by`."""
  # A configuration with a score of single clients has --evaluate_clients, which measures it.
  return best_by in metrics or best_by in catalog.OF_CLIENTS


def _without_validation(config: Mapping, task, metrics) -> list[str]:
  """Returns a warning if the data lack the examples for the task's default --best_by.

  Raises InputError if the user chose a --best_by that the data cannot measure, or asked for early
  stopping.
  """
  best_by = config['best_by']
  if not best_by or _is_measured(best_by, metrics):
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
    # Only training uses the probabilities. A broadcast needs no memory, even if a file claims a
    # huge number of classes.
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

  There is no warning for a paper's task with the task's default rounds and clients per round.
  """
  rounds, each = config['rounds'], values.get('clients_per_round', 0)
  is_papers = not task.data_is_named and 'num_clients' not in config['options']
  is_papers &= (rounds, each) == (task.rounds, task.clients_per_round)
  clients = int((partition.sizes > 0).sum())
  few = configuration.FEW_VISITS * clients
  if is_papers or not 0 < rounds * each < few:
    return []
  return [
    f'each client participates in only {rounds * each / clients:.1f} rounds on average, so most'
    f' class rows will hardly learn: give --rounds={-(-few // each)} or more, or raise'
    ' --clients_per_round; `launch.plan` compares both'
  ]


def _class_probabilities(values: Mapping, dataset):
  """Returns unnormalized class probabilities, float64 [n], or None if no option needs them."""
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
  path = config[configuration.START_FROM]
  if not path:
    return config, algorithm
  from tff_xc.experiment import start

  source = start.read(path)
  model = algorithm.model
  start.check_features(model, dataset.preprocessing, dataset.class_names, source, path)
  model, checksum, told = start.started(
    model,
    dataset.class_names,
    source,
    path,
    config[configuration.START_FROM_ROWS] == configuration.SAME_NAMES,
  )
  print(told, file=sys.stderr)
  config = {**config, same_run.STARTED: checksum}
  return config, dataclasses.replace(algorithm, model=model)


def own_values(config: Mapping, data_dir: str):
  """Reads a worker's copy of a run's data. Cohorts depend on the configuration's seed."""
  from tff_xc.data import fingerprint
  from tff_xc.experiment import storage

  found = assemble(
    {**configuration.without_importance(config), configuration.START_FROM: ''}, data_dir
  )
  # The watch starts before the fingerprint, so no change of the files is missed.
  watch = storage.Watch(found.dataset.train.pool.files)
  cohorts = found.algorithm.sampling.cohorts(found.dataset, config['seed'])
  values_of = functools.lru_cache(2)(lambda number: cohorts(number).examples)
  return fingerprint.fingerprint(found.dataset), values_of, watch.check


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains or resumes a configured run; returns the summary."""
  # Every check of the input precedes the first write.
  configuration.check_private(config)
  source = config[configuration.START_FROM]
  if source and not os.path.isdir(source):
    raise errors.InputError(
      f'--{configuration.START_FROM}={source} is not a folder; name the directory of a run,'
      ' or an export in npz format'
    )
  same_run.check_config(run_dir, config)
  trackers.check(config['tracker'])
  install_runtime(config)
  if config['precision'] != precision.FLOAT32:
    from tff_xc.runtime.in_process import context

    precision.check(context.visible_devices(config['device']))
  return assemble(config, run_dir=run_dir).run(run_dir)
