"""Trains a run from its resolved configuration. Imports TensorFlow."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tasks import registry as tasks
from tasks import task as task_lib
from tff_xc.algorithms import build
from tff_xc.algorithms import registry as algorithms
from tff_xc.data import fingerprint
from tff_xc.experiment import cohort
from tff_xc.experiment import loop as experiment
from tff_xc.experiment import run_directory
from tff_xc.measure import communication
from tff_xc.measure import evaluation
from tff_xc.report import curves
from tff_xc.report import groups
from tff_xc.report import run_files
from tff_xc.report import tables
from tff_xc.report import text_table
from tff_xc.runtime import registry as runtimes


def _sampling(config: Mapping) -> cohort.UniformClients | cohort.IidBatches:
  if algorithms.get(config['algorithm']).cohort == 'uniform':
    return cohort.UniformClients(
      config['clients_per_round'],
      config['options'].get('examples_per_round', 0),
    )
  values = config['hyperparameters']
  return cohort.IidBatches(values['batch_size'], values['steps_per_round'])


def _messages(config: Mapping, model) -> experiment.Messages:
  algorithm = algorithms.get(config['algorithm'])
  sizes = communication.MessageSizes(
    model.encoder_bytes(), model.row_dim * tf.float32.size
  )
  if _selects_features(config):
    table = model.weight_specs().encoder[model.encoder.feature_table]
    sizes = communication.with_feature_rows(sizes, *table.shape)
  return experiment.Messages(
    sizes=sizes,
    requests_all=not algorithm.selects_rows,
    sends_rows=algorithm.sends_rows,
    num_classes=model.num_classes,
    row_dim=model.row_dim,
    crosses=algorithm.cohort != 'pooled',
  )


def install_runtime(config: Mapping) -> None:
  """Installs a configuration's runtime; call this before TensorFlow is used."""
  runtimes.install(
    config['runtime'],
    client_threads=config.get('client_threads', 0),
    device=config.get('device', ''),
  )


def build_process(config: Mapping, loaded: task_lib.Loaded):
  """Returns the learning process of a configuration."""
  options, encoder = config['options'], loaded.model.encoder
  max_features = 0
  if _selects_features(config):
    drawn = options['examples_per_round']
    max_features = min(
      loaded.dataset.train.largest_feature_set(drawn),
      encoder.example_spec.num_features,
    )
  return build.build(
    config['algorithm'],
    config['hyperparameters'],
    model=loaded.model,
    max_positives=loaded.dataset.train.largest_label_set,
    max_features=max_features,
    feature_learning_rate=options.get('feature_learning_rate', 1.0),
    seed=config['seed'],
  )


def _selects_features(config: Mapping) -> bool:
  clients = algorithms.get(config['algorithm']).cohort != 'pooled'
  return clients and config['options'].get('select_features', False)


def load(
  config: Mapping, data_dir: str
) -> tuple[task_lib.Loaded, dict[str, Any]]:
  """Returns a configuration's data and model, and the data's fingerprint."""
  loaded = tasks.get(config['task']).load(data_dir, config['options'])
  return loaded, fingerprint.fingerprint(loaded.dataset)


def run(config: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
  """Trains as configured, in `run_dir`; prints and returns the summary."""
  # Every check of the input precedes the first write.
  run_directory.check_config(run_dir, config)
  install_runtime(config)
  loaded, data = load(config, config['data_dir'])
  config = {**config, 'data': data}
  run_directory.check_config(run_dir, config)
  process = build_process(config, loaded)
  cohorts = _sampling(config).cohorts(loaded.dataset, config['seed'])
  warnings = build.warnings(
    config['algorithm'],
    config['hyperparameters'],
    num_classes=loaded.model.num_classes,
    clients_per_round=config['clients_per_round'],
    max_positives=loaded.dataset.train.largest_label_set,
  )
  metrics = tasks.get(config['task']).metrics_of(loaded.dataset)
  directory = run_directory.RunDirectory(run_dir, config)
  summary = experiment.run(
    process=process,
    cohorts=cohorts,
    evaluate=evaluation.Evaluator(loaded.model, loaded.dataset, metrics),
    metrics=metrics,
    messages=_messages(config, loaded.model),
    schedule=experiment.Schedule(
      config['rounds'], config['eval_every'], config['checkpoint_every']
    ),
    directory=directory,
    warnings=warnings,
  )
  finished = run_files.read_run(run_dir)
  curves.plot_run(finished, directory.path / run_directory.CURVES)
  rows = tables.build_rows(groups.group_runs([finished]))
  width = text_table.terminal_width()
  print(tables.to_text(rows, width, elsewhere='summary.json'))
  print(f'curves: {directory.path / run_directory.CURVES}')
  return summary
