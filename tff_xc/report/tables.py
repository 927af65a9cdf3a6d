"""Tables of several runs: one row per configuration, mean ± std over seeds.

Runs with equal settings, except the seed, are one row. The std is the sample's
(n - 1 in the denominator); one seed has no std. A value that one of the seeds
lacks is omitted, because readers would take a mean over fewer seeds for one
over all.
"""

import dataclasses
import statistics
import textwrap
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from tff_xc import errors
from tff_xc.measure import catalog
from tff_xc.report import groups as groups_lib
from tff_xc.report import text_table


@dataclasses.dataclass(frozen=True)
class Value:
  """A mean over seeds and its sample std, None with one seed."""

  mean: float
  std: float | None


@dataclasses.dataclass(frozen=True)
class Row:
  """One configuration's row; values by column name, None where unmeasured."""

  label: str
  seeds: tuple[int, ...]
  values: dict[str, Value | None]


@dataclasses.dataclass(frozen=True)
class _Column:
  """A column's name in CSV, its heading, its source and its printed form."""

  name: str
  heading: str
  read: Callable[[dict[str, Any]], float | None]
  show: Callable[[Value], str]


def human_bytes(size: float) -> str:
  """Returns `size` in bytes with three digits and a decimal unit: '1.09 MB'."""
  for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
    # 999.5 would print as 1000.
    if abs(size) < 999.5 or unit == 'TB':
      break
    size /= 1000
  digits = 0 if unit == 'B' or abs(size) >= 99.95 else 1
  digits = 2 if unit != 'B' and abs(size) < 9.995 else digits
  return f'{size:.{digits}f} {unit}'


def build_rows(
  groups: Sequence[groups_lib.Group], metric: str | None = None
) -> list[Row]:
  """Returns a row for each group, the best `metric` first.

  Args:
    groups: from `groups.group_runs`.
    metric: one of `catalog.SCORES`; None takes the first that any group has.

  Raises:
    errors.InputError: for a metric that no run has.
  """
  rows = [_row(group) for group in groups]
  present = [
    name
    for name in catalog.SCORES
    if any(row.values[name] is not None for row in rows)
  ]
  if metric is None:
    metric = present[0] if present else next(iter(catalog.SCORES))
  elif metric not in present:
    raise errors.InputError(
      f'none of the runs has a final {metric} of all its seeds; they have '
      f'{", ".join(present) or "no metric"}.'
    )

  sign = 1 if catalog.SCORES[metric].better == 'lower' else -1

  def place(row):
    value = row.values[metric]
    return (0, sign * value.mean) if value else (1, 0.0)

  return sorted(rows, key=place)


def to_text(
  rows: Sequence[Row],
  width: int | None = None,
  metric: str | None = None,
  elsewhere: str = 'the CSV',
) -> str:
  """Returns an aligned table for a terminal, ending in a newline.

  Args:
    rows: from `build_rows`.
    width: characters per line. The most informative columns that fit are
      printed, and a line below the table names the others. Long labels are
      wrapped. None: no limit.
    metric: the score that is always printed.
    elsewhere: the place of the other columns, for that line.
  """
  columns = _measured(rows)
  if width is None:
    return text_table.to_text(_cells(rows, columns))
  rows = [
    dataclasses.replace(
      row, label=textwrap.fill(row.label, max(width // 2, 20))
    )
    for row in rows
  ]
  order = [metric, *_TELLING, *(column.name for column in columns)]
  kept, text = [], ''
  for column in sorted(columns, key=lambda c: order.index(c.name)):
    more = [c for c in columns if c in kept or c is column]
    wider = text_table.to_text(_cells(rows, more))
    if not kept or max(map(len, wider.splitlines())) <= width:
      kept, text = more, wider
  others = ', '.join(c.heading for c in columns if c not in kept)
  if others:
    others = f'more columns in {elsewhere}: {others}'
    text += textwrap.fill(others, width) + '\n'
  return text


def to_markdown(rows: Sequence[Row]) -> str:
  """Returns a Markdown table, ending in a newline."""
  heading, *cells = [
    [cell.replace('|', '\\|') for cell in row]
    for row in _cells(rows, _measured(rows))
  ]
  rule = ['---'] + ['---:'] * (len(heading) - 1)
  return ''.join(f'| {" | ".join(row)} |\n' for row in [heading, rule, *cells])


def to_csv(rows: Sequence[Row]) -> str:
  """Returns CSV with exact numbers (fractions, bytes), each as mean and std.

  Spaces separate seeds. A value that was not measured is an empty cell.
  """
  import pandas as pd  # Late: `launch.compare` checks directories first.

  table = pd.DataFrame(
    {
      'algorithm': row.label,
      'seeds': ' '.join(map(str, row.seeds)),
      **{
        f'{column.name}_{part}': getattr(row.values[column.name], part, None)
        for column in _COLUMNS
        for part in ('mean', 'std')
      },
    }
    for row in rows
  )
  return table.to_csv(index=False, lineterminator='\n')


def _row(group: groups_lib.Group) -> Row:
  values = {}
  for column in _COLUMNS:
    found = [column.read(run.summary) for run in group.runs]
    if any(value is None for value in found):
      values[column.name] = None
      continue
    std = statistics.stdev(found) if len(found) > 1 else None
    values[column.name] = Value(statistics.fmean(found), std)
  return Row(group.label, tuple(run.seed for run in group.runs), values)


def _measured(rows: Sequence[Row]) -> list[_Column]:
  """Returns the columns in which at least one row has a value."""
  return [
    column
    for column in _COLUMNS
    if any(row.values[column.name] is not None for row in rows)
  ]


def _cells(rows: Sequence[Row], columns: Sequence[_Column]) -> list[list[str]]:
  """Returns the heading and the rows as printed."""
  cells = [['algorithm', 'seeds', *(column.heading for column in columns)]]
  for row in rows:
    values = [(column, row.values[column.name]) for column in columns]
    cells.append(
      [row.label, str(len(row.seeds))]
      + [column.show(value) if value else '–' for column, value in values]
    )
  return cells


def _with_std(digits: int, factor: float = 1.0) -> Callable[[Value], str]:
  def show(value):
    text = f'{value.mean * factor:.{digits}f}'
    if value.std is not None:
      text += f' ± {value.std * factor:.{digits}f}'
    return text

  return show


def _mean_only(show: Callable[[float], str]) -> Callable[[Value], str]:
  return lambda value: show(value.mean)


def _final(name):
  return lambda summary: summary['final'].get(name)


def _total(name):
  return lambda summary: summary.get(name)


def _score_column(name):
  metric = catalog.SCORES[name]
  if metric.unit == 'fraction':
    show = _with_std(1, 100)
    return _Column(name, f'{metric.heading} %', _final(name), show)
  return _Column(name, metric.heading, _final(name), _with_std(4))


def _round_column(name, metric, total, show):
  heading = catalog.ROUND[metric].heading
  return _Column(name, heading, _total(total), _mean_only(show))


_COLUMNS = (
  _Column('rounds', 'rounds', _total('rounds'), _mean_only('{:.0f}'.format)),
  *map(_score_column, catalog.SCORES),
  _round_column(
    'class_rows',
    'class_rows',
    'class_rows_requested_mean',
    '{:.1f}'.format,
  ),
  _round_column(
    'bytes_down',
    'bytes_down_per_client',
    'bytes_down_per_client_round',
    human_bytes,
  ),
  _round_column(
    'bytes_up',
    'bytes_up_per_client',
    'bytes_up_per_client_round',
    human_bytes,
  ),
  _Column(
    'bytes_saving',
    'saved %',
    _total('bytes_saving_vs_fullsoftmax'),
    _mean_only(lambda saving: f'{100 * saving:.1f}'),
  ),
  _round_column(
    'seconds_per_round',
    'seconds',
    'seconds_per_round_median',
    '{:.3g}'.format,
  ),
)

# The first columns of a narrow table; the others follow in their own order.
_TELLING = (
  *catalog.HEADLINES,
  *('macro_f1', 'mcc', 'class_rows', 'bytes_saving'),
  *('seconds_per_round', 'p@5', 'train_top1', 'class_distance_mean'),
)
