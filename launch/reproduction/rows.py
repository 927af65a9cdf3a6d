"""The rows of a published table that flags choose, and the runs behind them.

All tables of an output directory share their runs, OUTPUT/runs/TASK/ALGORITHM and
what its settings change/seedS, so that a figure costs nothing beside its table.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.sweeps import plan
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import encoders
from tasks.papers import names as names_lib
from tasks.papers import table as table_lib
from tff_xc import errors
from tff_xc.algorithms import participation
from tff_xc.algorithms import registry as algorithms
from tff_xc.experiment import progress
from tff_xc.report import run_files

# Settings that change no round, and so belong to no experiment.
UNSEEN = frozenset({*run_files.NOT_CONFIGURATION, 'device', 'runtime'})
ENCODERS = 'encoders'  # The folder of runs that others start from, beside those of tasks.
# Options of tasks that change the model, and not who is drawn.
_OF_MODELS = frozenset({'embedding_dim', 'logit_scale', 'depth'})


class Unused(errors.InputError):
  """A flag that a result has no use for; bare if it is not said what would be taken."""

  def __init__(self, flag: str, message: str, is_bare: bool = False):
    super().__init__(message)
    self.flag = flag
    self.is_bare = is_bare


def refuse(name: str, unused: Iterable[str]) -> None:
  """Raises `Unused` for flags that a result has no use for, if there are any."""
  for flag in sorted(unused):
    told = f'--{flag}: {name} has no use for it; leave it out'
    raise Unused(flag, told, is_bare=True)


def chosen(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  task: str | None,
  algorithm: str | None,
) -> list[table_lib.Row]:
  """Returns those of a table's rows that flags choose, of tasks with files if any are.

  To rows of an `algorithm` belong those to which they are relative.
  """
  known = list(dict.fromkeys(row.task for row in rows))
  if task is not None and task not in known:
    told = f'--task={task}: {found.name} has results on {", ".join(known)}'
    raise Unused('task', told)
  real = [name for name in known if tasks.get(name).find is not None]
  wanted = [task] if task else real or known
  rows = [row for row in rows if row.task in wanted]
  kept = [row for row in rows if algorithm in (None, row.algorithm)]
  if not kept:
    names = dict.fromkeys(row.algorithm for row in rows)
    raise Unused(
      'algorithm',
      f'--algorithm={algorithm}: {found.name} has, on {", ".join(wanted)},'
      f' {", ".join(names)}',
    )
  is_claimed = any(
    names_lib.parse(claim.metric).relative is not None for claim in found.claims
  )
  wholes = [
    found.reference(row, rows) for row in kept if is_claimed or row.is_relative
  ]
  taken = {id(row) for row in (*kept, *wholes)}
  return [row for row in rows if id(row) in taken]


def differing(rows: Sequence[table_lib.Row]) -> set[str]:
  """Returns the settings in which rows of one task and algorithm differ."""
  return {name for row in rows for name in table_lib.own_changes(row, rows)}


def having(
  rows: Sequence[table_lib.Row], given: Mapping[str, Any]
) -> list[table_lib.Row]:
  """Returns rows without those that have another value of what rows differ in."""
  kept = list(rows)
  for name in differing(rows) & set(given):
    varied = {
      (r.task, r.algorithm)
      for r in rows
      if name in table_lib.own_changes(r, rows)
    }
    of = lambda row, name=name: _settings(row, row.changes).get(name)
    known = dict.fromkeys(
      of(r) for r in rows if (r.task, r.algorithm) in varied
    )
    if given[name] not in known:
      told = f'--{name}={given[name]}: rows of this table have'
      raise Unused(name, f'{told} {", ".join(map(str, known))}')
    kept = [
      row
      for row in kept
      if (row.task, row.algorithm) not in varied or of(row) == given[name]
    ]
  return kept


def _settings(row: table_lib.Row, changes: Mapping[str, Any]) -> dict[str, Any]:
  return run_files.flat(experiment.resolve(row.task, row.algorithm, changes))


def plan_runs(
  rows: Sequence[table_lib.Row],
  given: Mapping[str, Any],
  seeds: Sequence[int],
  output: pathlib.Path,
) -> list[list[plan.Run]]:
  """Returns each row's runs, a run for each seed; `given` replaces settings of rows."""
  _check_given(rows, given)
  found = []
  for row, label in zip(rows, table_lib.labels(rows), strict=True):
    values = {**row.changes, **table_lib.applying(given, row.algorithm)}
    seen = _seen(row, values)
    root = pathlib.Path(output, 'runs', row.task)
    folder = plan.folder_of(root, seen, row.algorithm)
    if source := encoder_run(row, output):
      values |= {'start_from': str(source.folder), 'start_from_rows': 'none'}
    found.append(
      [
        plan.Run(
          values,
          experiment.resolve(row.task, row.algorithm, {**values, 'seed': seed}),
          folder / f'seed{seed}',
          label,
        )
        for seed in seeds
      ]
    )
  return found


def encoder_run(row: table_lib.Row, output: pathlib.Path) -> plan.Run | None:
  """Returns the run whose encoder a row's runs start from, OUTPUT/runs/encoders/NAME."""
  name = row.changes.get('start_from')
  if name not in encoders.ENCODERS:
    return None
  task, changes = encoders.ENCODERS[name]
  config = experiment.resolve(task, 'centralized', changes)
  folder = pathlib.Path(output, 'runs', ENCODERS, name)
  return plan.Run(changes, config, folder, f'encoder {name}')


def check_evaluated(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  runs: Sequence[Sequence[plan.Run]],
) -> None:
  """Refuses runs without scores of the rounds that a table shows."""
  for row, [run, *_] in zip(rows, runs, strict=True):
    budgets = (names_lib.parse(name).budget for name in row.published)
    wanted = {each.number for each in budgets if each and each.unit == 'rounds'}
    wanted |= {found.at_rounds} - {None}
    rounds, every = run.config['rounds'], run.config['eval_every']
    shown = sorted({min(number, rounds) for number in wanted})
    if shown and (stop := run.config['early_stopping_patience']):
      raise errors.InputError(
        f'--early_stopping_patience={stop}: a run may end before round {shown[-1]}, whose'
        ' scores this table shows; leave it out'
      )
    schedule = progress.Schedule(rounds, every, every)
    missed = [at for at in shown if not schedule.due(every, at)]
    if missed:
      common = math.gcd(*(at for at in shown if at < rounds))
      raise errors.InputError(
        f'--eval_every={every}: the scores are those after round {missed[0]} of'
        f' {rounds}, which would not be evaluated; give a divisor of {common}'
      )


def _seen(row: table_lib.Row, values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what the settings change of the defaults, by name."""
  before, after = _settings(row, {}), _settings(row, values)
  return {
    name: values[name]
    for name in sorted(set(values) - UNSEEN)
    if before.get(name) != after.get(name)
  }


@functools.cache
def drawn(task: str, algorithm: str, changes: str) -> str:
  """Returns what decides, with a seed, whom a row draws in each round, as text.

  Those are the data and the options of who takes part, which a method without clients
  does not have. '' of settings that are not known today.
  """
  try:
    row = table_lib.changes(changes)
    config = experiment.resolve(task, algorithm, row)
  except errors.InputError:
    return ''
  data = {n: v for n, v in config['options'].items() if n not in _OF_MODELS}
  of = {field.name for field in dataclasses.fields(participation.Participation)}
  taken = {n: v for n, v in config['hyperparameters'].items() if n in of}
  return json.dumps([task, data, taken], sort_keys=True)


def _check_given(rows, given) -> None:
  names = dict.fromkeys(row.algorithm for row in rows)
  taken = {n for name in names for n in algorithms.get(name).names}
  for name in given:
    if name in algorithms.HYPERPARAMETERS and name not in taken:
      raise Unused(
        name,
        f'--{name} is a hyper-parameter of none of these algorithms:'
        f' {", ".join(names)}',
      )
