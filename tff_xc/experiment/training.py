"""Trains an algorithm on a data set, in the directory of a run."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import environment
from tff_xc import wording
from tff_xc.data import client_data
from tff_xc.data import fingerprint
from tff_xc.experiment import client_states
from tff_xc.experiment import cohort
from tff_xc.experiment import loop
from tff_xc.experiment import progress
from tff_xc.experiment import run_directory
from tff_xc.experiment import same_run
from tff_xc.experiment import storage
from tff_xc.measure import best_round
from tff_xc.measure import catalog
from tff_xc.measure import communication
from tff_xc.measure import evaluation
from tff_xc.measure import skew
from tff_xc.measure import targets as targets_lib
from tff_xc.report import curves
from tff_xc.report import run_files
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import importance
from tff_xc.round import process
from tff_xc.runtime import registry as runtimes

# Bytes of which a run warns.
_MUCH = 10**9
# Attributes of attributes that a description goes into.
_DEPTH = 6


def train(
  algorithm: algorithm_lib.Algorithm,
  dataset: client_data.FederatedDataset,
  run_dir: str | os.PathLike,
  *,
  metrics: Sequence[str],
  rounds: int,
  eval_every: int = 10,
  checkpoint_every: int = 0,
  seed: int = 0,
  target: str = '',
  best: best_round.Choice = best_round.NO_CHOICE,
  config: Mapping[str, Any] | None = None,
  warnings: Sequence[str] = (),
  source: Callable[[str], tuple] | None = None,
) -> dict[str, Any]:
  """Trains, evaluates and writes everything about the run, or resumes it.

  Install a runtime first (`runtime.registry.install`). It returns summary.json.

  Args:
    algorithm: with its `sampling`.
    dataset: the clients and the held-out examples.
    run_dir: of the run. The same call resumes a run that stopped.
    metrics: names in `measure.catalog.SCORES`, the headline first.
    rounds: of the whole run.
    eval_every: rounds between evaluations.
    checkpoint_every: rounds between checkpoints; 0: `eval_every`.
    seed: of the initial weights and all random draws.
    target: scores to which the summary counts the rounds: 'top1:0.7,mcc:0.5'.
    best: chooses the summary's best round, and may stop the run.
    config: further settings for config.json; only the same run is resumed.
    warnings: about the settings; printed, and kept in the summary.
    source: of the data for workers that have a copy, see `runtime.registry`.

  Raises:
    errors.InputError: `run_dir` or `target` does not fit, or training fails.
    ValueError: the algorithm lacks sampling, or does not fit data or metrics.
  """
  _check(algorithm, dataset, metrics, rounds, best)
  saves = checkpoint_every or eval_every
  schedule = progress.Schedule(rounds, eval_every, saves)
  config = {**(config or {}), 'seed': seed, 'target': target}
  config = _whole_config(config, best, algorithm, dataset, metrics, schedule)
  same_run.check_config(run_dir, config)
  kept = algorithm.client_state
  owners, labels = dataset.train.owned_labels()
  shape = len(dataset.train.partition), dataset.num_classes
  with _cohorts(algorithm, dataset, config, source) as cohorts:
    summary = loop.run(
      targets=targets_lib.parse(target, metrics),
      process=process.build_process(algorithm, seed),
      cohorts=cohorts,
      evaluate=evaluation.Evaluator(algorithm.model, dataset, metrics),
      metrics=tuple(metrics),
      messages=communication.messages(algorithm),
      schedule=schedule,
      directory=_directory(run_dir, config, dataset),
      best=best,
      warnings=[*warnings, *_large_states(algorithm, dataset, run_dir)],
      client_states=kept and client_states.ClientStates(kept.spec, run_dir),
      facts={'emd': skew.emd(skew.class_counts(owners, labels, shape))},
    )
  draw_curves(run_dir)
  return summary


def draw_curves(run_dir: str | os.PathLike) -> None:
  """Draws curves.png of a run's directory."""
  picture = pathlib.Path(run_dir) / run_directory.CURVES
  with storage.writing(picture):
    curves.plot_run(run_files.read_run(run_dir), picture)


def _cohorts(algorithm, dataset, config, source):
  """Returns a context of round -> cohort, read ahead if examples are decoded."""
  runtimes.offer_data(source, config['data'])
  cohorts = algorithm.sampling.cohorts(dataset, config['seed'])
  if not dataset.train.pool.is_decoded:
    return contextlib.nullcontext(cohorts)
  return cohort.ahead(cohorts, config['rounds'])


def _directory(run_dir, config, dataset) -> run_directory.RunDirectory:
  """Opens the run's directory, and writes the classes' names into it."""
  files = dataset.train.pool.files
  directory = run_directory.RunDirectory(run_dir, config, files)
  if dataset.class_names is not None:
    _, labels = dataset.train.owned_labels()
    counts = np.bincount(labels, minlength=dataset.num_classes)
    directory.write_classes(dataset.class_names, counts)
  return directory


def _large_states(algorithm, dataset, run_dir) -> list[str]:
  """Returns a warning if what clients keep may fill a disk."""
  if algorithm.client_state is None:
    return []
  each = sum(
    s.shape.num_elements() * s.dtype.size
    for s in tf.nest.flatten(algorithm.client_state.spec)
  )
  clients = len(dataset.train.partition)
  if each * clients < _MUCH:
    return []
  folder = os.path.join(run_dir, client_states.FOLDER)
  return [
    f'each client that takes part keeps {wording.human_bytes(each)} in {folder},'
    f' {wording.human_bytes(each * clients)} for all {clients:,}, and its older'
    ' ones for up to three checkpoints'
  ]


def _whole_config(
  config: dict, best, algorithm, dataset, metrics, schedule
) -> dict[str, Any]:
  """Returns what config.json records."""
  if 'hyperparameters' not in config:
    fields = [field.name for field in dataclasses.fields(algorithm)]
    answers = {name: describe(getattr(algorithm, name)) for name in fields}
    answers['metrics'] = ', '.join(metrics)
    config['hyperparameters'] = answers
  if 'versions' not in config:
    config |= environment.describe()
  target = importance.target_of(algorithm)
  if target is not None:  # Of a file, whose content may change.
    config[same_run.PROBABILITIES] = fingerprint.checksum([target])
  return {
    'task': dataset.name,
    'algorithm': 'own',
    **config,
    'best_by': best.metric,
    'stop_after': best.stop_after,
    **dataclasses.asdict(schedule),
    'data': fingerprint.fingerprint(dataset),
  }


def _check(algorithm, dataset, metrics, rounds, best) -> None:
  """Raises ValueError for what would fail only later."""
  if algorithm.sampling is None:
    raise ValueError(
      'the algorithm has no sampling: who takes part in a round?'
    )
  if rounds < 1 or not metrics:
    raise ValueError('give at least one round and one metric')
  if best.metric and best.metric not in metrics:
    raise ValueError(f'best is by {best.metric!r}, which is no metric here')
  if best.stop_after and not best.metric:
    raise ValueError('to stop after some evaluations needs a metric')
  taken = {*catalog.SCORES, *catalog.ROUND}
  clash = {n for t in algorithm.tables for n in t.metrics} & taken
  if clash:
    raise ValueError(f"a run has a metric {min(clash)!r}; rename the step's")
  model, y = algorithm.model, dataset.train.pool.y
  if model.label_sets != scipy.sparse.issparse(y):
    raise ValueError(
      f'label_sets of the model is {model.label_sets}, and the training examples'
      f' have {"one label" if model.label_sets else "sets of labels"}'
    )
  if model.num_classes != dataset.num_classes:
    raise ValueError(
      f'the model has {model.num_classes} classes, the data'
      f' {dataset.num_classes}'
    )


def describe(value: Any, depth: int = 0) -> str:
  """Returns a text that is equal for equal answers, in every process.

  Functions are described by their names and by the values that they captured,
  objects by their types and attributes.
  """
  inner = lambda part: describe(part, depth + 1)
  if value is None or isinstance(value, bool | int | float | str):
    return repr(value)
  if depth > _DEPTH:
    return type(value).__name__
  if isinstance(value, Mapping):
    parts = [f'{key}={inner(part)}' for key, part in value.items()]
    return f'{{{", ".join(parts)}}}'
  if isinstance(value, list | tuple):
    return f'({", ".join(map(inner, value))})'
  if isinstance(value, np.ndarray | tf.Tensor | tf.TensorSpec):
    return f'{np.dtype(value.dtype.name)}{list(value.shape)}'
  if callable(value) and hasattr(value, '__qualname__'):
    cells = [c.cell_contents for c in getattr(value, '__closure__', None) or ()]
    return (
      f'{value.__module__}.{value.__qualname__}({", ".join(map(inner, cells))})'
    )
  attributes = sorted(getattr(value, '__dict__', {}).items())
  if dataclasses.is_dataclass(value):  # Without what it has cached.
    fields = [field.name for field in dataclasses.fields(value)]
    attributes = [(name, getattr(value, name)) for name in fields]
  parts = [f'{name}={inner(part)}' for name, part in attributes]
  return f'{type(value).__qualname__}({", ".join(parts)})'
