"""Tables of several runs: one row per configuration, mean ± std over seeds.

Runs with equal settings, except the seed, are one row. The std is the sample's
(n - 1 in the denominator); one seed has no std. A value that one of the seeds
lacks is omitted, because readers would take a mean over fewer seeds for one
over all. Likewise, rounds to a target have a mean only if every seed reached it.
"""

import dataclasses
import math
import textwrap
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tff_xc import errors
from tff_xc import wording
from tff_xc.measure import budgets as budgets_lib
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import columns as columns_lib
from tff_xc.report import groups as groups_lib
from tff_xc.report import text_table

# The parts of a reference's score to which rounds are counted: Hsu, Qi and
# Brown's Table 5.
RELATIVE = (0.1, 0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class Row:
  """One configuration's row; values by column name, None where unmeasured.

  A target's column has the target's name. All rows of a table have the same
  columns.
  """

  label: str
  seeds: tuple[int, ...]
  values: dict[str, columns_lib.Value | None]
  columns: tuple[columns_lib.Column, ...]


def build_rows(
  groups: Sequence[groups_lib.Group],
  metric: str | None = None,
  targets: Sequence[targets_lib.Target] | None = None,
  budgets: Sequence[budgets_lib.Budget] = (),
  reference: groups_lib.Group | None = None,
) -> list[Row]:
  """Returns a row for each group, the best `metric` first.

  Args:
    groups: from `groups.group_runs`.
    metric: one of `catalog.SCORES`, or the name of a target, of which fewer
      rounds are better; None takes the first score that any group has.
    targets: those to count the rounds to; None: those of the runs.
    budgets: of rounds or batches, at which to show the score, or the target's
      score, that rows are sorted by.
    reference: a configuration to whose final score that score is related, such
      as centralised training. Rounds are counted to a tenth, half and nine
      tenths of it.

  Raises:
    errors.InputError: for a metric, or one of `targets`, that no run has, or a
      reference to whose score nothing can be related.
  """
  wanted = [target.name for target in targets or ()]
  if targets is None:
    targets = _targets_of(groups)
  if metric is not None:
    wanted.append(metric)
    if ':' in metric:
      targets = [*targets, targets_lib.parse_one(metric)]
  rows = in_order(groups, targets)
  present = measured(rows)
  # The score of a target, if rows are sorted by one.
  first = metric and metric.partition(':')[0]
  scores = [n for n in (first, *present) if n in catalog.SCORES]
  if scores and (budgets or reference):
    more = [columns_lib.at_budget(b, scores[0]) for b in budgets]
    if reference:
      whole = columns_lib.whole(reference, scores[0])
      more += columns_lib.relative(scores[0], whole, RELATIVE)
    rows = in_order(groups, targets, more)
  for name in wanted:
    if name not in present:
      raise errors.InputError(
        f'none of the runs has {_explained(name)}; they have '
        f'{", ".join(present) or "no metric"}.'
      )
  if metric is None:
    metric = present[0] if present else next(iter(catalog.SCORES))
  return sorted(rows, key=lambda row: place(row.values[metric], metric))


def in_order(
  groups: Sequence[groups_lib.Group],
  targets: Iterable[targets_lib.Target],
  more: Sequence[columns_lib.Column] = (),
) -> list[Row]:
  """Returns a row for each group, in their order, with columns of `more`."""
  columns = columns_lib.with_targets(dict.fromkeys(targets), more)
  return [
    Row(
      group.label,
      tuple(run.seed for run in group.runs),
      {column.name: column.of(group) for column in columns},
      columns,
    )
    for group in groups
  ]


def measured(rows: Sequence[Row]) -> list[str]:
  """Returns the scores, then the targets, of which any row has a value."""
  columns = _measured(rows)
  scores = [c.name for c in columns if c.name in catalog.SCORES]
  return [*scores, *(c.name for c in columns if c.is_target)]


def _explained(name: str) -> str:
  if ':' in name:
    return f'the scores of all its seeds that the target {name} needs'
  return f'a final {name} of all its seeds'


def place(value: columns_lib.Value | None, metric: str) -> tuple:
  """Returns the key that sorts values of a metric, the best first."""
  if value is None:
    return (math.inf,)
  if isinstance(value, columns_lib.RoundsTo):
    # Of two that missed it, the one that more seeds reached.
    return (value.missed, value.mean)
  sign = 1 if catalog.SCORES[metric].better == 'lower' else -1
  return (0, sign * value.mean)


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
  common = {column.name for column in columns_lib.COLUMNS}
  asked_for = [c.name for c in columns if c.name not in common]
  first = [metric, *catalog.HEADLINES, *asked_for, *columns_lib.TELLING]
  order = [*first, *(column.name for column in columns)]
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
  return text_table.to_markdown(_cells(rows, _measured(rows)))


def to_csv(
  rows: Sequence[Row], more: Sequence[Mapping[str, Any]] | None = None
) -> str:
  """Returns CSV with exact numbers (fractions, bytes), each as mean and std.

  Spaces separate seeds. A value that was not measured is an empty cell. Rounds
  to a target are also there for each seed, as '54 >200'; their mean and std are
  empty if a seed did not reach it.

  Args:
    rows: from `build_rows`.
    more: further cells of each row, by heading.
  """
  import pandas as pd  # Late: `launch.compare` checks directories first.

  table = pd.DataFrame(
    {
      'algorithm': wording.cell(row.label),
      'seeds': ' '.join(map(str, row.seeds)),
      **others,
      **{
        name: cell
        for column in row.columns
        for name, cell in columns_lib.csv_cells(
          column, row.values[column.name]
        ).items()
      },
    }
    for row, others in zip(rows, more or [{}] * len(rows), strict=True)
  )
  return table.to_csv(index=False, lineterminator='\n')


def _targets_of(groups) -> list[targets_lib.Target]:
  """Returns the targets that the runs were trained with."""
  return [
    target
    for group in groups
    for run in group.runs
    for target in targets_lib.parse(run.config.get('target', ''))
  ]


def _measured(rows: Sequence[Row]) -> list[columns_lib.Column]:
  """Returns the columns that a row has a value of, or that were asked for."""
  return [
    column
    for column in (rows[0].columns if rows else ())
    if column.is_asked_for
    or any(row.values[column.name] is not None for row in rows)
  ]


def _cells(
  rows: Sequence[Row], columns: Sequence[columns_lib.Column]
) -> list[list[str]]:
  """Returns the heading and the rows as printed."""
  cells = [['algorithm', 'seeds', *(column.heading for column in columns)]]
  for row in rows:
    values = [(column, row.values[column.name]) for column in columns]
    cells.append(
      [row.label, str(len(row.seeds))]
      + [column.show(value) if value else '–' for column, value in values]
    )
  return cells
