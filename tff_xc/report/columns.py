"""Columns of tables of runs: their values over seeds, and how they are printed."""

import dataclasses
import math
import statistics
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import groups as groups_lib
from tff_xc.report import units


@dataclasses.dataclass(frozen=True)
class Value:
  """A mean over seeds and its sample std, None with one seed."""

  mean: float
  std: float | None


@dataclasses.dataclass(frozen=True)
class RoundsTo(Value):
  """Rounds to a target; the mean is infinite if a seed did not reach it.

  Attributes:
    by_seed: the first evaluated round that reached it, or None.
    rounds: the rounds of each seed.
  """

  by_seed: tuple[int | None, ...]
  rounds: int

  @property
  def missed(self) -> int:
    """The number of seeds that did not reach the target."""
    return self.by_seed.count(None)

  def __str__(self) -> str:
    seeds = len(self.by_seed)
    if not self.missed:
      return with_std(1 if seeds > 1 else 0)(self)
    some = f' in {self.missed} of {seeds} seeds' if self.missed < seeds else ''
    return f'>{self.rounds}{some}'


@dataclasses.dataclass(frozen=True)
class Column:
  """A column's name in CSV, its heading, its source and its printed form.

  Attributes:
    name: the metric, total or target.
    heading: for people.
    read: summary -> value, or None; of a target's column it is None.
    show: prints a value.
  """

  name: str
  heading: str
  read: Callable[[dict[str, Any]], float | None] | None
  show: Callable[[Value], str]


def mean_and_std(found: Sequence[float]) -> tuple[float, float | None]:
  """Returns the mean and the sample std of the seeds' values."""
  std = statistics.stdev(found) if len(found) > 1 else None
  return statistics.fmean(found), std


def rounds_to(
  group: groups_lib.Group, target: targets_lib.Target
) -> RoundsTo | None:
  """Returns the rounds to a target; None if a run has no such metric."""
  tables = [run.metrics for run in group.runs]
  if not all(target.metric in t and t[target.metric].count() for t in tables):
    return None
  by_seed = tuple(target.first_round(table) for table in tables)
  mean, std = math.inf, None
  if None not in by_seed:
    mean, std = mean_and_std(by_seed)
  return RoundsTo(mean, std, by_seed, group.runs[0].summary['rounds'])


def csv_cells(column: Column, value: Value | None) -> dict[str, Any]:
  """Returns the cells of a value in CSV by heading: exact numbers."""
  name = column.name if column.read else f'rounds_to_{column.name}'
  mean, std = (value.mean, value.std) if value else (None, None)
  cells = {
    f'{name}_mean': None if mean == math.inf else mean,
    f'{name}_std': std,
  }
  if column.read is None:
    by_seed = [
      f'>{value.rounds}' if reached is None else str(reached)
      for reached in getattr(value, 'by_seed', ())
    ]
    cells[f'{name}_by_seed'] = ' '.join(by_seed)
  return cells


def with_std(digits: int, factor: float = 1.0) -> Callable[[Value], str]:
  """Returns a function that prints a value: '50.0 ± 3.0'."""

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
    show = with_std(1, 100)
    return Column(name, f'{metric.heading} %', _final(name), show)
  return Column(name, metric.heading, _final(name), with_std(4))


def _round_column(name, metric, total, show):
  heading = catalog.ROUND[metric].heading
  return Column(name, heading, _total(total), _mean_only(show))


COLUMNS = (
  Column('rounds', 'rounds', _total('rounds'), _mean_only('{:.0f}'.format)),
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
    units.human_bytes,
  ),
  _round_column(
    'bytes_up',
    'bytes_up_per_client',
    'bytes_up_per_client_round',
    units.human_bytes,
  ),
  Column(
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
TELLING = (
  *catalog.HEADLINES,
  *('macro_f1', 'mcc', 'class_rows', 'bytes_saving'),
  *('seconds_per_round', 'p@5', 'train_top1', 'class_distance_mean'),
)


def with_targets(targets: Sequence[targets_lib.Target]) -> list[Column]:
  """Returns the columns of every table, and those of targets."""
  rounds, *others = COLUMNS
  return [
    rounds,
    *(Column(t.name, t.heading, None, str) for t in targets),
    *others,
  ]
