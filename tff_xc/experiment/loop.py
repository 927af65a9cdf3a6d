"""The training loop: cohort, round, evaluation, metrics, checkpoint, resume."""

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tqdm

from tff_xc import errors
from tff_xc.experiment import cohort as cohort_lib
from tff_xc.experiment import run_directory
from tff_xc.measure import catalog
from tff_xc.measure import communication
from tff_xc.report import run_files
from tff_xc.runtime import client_error
from tff_xc.runtime import registry as runtimes

# A run stops after this many consecutive rounds that dropped every update.
_MOST_LOST = 5


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The number of rounds, evaluations and checkpoints.

  Attributes:
    rounds: rounds of the whole run.
    eval_every: rounds between evaluations; the last round is evaluated too.
    checkpoint_every: rounds between checkpoints; likewise.
  """

  rounds: int
  eval_every: int
  checkpoint_every: int

  def due(self, every: int, round_number: int) -> bool:
    """Whether an action of period `every` is due after the round."""
    return round_number % every == 0 or round_number == self.rounds


@dataclasses.dataclass(frozen=True)
class Messages:
  """Converts numbers of requested rows into bytes.

  Attributes:
    sizes: sizes of the parts of messages.
    requests_all: whether every client requests every row.
    num_classes: n.
    row_dim: length of a class row.
    crosses: False for centralised training, which sends no messages.
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
    """Returns the columns of bytes, from mean and largest numbers of rows."""
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
    """Returns the saved fraction of FullSoftmax's bytes.

    Args:
      sent: bytes down and up, per client and round.
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
    messages: converts requested rows into bytes.
    schedule: rounds, evaluations, checkpoints.
    directory: receives all files of the run.
    warnings: about the configuration; printed, and kept in the summary.

  Returns:
    The summary, as in summary.json, with nan in place of null.

  Raises:
    errors.InputError: if a client fails; the message names it. Also if five
      consecutive rounds dropped every client's update. The rounds done are
      saved first, as after an interrupt.
  """
  for warning in warnings:
    print(f'warning: {warning}', file=sys.stderr)
  state, done = directory.checkpoints.load(process.initialize())
  rows = directory.start_metrics(done)
  lost = 0  # Consecutive rounds that dropped every update.
  for row in rows:
    lost = _lost_in_a_row(lost, row)
  _check_lost(lost, done)
  bar = tqdm.tqdm(
    total=schedule.rounds, initial=done, unit='round', disable=None
  )
  latest = dict.fromkeys(metrics, float('nan'))
  try:
    while done < schedule.rounds:
      started = time.perf_counter()
      cohort = cohorts(done)
      # The old state is not needed again, so the runtime may update it in
      # place.
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
      # Only now is the round done: an interrupt before this line repeats it.
      state, done = output.state, done + 1
      del output  # A second reference would force a copy.
      lost = _lost_in_a_row(lost, row)
      if schedule.due(schedule.checkpoint_every, done) or lost == _MOST_LOST:
        directory.checkpoints.save(state, done)
      if lost and _dropped_all(row):
        bar.write(
          f"warning: round {done} dropped every client's update, since none was"
          ' finite',
          file=sys.stderr,
        )
      _check_lost(lost, done)
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
  summary = summarise(
    run_files.read_run(directory.path), metrics, messages, warnings
  )
  run_files.write_json(directory.path / run_files.SUMMARY, summary)
  return summary


def _dropped_all(row) -> bool:
  """Whether a round dropped every client's update and so measured nothing."""
  return row['clients_dropped'] > 0 and math.isnan(row['loss'])


def _lost_in_a_row(lost: int, row) -> int:
  """Returns the number of consecutive lost rounds, up to the round of `row`.

  A round whose clients had no examples does not change the number.
  """
  if _dropped_all(row):
    return lost + 1
  return lost if math.isnan(row['loss']) else 0


def _check_lost(lost: int, done: int) -> None:
  if lost >= _MOST_LOST:
    raise errors.InputError(
      f"the last {lost} rounds, up to round {done}, dropped every client's"
      ' update, since none was finite; a learning rate is probably too large:'
      ' start a new run with a smaller --client_learning_rate or'
      ' --server_learning_rate'
    )


def _explained(error, cohort: cohort_lib.Cohort, round_number: int) -> str:
  index = error.client_index
  name = cohort.client_ids[index] if index < len(cohort.client_ids) else index
  return (
    f'client {name!r} failed in round {round_number}: {error.reason}; mend its'
    ' data or what ran out, and start the same command again'
  )


def _save_interrupted(directory, state, done: int) -> None:
  """Saves an interrupted run's state and says where the run will resume."""
  try:
    state = runtimes.keep(state)
  except ValueError:  # The interrupted round has overwritten it.
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
  finished: run_files.Run,
  metrics: tuple[str, ...],
  messages: Messages,
  warnings: Sequence[str] = (),
) -> dict[str, Any]:
  """Returns the summary of a run from its metrics.csv.

  Means are over the rounds that measured something, or nan if no round did.
  Final scores are those of the last round, which is always evaluated.

  Args:
    finished: the run, with at least one round.
    metrics: names of the scores.
    messages: computes the saved bytes.
    warnings: about the configuration. `warnings` of the summary also has those
      about the rounds.
  """
  table = finished.metrics
  mean = lambda name: float(table[name].mean())
  down, up = (mean(f'bytes_{way}_per_client') for way in ('down', 'up'))
  warnings = list(warnings)
  if lost := sum(_dropped_all(row) for row in table.to_dict('records')):
    rounds = 'round' if lost == 1 else 'rounds'
    warnings.append(f"{lost} {rounds} dropped every client's update")
  return {
    'final': {name: float(table[name].iloc[-1]) for name in metrics},
    'best': {name: catalog.SCORES[name].best(table[name]) for name in metrics},
    'rounds': int(table['round'].iloc[-1]),
    'bytes_down_per_client_round': down,
    'bytes_up_per_client_round': up,
    'bytes_saving_vs_fullsoftmax': messages.saving(down + up),
    'class_rows_requested_mean': mean('class_rows'),
    'clients_dropped_total': float(table['clients_dropped'].sum()),
    'clients_skipped_total': float(table['clients_skipped'].sum()),
    'seconds_per_round_median': statistics.median(table['seconds']),
    'warnings': warnings,
  }
