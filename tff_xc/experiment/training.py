"""Trains an algorithm on a data set, or resumes a run that stopped."""

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import environment, errors, interrupts, wording
from tff_xc.data import client_data, fingerprint
from tff_xc.experiment import (
  ahead,
  checkpoints,
  client_states as client_states_lib,
  epsilon as epsilon_lib,
  progress as progress_lib,
  run_directory,
  same_run,
  storage,
  trackers,
)
from tff_xc.measure import (
  catalog,
  client_scores,
  communication,
  evaluation,
  skew,
  targets as targets_lib,
)
from tff_xc.report import run_files
from tff_xc.round import (
  algorithm as algorithm_lib,
  cohort as cohort_lib,
  examples as examples_lib,
  process as process_lib,
  request,
)
from tff_xc.runtime import client_error, registry as runtimes

# A run prints a warning if the states of all clients may need this many bytes.
_MUCH = 10**9
# How deep `describe` follows nested attributes.
_DEPTH = 6
# A run stops after this many consecutive rounds that dropped every update.
_MOST_LOST = 5
# A run also saves a checkpoint if its last checkpoint is older than this. A killed run then
# loses little work, even if its rounds are slow or its evaluations are rare.
_SAVE_SECONDS = 300.0
# metrics.csv has this column if clients can drop out; see `cohort.Cohort.dropouts`.
_DROPOUTS = 'client_dropouts'
# metrics.csv has this column if some clients attack.
_ATTACKERS = 'client_attackers'


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
  best: targets_lib.BestRound = targets_lib.NO_BEST,
  config: Mapping[str, Any] | None = None,
  warnings: Sequence[str] = (),
  source: Callable[[str], tuple] | None = None,
  tracker: str = trackers.NONE,
  evaluate_clients: int = 0,
) -> dict[str, Any]:
  """Runs or resumes a training run and writes its files. Returns the content of summary.json.

  Install a runtime first (`runtime.registry.install`).

  Args:
    algorithm: the algorithm. Its `sampling` must not be None.
    dataset: the clients and the held-out examples.
    run_dir: the run's directory. If it contains a stopped run, the same call resumes that run.
    metrics: names in `measure.catalog.SCORES`, the main metric first.
    rounds: the number of rounds of the whole run.
    eval_every: the number of rounds between evaluations.
    checkpoint_every: the number of rounds between checkpoints. 0 means `eval_every`. The
      best round by `best` also gets a checkpoint.
    seed: the seed of the initial weights and of all random draws. If the algorithm's part
      'dp' needs a secret seed, only `evaluate_clients` uses `seed`.
    target: target scores, such as 'top1:0.7,mcc:0.5'. The summary has the number of rounds
      to reach each of them.
    best: the metric that chooses the summary's best round, and the rule for early stopping.
    config: additional settings for config.json. A resumed run must have the same settings.
    warnings: warnings about the settings, which are printed and kept in the summary.
    source: a function with which cluster workers read the data from a local copy; see
      `runtime.registry.offer_data`.
    tracker: 'mlflow', 'wandb' or 'none'. A tracker gets settings, metrics and curves.png.
    evaluate_clients: the number of training clients that every evaluation also scores by
      the metrics `catalog.OF_CLIENTS`, each on its own held-out examples. `seed` draws
      these clients.

  Raises:
    errors.InputError: `run_dir` contains a different run, `target` is invalid, or training
      fails.
    ValueError: the algorithm has no sampling, or does not fit the data or the metrics.
  """
  evaluated = None
  if evaluate_clients:
    evaluated = client_scores.drawn(dataset, evaluate_clients, seed)
    metrics = (*metrics, *catalog.OF_CLIENTS)
    config = {**(config or {}), 'evaluate_clients': evaluate_clients}
  schedule = progress_lib.Schedule(rounds, eval_every, checkpoint_every or eval_every)
  _check(algorithm, dataset, metrics, schedule, best)
  config = {**(config or {}), 'seed': seed, 'target': target}
  config = _whole_config(config, best, algorithm, dataset, metrics, schedule)
  same_run.check_config(run_dir, config)
  lasting = (t.request for t in algorithm.tables if t.request.selects)
  lasting = [r for r in lasting if r.secret and r.schedule != request.FRESH]
  is_resumed = lasting and any(checkpoints.kept(run_dir))
  if is_resumed and not run_files.is_finished(
    config, run_files.read_summary(pathlib.Path(run_dir))
  ):
    raise errors.InputError(
      f'{run_dir} cannot resume, because its lasting negatives depend on a secret that is not kept'
      ' (--request_randomness=private); choose another --run_dir'
    )
  privacy = algorithm.part('dp')
  drawn_seed = checkpoints.seed_of(privacy, run_dir, seed)
  kept = algorithm.client_state
  owners, labels = dataset.train.owned_labels()
  shape = len(dataset.train.partition), dataset.num_classes
  baselines = {'baselines': dataset.baselines} if dataset.baselines else {}
  counts = skew.class_counts(owners, labels, shape)
  runtimes.offer_data(source, config['data'])
  cohorts = algorithm.sampling.cohorts(dataset, drawn_seed)
  read_ahead = contextlib.nullcontext(cohorts)
  if dataset.train.pool.is_decoded:
    read_ahead = ahead.Ahead(cohorts, rounds)
  with read_ahead as cohorts:
    parts = {
      'epsilon': privacy and epsilon_lib.of_rounds(algorithm, dataset, drawn_seed),
      'targets': targets_lib.parse(target, metrics),
      'process': process_lib.build_process(algorithm, drawn_seed),
      'evaluate': evaluation.Evaluator(algorithm.model, dataset, metrics, evaluated),
      'messages': communication.messages(algorithm),
    }
    # Open the directory last. If a step above fails, no file is written.
    watched = dataset.train.pool.files
    directory = run_directory.RunDirectory(run_dir, config, watched, tracker)
    with directory.lock, directory.tracked as tracked:
      directory.write(run_files.DESCRIPTION, dataclasses.asdict(dataset.description))
      if dataset.class_names is not None:
        of_class = np.asarray(counts.sum(axis=0)).ravel()
        directory.write_classes(dataset.class_names, of_class)
      if privacy and privacy.needs_secret:
        checkpoints.keep_secret(run_dir, drawn_seed)
      summary = run(
        **parts,
        cohorts=cohorts,
        metrics=tuple(metrics),
        schedule=schedule,
        directory=directory,
        best=best,
        warnings=[*warnings, *_large_states(algorithm, dataset, run_dir)],
        client_states=kept and client_states_lib.ClientStates(kept.spec, run_dir),
        facts={'emd': skew.emd(counts), **baselines},
      )
      draw_curves(run_dir)
      tracked.finish([directory.path / run_directory.CURVES])
  return summary


def draw_curves(run_dir: str | os.PathLike) -> None:
  """Draws curves.png in a run's directory."""
  # This import is slow, so import the module only after training.
  from tff_xc.report import curves

  picture = pathlib.Path(run_dir) / run_directory.CURVES
  with storage.writing(picture):
    curves.plot_run(run_files.read_run(run_dir), picture)


def _large_states(algorithm, dataset, run_dir) -> list[str]:
  """Returns a list of warnings, with one warning if the clients' states may fill a disk."""
  if algorithm.client_state is None:
    return []
  each = sum(
    s.shape.num_elements() * s.dtype.size for s in tf.nest.flatten(algorithm.client_state.spec)
  )
  clients = len(dataset.train.partition)
  if each * clients < _MUCH:
    return []
  folder = os.path.join(run_dir, client_states_lib.FOLDER)
  return [
    f'each participating client keeps {wording.human_bytes(each)} in {folder},'
    f' {wording.human_bytes(each * clients)} for all {clients:,}, and older'
    ' versions for up to four checkpoints'
  ]


def _whole_config(config: dict, best, algorithm, dataset, metrics, schedule) -> dict[str, Any]:
  """Returns the content of config.json."""
  if 'hyperparameters' not in config:
    fields = [field.name for field in dataclasses.fields(algorithm)]
    answers = {name: describe(getattr(algorithm, name)) for name in fields}
    answers['metrics'] = ', '.join(metrics)
    config['hyperparameters'] = answers
  if 'versions' not in config:
    config |= environment.describe()
  for part in algorithm.parts:
    # `beside`, class probabilities, may come from a file that the user changes before resuming.
    if part.beside is not None:
      config[same_run.PROBABILITIES] = fingerprint.checksum([part.beside])
  return {
    'task': dataset.name,
    'algorithm': 'own',
    'best_by': best.metric,
    'early_stopping_patience': best.stop_after,
    **config,
    **dataclasses.asdict(schedule),
    'data': fingerprint.fingerprint(dataset),
  }


def _check(algorithm, dataset, metrics, schedule, best) -> None:
  """Raises ValueError now for arguments that would otherwise fail during training."""
  if algorithm.sampling is None:
    raise ValueError('the algorithm has no sampling: which clients participate in a round?')
  if min(dataclasses.astuple(schedule)) < 1 or not metrics:
    raise ValueError('give periods of at least one round, and one metric')
  if best.metric and best.metric not in metrics:
    raise ValueError(f'best is by {best.metric!r}, which is not among the metrics')
  if best.stop_after and not best.metric:
    raise ValueError('early stopping needs a metric')
  taken = {*catalog.SCORES, *catalog.ROUND}
  clash = {n for t in algorithm.tables for n in t.metrics} & taken
  clash |= {n for part in algorithm.parts for n in part.metrics} & {*catalog.SCORES}
  if clash:
    raise ValueError(f'a run has a metric {min(clash)!r}; rename that of the step or part')
  model = algorithm.model
  if model.label_sets != scipy.sparse.issparse(dataset.train.pool.labels):
    raise ValueError(
      f'label_sets of the model is {model.label_sets}, and the training examples'
      f' have {"one label" if model.label_sets else "sets of labels"}'
    )
  if model.num_classes != dataset.num_classes:
    raise ValueError(
      f'the model has {wording.count(model.num_classes, "class")}, the data {dataset.num_classes}'
    )
  taken, stored = model.encoder.example_spec, dataset.train.pool.spec
  if isinstance(taken, tf.TensorSpec) and not (
    isinstance(stored, tf.TensorSpec) and taken.is_compatible_with(stored)
  ):
    raise ValueError(f'the encoder takes {taken}, and the data have {stored}')


def describe(value: Any, depth: int = 0) -> str:
  """Describes a value by a text. Equal values get equal texts in every process.

  The text of a function consists of its name and captured values. The text of an object
  consists of its type and attributes.
  """

  def inner(part):
    return describe(part, depth + 1)

  if value is None or isinstance(value, bool | int | float | str | request.Secret):
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
  if isinstance(value, np.generic):
    return repr(value.item())
  if isinstance(value, functools.partial):
    return f'partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})'
  if callable(value) and hasattr(value, '__qualname__'):
    cells = [c.cell_contents for c in getattr(value, '__closure__', None) or ()]
    cells += [value.__self__] if inspect.ismethod(value) else []
    return f'{value.__module__}.{value.__qualname__}({", ".join(map(inner, cells))})'
  attributes = sorted(getattr(value, '__dict__', {}).items())
  if dataclasses.is_dataclass(value):  # Other attributes may be cached values.
    fields = [field.name for field in dataclasses.fields(value)]
    attributes = [(name, getattr(value, name)) for name in fields]
  parts = [f'{name}={inner(part)}' for name, part in attributes]
  return f'{type(value).__qualname__}({", ".join(parts)})'


def run(
  *,
  process,
  cohorts: Callable[[int], cohort_lib.Cohort],
  evaluate: Callable[[Any], dict[str, float]],
  metrics: tuple[str, ...],
  messages: communication.Messages,
  schedule: progress_lib.Schedule,
  directory: run_directory.RunDirectory,
  targets: Sequence[targets_lib.Target] = (),
  best: targets_lib.BestRound = targets_lib.NO_BEST,
  warnings: Sequence[str] = (),
  client_states: client_states_lib.ClientStates | None = None,
  facts: Mapping[str, Any] | None = None,
  epsilon: Callable[[int], float] | None = None,
) -> dict[str, Any]:
  """Runs or resumes the rounds of `train`.

  The run stops after an interrupt, after the error of a client, or after five consecutive
  rounds that dropped every client's update. Before it stops, it saves the finished rounds,
  unless the interrupted round has overwritten their state.

  Args:
    process: the learning process.
    cohorts: a function from a round, counted from 0, to its cohort.
    evaluate: a function from global weights to the values of `metrics`.
    metrics: names in `measure.catalog.SCORES`, the main metric first.
    messages: the sizes of the algorithm's messages.
    schedule: the number of rounds, and the periods of evaluations and checkpoints.
    directory: the run's directory.
    targets: target scores. The summary has the number of rounds to reach each of them.
    best: the metric that chooses the best round, and the rule for early stopping.
    warnings: warnings to print and to keep in the summary.
    client_states: the stored states of clients; None if clients keep no state.
    facts: additional entries of the summary.
    epsilon: a function from the number of finished rounds to epsilon; None without
      differential privacy.

  Returns:
    The content of summary.json, with nan for null.
  """
  for warning in warnings:
    print(f'warning: {warning}', file=sys.stderr)
  held = _Held(process, directory, client_states)
  rows = [*directory.start_metrics(held.done)]
  for row in rows:
    if row['round']:  # Row 0 has the scores of the initial model.
      held.count_lost(row)
  held.check_lost()
  kept = targets_lib.BestRound(best.metric or next(iter(metrics), ''))
  held.best = kept.round(rows)
  if held.done:
    held.save()  # This only removes old files that a killed run left.
  # Show the metrics of `best` and `targets` first, because a line may not fit all metrics.
  deciding = [best.metric, *(target.metric for target in targets)]
  shown = sorted(metrics, key=lambda name: name not in deciding)
  progress = progress_lib.Progress(schedule, shown, rows)
  try:
    if not rows:
      with progress.timing('evaluation'):
        measured = evaluate(held.weights())
      if epsilon:
        measured['epsilon'] = epsilon(0)
      directory.release(measured, 0)
      rows.append(measured)
      held.best = kept.round(rows)
      progress.show(measured)
    if best.metric and not held.done:  # The initial model may remain the best one.
      with progress.timing('checkpoint'):
        held.save()
    while held.done < schedule.rounds and not (
      _is_evaluated(rows[-1], metrics) and best.stops(rows)
    ):
      interrupts.check()
      started = time.perf_counter()
      cohort = cohorts(held.done)
      output, row = held.next(cohort, messages)
      row['seconds'] = time.perf_counter() - started
      measured = None
      if schedule.due(schedule.eval_every, held.done + 1):
        with progress.timing('evaluation'):
          measured = evaluate(process.get_model_weights(output.state))
      if epsilon:
        row['epsilon'] = epsilon(held.done + 1) if measured else math.nan
      row = {**row, **(measured or dict.fromkeys(metrics, math.nan))}
      directory.release(row, held.done + 1)
      rows.append(row)
      # The next line finishes the round. After an interrupt before it, the run repeats the round.
      held.take(output, row)
      if measured:
        held.best = kept.round(rows)
      del output  # A second reference to the state would force the next round to copy it.
      due = schedule.due(schedule.checkpoint_every, held.done)
      due |= bool(best.metric) and held.best == held.done
      due |= time.monotonic() - held.saved_at >= _SAVE_SECONDS
      if due or held.is_lost:
        with progress.timing('checkpoint'):
          held.save()
      if held.lost and _dropped_all(row):
        progress.warn(f"round {held.done} dropped every client's update, since none was finite")
      held.check_lost()
      progress.round_done(row, measured)
    if held.done < schedule.rounds:
      held.save()
  except (KeyboardInterrupt, client_error.WorkersError):
    held.save_interrupted()
    raise
  except client_error.ClientError as e:
    held.save_interrupted()
    raise errors.InputError(_explained(e, cohort, held.done + 1)) from e
  finally:
    progress.close()
  finished = run_files.read_run(directory.path)
  summary = _summarise(finished, metrics, messages, targets, best, warnings)
  summary |= facts or {}
  if epsilon:
    summary['epsilon'] = epsilon(int(summary['rounds']))
  if held.done < schedule.rounds:
    summary['stopped_after'] = best.stop_after
  directory.write(run_files.SUMMARY, summary)
  return summary


def _is_evaluated(row: Mapping[str, float], metrics: Sequence[str]) -> bool:
  return not all(math.isnan(row.get(name, math.nan)) for name in metrics)


class _Held:
  """The state of a run between rounds.

  `lost` is the number of consecutive rounds, up to the last round, that dropped every update.
  """

  def __init__(self, process, directory, client_states):
    self._process, self._directory = process, directory
    self._clients = client_states
    fresh = process.initialize()
    self._state, self.done, more = checkpoints.load_newest(
      directory.path,
      fresh,
      client_states.problem if client_states else lambda more: '',
      moves_damaged=True,
    )
    here, there = (getattr(s, 'seed', 0) for s in (fresh, self._state))
    if not np.array_equal(here, there):
      raise errors.InputError(
        f'{directory.path} has checkpoints of another seed than its secret; restore'
        ' checkpoints/secret_seed, or choose another --run_dir'
      )
    if client_states:
      client_states.restore(more, self.done)
    elif more:
      raise errors.InputError(
        f"{directory.path} holds clients' states, which this algorithm does not"
        ' have; choose another --run_dir'
      )
    self.lost = 0
    self.best = None  # The best round, whose checkpoint is kept.
    self.saved_at = time.monotonic()

  @property
  def is_lost(self) -> bool:
    return self.lost >= _MOST_LOST

  def weights(self):
    """Returns the global weights. Delete every reference to them before the next round."""
    return self._process.get_model_weights(self._state)

  def next(self, cohort: cohort_lib.Cohort, messages):
    """Returns (output, row of metrics.csv) of the next round."""
    examples = cohort.examples
    if self._clients:
      examples = self._clients.attach(examples)
    else:
      examples = runtimes.referenced(examples, self.done)
    # The old state is not needed again, so the runtime may update it in place.
    self._state = runtimes.donate(self._state)
    output = self._process.next(self._state, examples)
    row = _row(output.metrics, cohort, messages)
    return output, row | runtimes.measured()

  def take(self, output, row) -> None:
    """Replaces the current state by the result of a finished round."""
    done, clients = self.done + 1, self._clients
    if clients:
      kept = clients.write(output.metrics[examples_lib.NAME], done)
      # Assign all values in one statement, so that an interrupt cannot change only some.
      self._state, self.done, clients.kept = output.state, done, kept
    else:
      self._state, self.done = output.state, done
    self.count_lost(row)

  def count_lost(self, row) -> None:
    """Updates `lost` after a round. A round without examples does not change `lost`."""
    if _dropped_all(row):
      self.lost += 1
    elif not math.isnan(row['loss']):
      self.lost = 0

  def check_lost(self) -> None:
    if self.is_lost:
      raise errors.DivergedError(
        f'the last {self.lost} rounds, up to round {self.done}, dropped every'
        " client's update, since none was finite; a learning rate is probably"
        ' too large: start a new run with a smaller --client_learning_rate or'
        ' --server_learning_rate'
      )

  def save(self) -> None:
    clients = self._clients
    more = {}
    if clients:
      clients.sync()
      more = clients.arrays()
    oldest = self._directory.save(self._state, self.done, more, self.weights, self.best)
    if clients:
      clients.saved(oldest, self.done, self.best)
    self.saved_at = time.monotonic()

  def save_interrupted(self) -> None:
    """Saves an interrupted run's state, and prints the round from which the run resumes."""
    try:
      self._state = runtimes.keep(self._state)
    except ValueError:  # The interrupted round has overwritten the state.
      print(
        f'\nstopped before round {self.done + 1} was evaluated; the same command'
        ' goes on from the checkpoint before',
        file=sys.stderr,
      )
      return
    self.save()
    print(
      f'\nstopped after round {self.done}; the same command goes on from there', file=sys.stderr
    )


def _dropped_all(row) -> bool:
  """Whether a round dropped every client's update, so that it has no loss."""
  return row['clients_dropped'] > 0 and math.isnan(row['loss'])


def _explained(error, cohort: cohort_lib.Cohort, round_number: int) -> str:
  ids = dict(enumerate(cohort.client_ids))
  names = [ids.get(i, i) for i in (error.client_index, error.last_index)]
  # If a check of this project failed, extract the check's text from TensorFlow's message.
  said = re.search(r'assertion failed: \[client -?\d+: (.*?)\] ?\[', error.reason)
  return (
    f'{client_error.which(*names)} failed in round {round_number}:'
    f' {said[1] if said else error.reason}; mend its data or what ran out, and'
    ' start the same command again'
  )


def _row(measured, cohort, messages) -> dict[str, float]:
  """Returns a round's row of metrics.csv, without scores and times."""
  row = {name: float(value) for name, value in measured.items() if name != examples_lib.NAME}
  rows = {name: row[f'{name}_rows'] for name in messages.tables}
  largest = {n: row.pop(f'{n}_rows_largest') for n in messages.tables}
  row['clients_skipped'] = float(cohort.skipped)
  if cohort.dropouts is not None:
    row[_DROPOUTS] = float(cohort.dropouts)
  if cohort.attackers is not None:
    row[_ATTACKERS] = float(cohort.attackers)
  return {**row, **messages.of_round(rows, largest)}


def _summarise(
  finished: run_files.Run, metrics, messages, targets, best, warnings
) -> dict[str, Any]:
  """Returns the content of summary.json. A mean leaves out rounds without a value."""
  table = finished.metrics

  def mean(name):
    return float(table[name].mean())

  down, up = (mean(f'bytes_{way}_per_client') for way in ('down', 'up'))
  warnings = list(warnings)
  if lost := sum(_dropped_all(row) for row in table.to_dict('records')):
    rounds = wording.count(lost, 'round')
    warnings.append(f"{rounds} dropped every client's update")
  counted = ('clients_dropped', 'clients_skipped', _DROPOUTS)
  totals = {f'{n}_total': float(table[n].sum()) for n in counted if n in table}
  return {
    'final': {name: float(table[name].iloc[-1]) for name in metrics},
    'best': {name: catalog.SCORES[name].best(table[name]) for name in metrics},
    'best_round': best.summary(table, metrics),
    'rounds': int(table['round'].iloc[-1]),
    'rounds_to_target': {t.name: t.first_round(table) for t in targets},
    'bytes_down_per_client_round': down,
    'bytes_up_per_client_round': up,
    'bytes_saving_vs_fullsoftmax': messages.saving(down + up),
    'class_rows_requested_mean': mean('class_rows'),
    'seconds_per_round_median': float(table['seconds'].median()),
    'warnings': warnings,
    **totals,
  }
