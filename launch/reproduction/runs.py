"""The runs behind a published table: which they are, and where they lie.

All tables of an output directory share their runs, OUTPUT/runs/TASK/ALGORITHM and
what its settings change/seedS, so that a figure costs nothing beside its table.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.reproduction.studies import study
from launch.sweeps import plan
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import table as table_lib
from tff_xc.algorithms import registry as algorithms
from tff_xc.report import run_files

# Settings that change no result, and so belong to no experiment.
UNSEEN = frozenset({*run_files.NOT_CONFIGURATION, 'device', 'runtime'})


def of_paper(
  found: table_lib.PaperTable, task: str | None, algorithm: str | None
) -> list[table_lib.Row]:
  """Returns a table's rows at the paper's size.

  Args:
    found: the table.
    task: of the rows; None: all tasks with files of their own, since procedural
      tasks are no paper's, or all if none has files.
    algorithm: of the rows; None: all.

  Raises:
    study.Unused: it has no such rows.
  """
  known = list(dict.fromkeys(row.task for row in found.rows))
  if task is not None and task not in known:
    told = f'--task={task}: {found.name} has results on {", ".join(known)}'
    raise study.Unused('task', told)
  real = [name for name in known if tasks.get(name).find is not None]
  wanted = [task] if task else real or known
  rows = [row for row in found.rows if row.task in wanted]
  kept = [row for row in rows if algorithm in (None, row.algorithm)]
  if not kept:
    names = dict.fromkeys(row.algorithm for row in rows)
    raise study.Unused(
      'algorithm',
      f'--algorithm={algorithm}: {found.name} has, on {", ".join(wanted)},'
      f' {", ".join(names)}',
    )
  return kept


def plan_runs(
  rows: Sequence[table_lib.Row],
  given: Mapping[str, Any],
  seeds: Sequence[int],
  output: pathlib.Path,
) -> list[list[plan.Run]]:
  """Returns each row's runs, a run for each seed.

  Args:
    rows: of a table.
    given: settings, by name, that replace those of the rows. Hyper-parameters
      apply to the algorithms that take them.
    seeds: of each row.
    output: the directory of all tables.

  Raises:
    study.Unused: a setting applies to no row, or is what rows differ in.
    errors.InputError: it is out of bounds, or a task does not take it.
  """
  _check_given(rows, given)
  found = []
  for row, label in zip(rows, table_lib.labels(rows), strict=True):
    values = {**row.changes, **table_lib.applying(given, row.algorithm)}
    folder = pathlib.Path(output, 'runs', row.task, _name(row, values))
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


def _name(row: table_lib.Row, values: Mapping[str, Any]) -> str:
  """Returns the algorithm and what the settings change of the defaults."""
  before, after = (
    run_files.flat(experiment.resolve(row.task, row.algorithm, changes))
    for changes in ({}, values)
  )
  seen = {
    name: values[name]
    for name in sorted(set(values) - UNSEEN)
    if before.get(name) != after.get(name)
  }
  return '_'.join(filter(None, [row.algorithm, plan.folder_name(seen)]))


def _check_given(rows, given) -> None:
  names = dict.fromkeys(row.algorithm for row in rows)
  taken = {n for name in names for n in algorithms.get(name).names}
  for name in given:
    if name in algorithms.HYPERPARAMETERS and name not in taken:
      raise study.Unused(
        name,
        f'--{name} is a hyper-parameter of none of these algorithms:'
        f' {", ".join(names)}',
      )
  differing = {n for row in rows for n in table_lib.own_changes(row, rows)}
  for name in differing & set(given):
    told = f'--{name} is what rows of this table differ in; leave it out'
    raise study.Unused(name, told)


def changed(
  rows: Sequence[table_lib.Row], runs: Sequence[Sequence[plan.Run]]
) -> str:
  """Returns what flags changed of the rows' settings, a sentence; '' if nothing."""
  found = {
    f'--{name}={value}': None
    for row, group in zip(rows, runs, strict=True)
    for name, value in group[0].values.items()
    if row.changes.get(name) != value and name not in UNSEEN
  }
  return f'Changed by flags: {", ".join(found)}' if found else ''
