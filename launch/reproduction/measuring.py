"""Measures one result of the papers: formula, study or trained table."""

import dataclasses
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.reproduction import needs
from launch.reproduction import outcome as outcome_lib
from launch.reproduction.studies import study
from launch.sweeps import plan
from tasks.papers import result
from tff_xc import errors

if TYPE_CHECKING:
  from launch.reproduction import experiments


def nothing(
  each: 'experiments.Planned', verdict: outcome_lib.Verdict, why: str
) -> outcome_lib.Outcome:
  """Returns the outcome of a result of which nothing was measured."""
  return outcome_lib.Outcome(
    name=each.found.name, scale=each.request.scale, verdict=verdict, why=why
  )


def train_together(
  planned: Sequence['experiments.Planned'],
) -> dict[pathlib.Path, str]:
  """Trains the runs of several tables, so that no core waits for a table's last run.

  What is no problem of single runs is left to `outcome_of`, which tells it of each
  result. A run has the name of its first table, since rows of several have one label.
  The costliest runs are first: the first one tells how many fit the memory, and the
  cores wait for the last one.

  Returns:
    Why runs failed, by directory.
  """
  named: dict[pathlib.Path, plan.Run] = {}
  for each in planned:
    for folder, run in each.by_folder.items():
      name = f'{each.found.name} {run.point}'
      named.setdefault(folder, dataclasses.replace(run, name=name))
  failed = {}
  for task, runs in _by_task(named.values()).items():
    runs.sort(key=needs.cost, reverse=True)
    try:
      failed |= _train_task(task, runs, planned[0].request)
    except BrokenPipeError:
      raise  # Nobody reads what is printed.
    except (errors.InputError, OSError):
      pass
  return failed


def outcome_of(
  each: 'experiments.Planned', failed: Mapping[pathlib.Path, str] | None = None
) -> outcome_lib.Outcome:
  """Trains or measures what a result needs; returns what came of it.

  Args:
    each: the result.
    failed: why runs failed just now, by directory; they are not tried again.

  Raises:
    errors.InputError: its data are missing.
    errors.DamageError: a file is damaged, or the system ends the measurement.
  """
  try:
    return _outcome(each, failed or {})
  except BrokenPipeError:
    raise  # Nobody reads what is printed.
  except OSError as e:
    raise errors.DamageError(
      f'{each.found.name} could not be measured: {e}; mend that, and run the same'
      ' command again'
    ) from e


def _outcome(
  each: 'experiments.Planned', failed: Mapping[pathlib.Path, str]
) -> outcome_lib.Outcome:
  found, request = each.found, each.request
  if isinstance(found, result.Diagram):
    verdict = outcome_lib.Verdict.NOTHING
    return nothing(each, verdict, 'it is a diagram')
  if isinstance(found, result.Formula):
    return _computed(found, request.scale)
  if isinstance(found, result.Study):
    return _studied(each)
  if not each.rows:
    why = 'it has no small form'
    return nothing(each, outcome_lib.Verdict.NOT_RUN, why)
  missing = []
  if request.train:
    missing = _train(each, failed)
  elif kept := _kept_without_runs(each):
    return kept
  from launch.reproduction import trained

  return trained.conclude(
    found, each.rows, each.runs, request.output, request.scale, missing
  )


def _computed(found: result.Formula, scale: str) -> outcome_lib.Outcome:
  verdict, why = outcome_lib.Verdict.REPRODUCED, 'it follows from formulas'
  if equal := found.equal:
    same, rounded = equal.count('yes'), equal.count(result.OF_ROUNDED)
    why = f'{same} of {len(equal)} values are the published ones'
    why += f', {rounded} those of rounded numbers' if rounded else ''
    if 'no' in equal:
      verdict = outcome_lib.Verdict.SHAPE
  return outcome_lib.Outcome(
    name=found.name,
    scale=scale,
    verdict=verdict,
    why=why,
    tables=(outcome_lib.Cells('', found.heading, found.rows),),
  )


def _studied(each: 'experiments.Planned') -> outcome_lib.Outcome:
  found, request = each.found, each.request
  if request.train:
    return study.conclude(
      found, request.scale, each.config, request.output, request.jobs
    )
  why = 'it has not been measured'
  return _kept(each) or nothing(each, outcome_lib.Verdict.NOT_RUN, why)


def _kept(each: 'experiments.Planned') -> outcome_lib.Outcome | None:
  """Returns what was measured before at this scale and written there."""
  kept = _before(each)
  return kept if kept and kept.scale == each.request.scale else None


def _before(each: 'experiments.Planned') -> outcome_lib.Outcome | None:
  """Returns what was measured before, at any scale and with any flags."""
  kept = outcome_lib.read(each.request.output, each.found.name)
  return kept if kept and kept.has_values else None


def _kept_without_runs(
  each: 'experiments.Planned',
) -> outcome_lib.Outcome | None:
  """Returns a table's result of before whose runs have been removed since."""
  from launch.sweeps import training

  if any(training.is_finished(run) for run in each.by_folder.values()):
    return None
  kept = _kept(each)
  is_same = kept and kept.command == each.request.command(each.found.name)
  return kept if is_same else None


def kept_or_why(
  each: 'experiments.Planned',
) -> tuple[outcome_lib.Outcome | None, str]:
  """Returns what was measured before, at any scale and with any flags.

  Returns:
    That, None if nothing was; and why it cannot be read, '' if it can.
  """
  try:
    return _before(each), ''
  except errors.InputError as e:
    return None, str(e)


def _by_task(runs: Iterable[plan.Run]) -> dict[str, list[plan.Run]]:
  found: dict[str, list[plan.Run]] = {}
  for run in runs:
    found.setdefault(run.config['task'], []).append(run)
  return found


def _train_task(
  task: str, runs: Sequence[plan.Run], request: 'experiments.Request'
) -> dict[pathlib.Path, str]:
  """Trains what is not finished; returns why runs failed, by directory.

  Raises:
    errors.InputError: the task's data are missing, or files are damaged.
  """
  from launch.sweeps import training

  failures: dict[pathlib.Path, str] = {}
  training.train(
    runs,
    {},
    request.output / 'runs' / task,
    request.jobs,
    lambda found: failures.update(found) or '',
  )
  return failures


def _train(
  each: 'experiments.Planned', failed: Mapping[pathlib.Path, str]
) -> list[str]:
  """Trains what is not finished; returns why runs are missing.

  Raises:
    errors.InputError: no task of the table has its data.
  """
  by_task, missing = _by_task(each.by_folder.values()), []
  for task, runs in by_task.items():
    failures = {r.folder: failed[r.folder] for r in runs if r.folder in failed}
    rest = [run for run in runs if run.folder not in failed]
    try:
      failures |= _train_task(task, rest, each.request) if rest else {}
    except errors.InputError as e:
      if len(by_task) == 1:
        raise
      missing.append(f'{task}: {e}')
    missing += [f'{folder} failed: {why}' for folder, why in failures.items()]
  if len(missing) >= len(by_task) and not any(
    folder.exists() for folder in each.by_folder
  ):
    raise errors.InputError('; '.join(missing))
  return missing
