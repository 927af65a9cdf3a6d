"""Experiments: a task, an algorithm and changes, resolved and assembled.

  config = experiment.resolve('omniglot', 'fedss', {'negatives': 40})
  summary = experiment.run(config, 'runs/mine')

`launch.train` takes the changes as flags. `assemble` and `run` import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from tasks import fitting
from tasks import registry as tasks
from tasks import run_settings
from tasks import task as task_lib
from tasks import trust
from tff_xc import environment
from tff_xc import errors
from tff_xc.algorithms import options as of_algorithms
from tff_xc.algorithms import registry as algorithms
from tff_xc.experiment import same_run
from tff_xc.measure import best_round
from tff_xc.measure import targets as targets_lib
from tff_xc.report import run_files
from tff_xc.runtime import registry as runtimes

if TYPE_CHECKING:
  from tff_xc.data import client_data
  from tff_xc.round import algorithm as algorithm_lib

_OF_TRAINING = ('rounds', 'eval_every', 'checkpoint_every', 'seed', 'target')


def resolve(
  task: str, algorithm: str, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """Returns a run's configuration: every setting, as in config.json.

  Args:
    task: its name.
    algorithm: its name.
    changes: values by name of `run_settings.SETTINGS`, of the task's options and of the
      algorithm's hyper-parameters; others get their defaults.

  Raises:
    errors.InputError: a name is unknown or does not apply, or a value is out of
      bounds.
  """
  found, entry = tasks.get(task), algorithms.get(algorithm)
  fitting.check(found, entry)
  given = dict(changes or {})
  of_run = {n: given.pop(n) for n in list(given) if n in run_settings.SETTINGS}
  settings = _settings(of_run, found)
  chosen = {n: given.pop(n) for n in list(given) if n in task_lib.OPTIONS}
  options = _options(found, entry, chosen)
  if 'clients_per_round' in given and not entry.has_clients:
    raise errors.InputError(
      f'--clients_per_round does not apply to {algorithm}, which has no clients'
    )
  values = entry.resolve(given, found.hyperparameters(entry))
  num_classes = found.known_classes(options, settings['data_dir'])
  fitting.fit(found, settings, options, values, changes or {}, num_classes)
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

  Values are checked as flags are, and settings that an older run lacks have
  today's defaults. Initial weights and FedIR's p are left out: a checkpoint has
  all weights, and nothing but training needs them.

  Args:
    config: of config.json.

  Raises:
    errors.InputError: as `resolve`.
  """
  given = run_files.flat(without_importance(config))
  taken = {
    *run_settings.SETTINGS,
    *task_lib.OPTIONS,
    *algorithms.HYPERPARAMETERS,
  }
  taken |= {*config.get('options', {}), *config.get('hyperparameters', {})}
  given = {
    name: value
    for name, value in given.items()
    if name in taken - {'encoder_weights'} and value is not None
  }
  # As flags: what has its default was not given, since flags exclude each other.
  changes = {n: v for n, v in given.items() if n == 'data_dir'}
  while True:
    resolved = resolve(config['task'], config['algorithm'], changes)
    found = run_files.flat(resolved)
    more = {
      name: value
      for name, value in given.items()
      if name not in changes and (name not in found or found[name] != value)
    }
    if not more:
      return resolved
    changes |= more


def _settings(given: Mapping, task: task_lib.Task) -> dict[str, Any]:
  given = {
    name: run_settings.SETTINGS[name].checked(v) for name, v in given.items()
  }
  task.check_data_dir(given.get('data_dir'))
  values = {
    name: setting.default for name, setting in run_settings.SETTINGS.items()
  }
  values |= {'rounds': task.rounds, 'eval_every': task.eval_every}
  values |= {'target': ','.join(task.targets), 'best_by': task.best_by} | given
  targets_lib.parse(values['target'], task.metrics)
  best_round.check(values['best_by'], values['stop_after'], task.metrics)
  values['checkpoint_every'] = given.get(
    'checkpoint_every', values['eval_every']
  )
  return values


def _options(task: task_lib.Task, entry, given: Mapping) -> dict[str, Any]:
  options = fitting.checked_options(task, given)
  for name in given:
    if name in task_lib.OF_CLIENTS and not entry.has_clients:
      raise errors.InputError(
        f'--{name} does not apply to {entry.name}, which has no clients'
      )
  fitting.check_logits(options, given, entry)
  task.check(options)
  classes, dim = task.known_classes(options), options.get('embedding_dim', 1)
  if classes and classes * dim > fitting.MOST_FLOATS:
    raise errors.InputError(
      f'--embedding_dim={dim}: a table of {classes:,} classes with rows of'
      f' this length has more than {fitting.MOST_FLOATS:,} numbers (8 GiB); lower'
      ' it, or the number of classes'
    )
  return options


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A configuration with its data and its algorithm.

  Attributes:
    config: from `resolve`.
    dataset: the clients and the held-out examples.
    algorithm: the answers to the four questions.
    metrics: names of the metrics that it can measure, the headline first.
    warnings: sentences about settings that are likely to fail, and about data
      that are likely to be wrong.
  """

  config: Mapping[str, Any]
  dataset: client_data.FederatedDataset
  algorithm: algorithm_lib.Algorithm
  metrics: tuple[str, ...]
  warnings: tuple[str, ...]

  def run(self, run_dir: str) -> dict[str, Any]:
    """Trains in `run_dir`, or resumes; returns the summary.

    Raises:
      errors.InputError: as `tff_xc.experiment.training.train`; or the free memory
        cannot hold the model.
    """
    from tff_xc.experiment import training

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
      best=best_round.Choice(self.config['best_by'], self.config['stop_after']),
      config=self.config,
      warnings=self.warnings,
      source=functools.partial(own_values, dict(self.config)),
    )


def install_runtime(config: Mapping) -> None:
  """Installs a configuration's runtime; call this before TensorFlow is used."""
  runtimes.install(
    config['runtime'],
    client_threads=config['client_threads'],
    device=config['device'],
    worker_timeout=config.get('worker_timeout', runtimes.WORKER_TIMEOUT),
  )


def assemble(config: Mapping, data_dir: str | None = None) -> Experiment:
  """Loads a configuration's data and model, and asks the algorithm.

  Args:
    config: from `resolve` or `recorded`.
    data_dir: where the data are; None: as configured.

  Raises:
    errors.InputError: the data are missing or damaged, or do not fit.
  """
  data_dir = config['data_dir'] if data_dir is None else data_dir
  load = tasks.get(config['task']).load
  return with_data(config, load(data_dir, config['options']))


def with_data(config: Mapping, loaded: task_lib.Loaded) -> Experiment:
  """Assembles a configuration with data and model that need not be its task's.

  Args:
    config: from `resolve`.
    loaded: the data and the model.
  """
  task, entry = tasks.get(config['task']), algorithms.get(config['algorithm'])
  dataset, model = loaded
  options, values = config['options'], dict(config['hyperparameters'])
  warnings = dataset.warnings()
  unset = config.get(same_run.UNSET, ())
  if 'clients_per_round' in unset:
    warnings += _fit_clients(values, dataset.train.partition)
  if 'negatives' in unset and values['negatives'] >= dataset.num_classes:
    values['negatives'] = dataset.num_classes - 1
    warnings.append(
      f'all other classes are negatives, {values["negatives"]}: the default'
      ' --negatives is more than there are'
    )
  most = dataset.train.largest_label_set * model.rows_per_label
  algorithm = entry.algorithm(
    values,
    model=model,
    max_positives=most,
    class_probabilities=_class_probabilities(
      values.get('importance_weights'), dataset
    ),
  )
  drawn = values.get('virtual_clients') or options.get('examples_per_round', 0)
  if entry.has_clients:
    algorithm = _with_clients(algorithm, values, drawn)
  algorithm = _with_feature_rows(algorithm, dataset, options, drawn)
  return Experiment(
    {**config, 'hyperparameters': values},
    dataset,
    algorithm,
    task.metrics_of(dataset, algorithm.model),
    (*warnings, *entry.warn(values, dataset.num_classes, most)),
  )


def _fit_clients(values: dict, partition) -> list[str]:
  """Lowers a default --clients_per_round to the clients there are; returns why."""
  clients, count = len(partition), values['clients_per_round']
  if values.get('virtual_clients'):
    if values['virtual_clients_replace']:
      return []
    clients = int((partition.sizes > 0).sum())  # Others are never drawn.
  if not 0 < clients < count:
    return []
  values['clients_per_round'] = clients
  return [
    f'all {clients:,} clients take part in a round: the default'
    f' --clients_per_round={count} is more than there are'
  ]


def _class_probabilities(chosen: str | None, dataset):
  """Returns FedIR's p up to a factor, float64 [n], or None if it is not asked for."""
  import numpy as np

  from datasets import class_probabilities

  if chosen == of_algorithms.OF_TRAIN:
    _, labels = dataset.train.owned_labels()
    return np.bincount(labels, minlength=dataset.num_classes).astype(float)
  if chosen in (None, *of_algorithms.NAMED_IMPORTANCE):
    return None
  return class_probabilities.read(
    chosen, dataset.num_classes, dataset.class_names
  )


def _with_clients(algorithm, values: Mapping, drawn: int):
  """Returns the algorithm with its sampling; clients draw so many examples."""
  from tff_xc.experiment import cohort

  count = values['clients_per_round']
  if values.get('virtual_clients'):
    made = cohort.virtual_clients(
      algorithm, count, drawn, values['virtual_clients_replace']
    )
  else:
    made = dataclasses.replace(
      algorithm, sampling=cohort.UniformClients(count, drawn)
    )
  return cohort.with_dropout(made, values['client_dropout'])


def _with_feature_rows(algorithm, dataset, options: Mapping, drawn: int):
  """Returns the algorithm with the task's options of feature tables."""
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import optimizers

  for name, table in algorithm.model.encoder.tables.items():
    most = 0
    if algorithm.has_clients and options['select_features']:
      most = dataset.train.largest_feature_set(drawn)
    algorithm = algorithm_lib.own_rows(
      algorithm,
      name,
      min(most, table.num_rows),
      optimizers.RowMomentum(options['feature_learning_rate']),
    )
  return algorithm


def own_values(config: Mapping, data_dir: str):
  """Reads a run's data for a worker that has a copy.

  Args:
    config: of the run.
    data_dir: where the worker's copy is.

  Returns:
    (the data's fingerprint, round -> the sequence of its clients' values, a check
    that refuses data whose files have changed since), see `runtime.registry`.
  """
  from tff_xc.data import fingerprint
  from tff_xc.experiment import storage

  found = assemble(without_importance(config), data_dir)
  # It begins before the data are compared with the run's.
  watch = storage.Watch(found.dataset.train.pool.files)
  cohorts = found.algorithm.sampling.cohorts(found.dataset, config['seed'])
  values_of = functools.lru_cache(2)(lambda number: cohorts(number).examples)
  return fingerprint.fingerprint(found.dataset), values_of, watch.check


def without_importance(config: Mapping) -> dict[str, Any]:
  """Returns a configuration without FedIR's p, which only the driver trains with.

  Its file may be gone, or be on another machine.
  """
  values = dict(config.get('hyperparameters', {}))
  if 'importance_weights' in values:
    values['importance_weights'] = of_algorithms.NO_IMPORTANCE
  return {**config, 'hyperparameters': values}


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains as configured, or resumes; returns the summary.

  Args:
    config: from `resolve`.
    run_dir: the directory of the run.

  Raises:
    errors.InputError: for bad data, or a directory of another run.
  """
  # Every check of the input precedes the first write.
  same_run.check_config(run_dir, config)
  install_runtime(config)
  named = {**config, trust.SIGNATURE: trust.signature(config)}
  return assemble(named).run(run_dir)
