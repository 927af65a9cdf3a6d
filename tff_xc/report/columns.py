"""Columns of tables of runs: their values over seeds, and how they are printed."""

import dataclasses
import math
import statistics
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tff_xc import errors
from tff_xc import wording
from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import groups as groups_lib
from tff_xc.report import run_files


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
    rounds: the fewest rounds of a seed that did not reach it, as some may have
      stopped early; if all did, of any seed.
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
    name: the metric, total, target or budget.
    heading: for people.
    of: group -> value, or None if one of its runs lacks it.
    show: prints a value.
    is_target: whether its values are `RoundsTo`.
    is_asked_for: whether it is shown even if no group has a value.
  """

  name: str
  heading: str
  of: Callable[[groups_lib.Group], Value | None]
  show: Callable[[Value], str]
  is_target: bool = False
  is_asked_for: bool = False


def mean_and_std(found: Sequence[float]) -> tuple[float, float | None]:
  """Returns the mean and the sample std of the seeds' values."""
  std = statistics.stdev(found) if len(found) > 1 else None
  return statistics.fmean(found), std


def _over_runs(
  read: Callable[[run_files.Run], float | None],
) -> Callable[[groups_lib.Group], Value | None]:
  def of(group):
    found = [read(run) for run in group.runs]
    return None if None in found else Value(*mean_and_std(found))

  return of


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
  short = [
    run.summary['rounds']
    for run, reached in zip(group.runs, by_seed, strict=True)
    if reached is None or None not in by_seed
  ]
  return RoundsTo(mean, std, by_seed, min(short))


def csv_cells(column: Column, value: Value | None) -> dict[str, Any]:
  """Returns the cells of a value in CSV by heading: exact numbers."""
  name = f'rounds_to_{column.name}' if column.is_target else column.name
  mean, std = (value.mean, value.std) if value else (None, None)
  cells = {
    f'{name}_mean': None if mean == math.inf else mean,
    f'{name}_std': std,
  }
  if column.is_target:
    by_seed = [
      f'>{value.rounds}' if reached is None else str(reached)
      for reached in getattr(value, 'by_seed', ())
    ]
    cells[f'{name}_by_seed'] = ' '.join(by_seed)
  return cells


def _fixed(value: float, digits: int) -> str:
  """Returns a number as text, and 0.0 in place of -0.0."""
  return f'{round(value, digits) + 0.0:.{digits}f}'


def with_std(digits: int, factor: float = 1.0) -> Callable[[Value], str]:
  """Returns a function that prints a value: '50.0 ± 3.0'."""

  def show(value):
    text = _fixed(value.mean * factor, digits)
    if value.std is not None:
      text += f' ± {value.std * factor:.{digits}f}'
    return text

  return show


def _mean_only(show: Callable[[float], str]) -> Callable[[Value], str]:
  return lambda value: show(value.mean)


def _total(name):
  return _over_runs(lambda run: run.summary.get(name))


def _shown(name: str) -> tuple[str, Callable[[Value], str]]:
  """Returns the heading of a score and how it is printed."""
  metric = catalog.SCORES[name]
  if metric.unit == 'fraction':
    return f'{metric.heading} %', with_std(1, 100)
  return metric.heading, with_std(4)


def _score_column(name):
  heading, show = _shown(name)
  read = lambda run: run.summary['final'].get(name)
  return Column(name, heading, _over_runs(read), show)


def _round_column(name, metric, total, show):
  heading = catalog.ROUND[metric].heading
  return Column(name, heading, _total(total), _mean_only(show))


COLUMNS = (
  Column('rounds', 'rounds', _total('rounds'), _mean_only('{:.0f}'.format)),
  Column('emd', 'EMD', _total('emd'), _mean_only('{:.2f}'.format)),
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
    wording.human_bytes,
  ),
  _round_column(
    'bytes_up',
    'bytes_up_per_client',
    'bytes_up_per_client_round',
    wording.human_bytes,
  ),
  Column(
    'bytes_saving',
    'saved %',
    _total('bytes_saving_vs_fullsoftmax'),
    _mean_only(lambda saving: _fixed(100 * saving, 1)),
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


def with_targets(
  targets: Iterable[targets_lib.Target], more: Iterable[Column] = ()
) -> tuple[Column, ...]:
  """Returns the columns of every table, those of targets, and more."""
  rounds, *others = COLUMNS
  of = lambda target: lambda group: rounds_to(group, target)
  reached = (
    Column(t.name, t.heading, of(t), str, is_target=True) for t in targets
  )
  return (rounds, *reached, *more, *others)


def whole(reference: groups_lib.Group, score: str) -> float:
  """Returns the final score of a reference, the mean over its seeds.

  Raises:
    errors.InputError: it has none, or nothing can be related to it.
  """
  value = _score_column(score).of(reference)
  if catalog.SCORES[score].unit != 'fraction' or not (value and value.mean > 0):
    found = 'none' if value is None else f'{value.mean:.4g}'
    raise errors.InputError(
      f'{reference.runs[0].path} is no reference for {score}: its final'
      f' {score} is {found}; scores can be related to a fraction above 0'
    )
  return value.mean


def relative(
  score: str, whole: float, parts: Sequence[float] = ()
) -> tuple[Column, ...]:
  """Returns columns of a score over that of a reference, such as centralised.

  Hsu, Qi and Brown's relative accuracy (arXiv:2003.08082), and the rounds until
  it reaches some values (their Table 5).

  Args:
    score: one of `catalog.SCORES` that is a fraction.
    whole: the score of the reference, not 0.
    parts: relative scores to which to count the rounds, such as 0.5.
  """
  heading, show = _shown(score)

  def read(run):
    found = run.summary['final'].get(score)
    return None if found is None else found / whole

  def reached(part):
    target = targets_lib.Target(score, part * whole)
    return lambda group: rounds_to(group, target)

  return (
    Column(f'relative_{score}', f'relative {heading}', _over_runs(read), show),
    *(
      Column(
        f'relative_{score}:{part:.12g}',
        f'rounds to relative {100 * part:.10g} %',
        reached(part),
        str,
        is_target=True,
      )
      for part in parts
    ),
  )


def at_budget(budget: budgets.Budget, score: str) -> Column:
  """Returns the column of a score when runs have spent a budget."""
  heading, show = _shown(score)
  read = lambda run: budget.score(run.metrics, score)
  name = f'{score}@{budget.name}'
  heading = f'{heading} {budget.heading}'
  return Column(name, heading, _over_runs(read), show, is_asked_for=True)
