"""The table and the picture of a sweep, from the directories of its runs."""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence

from launch import compare
from launch.sweeps import plan
from tff_xc import errors
from tff_xc.experiment import same_run
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import groups
from tff_xc.report import run_files
from tff_xc.report import tables
from tff_xc.report import text_table


def check_data(runs: Sequence[plan.Run]) -> None:
  """Refuses runs that were trained on different data.

  Options may change the data of procedural tasks, so that only runs of equal
  options must have equal data.

  Args:
    runs: those without a directory are skipped.

  Raises:
    errors.InputError: naming two such runs and what differs.
  """
  first: dict[str, tuple[plan.Run, Mapping]] = {}
  for run in runs:
    if not run_files.is_run(run.folder):
      continue
    config = run_files.read_config(run.folder / run_files.CONFIG)
    options = json.dumps(config.get('options'), sort_keys=True)
    data = config.get('data', {})
    other, expected = first.setdefault(options, (run, data))
    if told := same_run.differences(expected, data):
      raise errors.InputError(
        f'{other.folder} and {run.folder} are runs on different data: {told};'
        " move one of them away and train it again with the other's --data_dir,"
        ' or choose another --output'
      )


def write(
  runs: Sequence[plan.Run],
  failures: Mapping[pathlib.Path, str],
  output: pathlib.Path,
  metric: str | None,
) -> str:
  """Writes sweep.md, sweep.csv and sweep.png; returns the table as text.

  A row is a grid point, in the order of the grids, and '*' marks the best. A
  point has no values if one of its seeds failed, as a mean over the other seeds
  would favour it.

  Args:
    runs: all runs, finished or failed, seeds of a point after each other.
    failures: why a run failed, by its directory.
    output: the directory of the sweep.
    metric: a score or the name of a target; None: the first score measured.

  Raises:
    errors.InputError: no grid point has finished, files are damaged, or runs
      are on different data.
  """
  check_data(runs)
  points = [list(found) for _, found in itertools.groupby(runs, _point)]
  rows = _rows(points, failures, metric)
  measured = tables.measured(rows)
  metric = metric or next(iter([*measured, *catalog.SCORES]))
  best = _best(rows, metric)
  marked = [
    dataclasses.replace(row, label=f'{row.label} *') if row is best else row
    for row in rows
  ]
  heading = _heading(metric)
  notes = [f'* the best by {heading}'] if best else []
  if metric not in measured:
    notes.append(
      f'no row is marked: no grid point has a value of {metric}; they'
      f' have {", ".join(measured) or "no metric"}'
    )
  notes += [f'{_name(run)} failed: {failures[run.folder]}'
            for run in runs if run.folder in failures]  # fmt: skip

  from tff_xc.report import sweep_curves  # Imports Matplotlib.

  compare.write_files(
    output / 'sweep',
    tables.to_markdown(marked) + ''.join(f'\n{note}\n' for note in notes),
    tables.to_csv(rows, _csv_cells(points, rows, failures, best)),
    functools.partial(
      sweep_curves.plot_sweep,
      [point[0].values for point in points],
      [row.values.get(metric) for row in rows],
      heading,
      catalog.SCORES[metric].unit == 'fraction' if ':' not in metric else False,
    ),
  )
  text = tables.to_text(
    marked, text_table.terminal_width(), metric, 'sweep.csv'
  )
  return text + ''.join(f'{note}\n' for note in notes)


def _point(run: plan.Run) -> str:
  return run.point


def _label(point: Sequence[plan.Run]) -> str:
  return f'{point[0].config["algorithm"]} {point[0].point}'


def _name(run: plan.Run) -> str:
  return f'{run.point} seed {run.seed}'


def _rows(points, failures, metric) -> list[tables.Row]:
  """Returns a row for each point, in order."""
  failed = [any(run.folder in failures for run in point) for point in points]
  if all(failed):
    raise errors.InputError(
      'no grid point has finished with all its seeds; the first failure:'
      f' {next(iter(failures.values()))}'
    )
  targets = [*targets_lib.parse(points[0][0].config['target'])]
  if metric and ':' in metric:
    targets.append(targets_lib.parse_one(metric))
  whole = [point for point, bad in zip(points, failed, strict=True) if not bad]
  found = tables.in_order([_group(point) for point in whole], targets)
  rest = iter(found)
  return [
    _failed(point, failures, found[0].columns) if bad else next(rest)
    for point, bad in zip(points, failed, strict=True)
  ]


def _failed(point, failures, columns) -> tables.Row:
  seeds = [run.seed for run in point if run.folder not in failures]
  nothing = {column.name: None for column in columns}
  return tables.Row(_label(point), tuple(seeds), nothing, columns)


def _group(point: Sequence[plan.Run]) -> groups.Group:
  runs = sorted(point, key=lambda run: run.seed)
  return groups.Group(
    _label(point),
    point[0].config['algorithm'],
    tuple(run_files.read_run(run.folder) for run in runs),
  )


def _best(rows: Sequence[tables.Row], metric: str) -> tables.Row | None:
  measured = [row for row in rows if row.values.get(metric)]
  if not measured:
    return None
  best = min(measured, key=lambda r: tables.place(r.values[metric], metric))
  return best if math.isfinite(best.values[metric].mean) else None


def _heading(metric: str) -> str:
  if ':' in metric:
    return targets_lib.parse_one(metric).heading
  return catalog.SCORES[metric].heading


def _csv_cells(points, rows, failures, best) -> list[dict]:
  """Returns the cells that only a sweep has: the point, and how it went."""
  return [
    {
      **point[0].values,
      'best': row is best,
      'failed_seeds': ' '.join(
        str(run.seed) for run in point if run.folder in failures
      ),
    }
    for point, row in zip(points, rows, strict=True)
  ]
