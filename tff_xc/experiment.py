"""The loop: cohort, round, evaluation, metrics, checkpoint; and resuming it."""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tqdm

from datasets import errors
from tff_xc import cohort as cohort_lib
from tff_xc import run_directory
from tff_xc.measure import communication
from tff_xc.measure import run_files
from tff_xc.runtime import client_error
from tff_xc.runtime import registry as runtimes


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How long, and how often what.

  Attributes:
    rounds: rounds of the whole run.
    eval_every: rounds between evaluations; the last round is evaluated too.
    checkpoint_every: rounds between checkpoints; likewise.
  """

  rounds: int
  eval_every: int
  checkpoint_every: int

  def due(self, every: int, round_number: int) -> bool:
    """Whether something that happens every `every` rounds is due after it."""
    return round_number % every == 0 or round_number == self.rounds


@dataclasses.dataclass(frozen=True)
class Messages:
  """Turns rows requested into bytes.

  Attributes:
    sizes: of what messages are made of.
    requests_all: whether every client requests every row.
    num_classes: n.
    row_dim: length of a class row.
    crosses: False for centralised training, where nothing travels.
    sends_rows: whether class rows are sent back.
  """

  sizes: communication.MessageSizes
  requests_all: bool
  num_classes: int
  row_dim: int
  crosses: bool = True
  sends_rows: bool = True

  def of_round(
    self,
    rows: float,
    largest: float,
    feature_rows: float = 0.0,
    largest_features: float = 0.0,
  ) -> dict[str, float]:
    """Returns the bytes columns for mean and largest numbers of rows."""
    by_rows = feature_rows if self.sizes.feature_row_bytes else 0.0
    down = communication.bytes_down(self.sizes, rows, by_rows)
    up = communication.bytes_up(
      self.sizes, rows, self.requests_all, by_rows, self.sends_rows
    )
    held = largest_features * self.sizes.feature_row_bytes
    parameters = (self.sizes.encoder_bytes + held) // 4 + largest * self.row_dim
    return {
      'bytes_down_per_client': down if self.crosses else 0.0,
      'bytes_up_per_client': up if self.crosses else 0.0,
      'client_parameters_peak': parameters,
    }

  def saving(self, sent: float) -> float:
    """Returns the fraction of FullSoftmax's bytes that is not sent.

    Args:
      sent: bytes down and up of a client and round.
    """
    if not self.crosses:
      return 1.0
    return communication.byte_saving(self.sizes, sent, self.num_classes)


def run(
  *,
  process,
  cohorts: Callable[[int], cohort_lib.Cohort],
  evaluate: Callable[[Any], dict[str, float]],
  metrics: tuple[str, ...],
  messages: Messages,
  schedule: Schedule,
  directory: run_directory.RunDirectory,
  warnings: Sequence[str] = (),
) -> dict[str, Any]:
  """Runs or resumes an experiment.

  Args:
    process: a `tff.learning.templates.LearningProcess`.
    cohorts: round (from 0) -> its cohort.
    evaluate: global weights -> metrics by name.
    metrics: the names that `evaluate` returns, the headline metric first.
    messages: how rows requested become bytes.
    schedule: rounds, evaluations, checkpoints.
    directory: where everything is written.
    warnings: sentences for the terminal and the summary.

  Returns:
    The summary, as in summary.json.

  Raises:
    errors.InputError: where a client fails; the message says which. What was
      done before is saved then, as after an interrupt.
  """
  for warning in warnings:
    print(f'warning: {warning}', file=sys.stderr)
  state, done = directory.checkpoints.load(process.initialize())
  directory.start_metrics(done)
  bar = tqdm.tqdm(
    total=schedule.rounds, initial=done, unit='round', disable=None
  )
  latest = dict.fromkeys(metrics, float('nan'))
  try:
    while done < schedule.rounds:
      started = time.perf_counter()
      cohort = cohorts(done)
      # A state is needed once: what can be is done to it in place.
      state = runtimes.give_up(state)
      output = process.next(state, cohort.examples)
      row = _row(output.metrics, cohort, messages)
      row['seconds'] = time.perf_counter() - started
      measured = dict.fromkeys(metrics, float('nan'))
      if schedule.due(schedule.eval_every, done + 1):
        latest = measured = evaluate(process.get_model_weights(output.state))
        if bar.disable:
          _print_progress(done + 1, schedule.rounds, row, measured)
      directory.release({**row, **measured}, done + 1)
      # Only now is the round done: an interrupt before this repeats it whole.
      state, done = output.state, done + 1
      del output  # Else the state would have two owners, and be copied.
      if schedule.due(schedule.checkpoint_every, done):
        directory.checkpoints.save(state, done)
      bar.set_postfix_str(_postfix(row, metrics[0], latest), refresh=False)
      bar.update()
  except KeyboardInterrupt:
    _save_interrupted(directory, state, done)
    raise
  except client_error.ClientError as e:
    _save_interrupted(directory, state, done)
    raise errors.InputError(_explained(e, cohort, done + 1)) from e
  finally:
    bar.close()
  summary = summarise(run_files.read_run(directory.path), metrics, messages)
  summary['warnings'] = list(warnings)
  run_files.write_json(directory.path / run_files.SUMMARY, summary)
  return summary


def _explained(error, cohort: cohort_lib.Cohort, round_number: int) -> str:
  index = error.client_index
  name = cohort.client_ids[index] if index < len(cohort.client_ids) else index
  return (
    f'client {name!r} failed in round {round_number}: {error.reason}; mend its'
    ' data or what ran out, and start the same command again'
  )


def _save_interrupted(directory, state, done: int) -> None:
  """Saves what an interrupted run has, and says from where it goes on."""
  try:
    state = runtimes.keep(state)
  except ValueError:  # The round that followed had used it up.
    print(
      f'\nstopped before round {done + 1} was evaluated; the same command goes'
      ' on from the checkpoint before',
      file=sys.stderr,
    )
    return
  directory.checkpoints.save(state, done)
  print(
    f'\nstopped after round {done}; the same command goes on from there',
    file=sys.stderr,
  )


def _row(measured, cohort, messages: Messages) -> dict[str, float]:
  row = {name: float(value) for name, value in measured.items()}
  largest = row.pop('class_rows_largest')
  features = row.get('feature_rows', 0.0), row.pop('feature_rows_largest', 0.0)
  row['clients_skipped'] = float(cohort.skipped)
  return {**row, **messages.of_round(row['class_rows'], largest, *features)}


def _postfix(row, headline: str, latest) -> str:
  total = row['bytes_down_per_client'] + row['bytes_up_per_client']
  score = latest[headline]
  shown = f'{score:.3f}' if score == score else '-'  # nan: not measured yet.
  return (
    f'loss {row["loss"]:.3f}, {headline} {shown},'
    f' {total / 2**20:.2f} MiB/client'
  )


def _print_progress(done, rounds, row, measured) -> None:
  scores = ', '.join(f'{k} {v:.4f}' for k, v in measured.items())
  print(f'round {done}/{rounds}: loss {row["loss"]:.4f}, {scores}', flush=True)


def summarise(
  finished: run_files.Run, metrics: tuple[str, ...], messages: Messages
) -> dict[str, Any]:
  """Returns the summary of a run from its metrics.csv."""
  table = finished.metrics
  rows = float(np.mean(table['class_rows']))
  scores = {name: table[name].dropna() for name in metrics}
  down, up = (
    float(np.mean(table[f'bytes_{way}_per_client'])) for way in ('down', 'up')
  )
  return {
    'final': {name: float(s.iloc[-1]) for name, s in scores.items()},
    'best': {name: float(s.max()) for name, s in scores.items()},
    'rounds': int(table['round'].iloc[-1]),
    'bytes_down_per_client_round': down,
    'bytes_up_per_client_round': up,
    'bytes_saving_vs_fullsoftmax': messages.saving(down + up),
    'class_rows_requested_mean': rows,
    'clients_dropped_total': float(np.sum(table['clients_dropped'])),
    'clients_skipped_total': float(np.sum(table['clients_skipped'])),
    'seconds_per_round_median': statistics.median(table['seconds']),
  }
