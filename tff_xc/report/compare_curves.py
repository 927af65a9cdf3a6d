"""Pictures of several configurations. Importing this imports Matplotlib."""

import textwrap
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.figure
import matplotlib.lines
import pandas as pd
from matplotlib import ticker

from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.report import curves
from tff_xc.report import final_points
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures

# The characters of a label, for each inch of a picture's width, that leave room
# for a second column of labels.
_HALF_LINE = 5.5


class _Axis(NamedTuple):
  """What scores are drawn over.

  Attributes:
    label: for people.
    unit: 'bytes', 's' or ''.
    upto: metrics of a run -> what was spent until the end of every round.
  """

  label: str
  unit: str
  upto: Callable[[pd.DataFrame], pd.Series]


def _bytes(metrics: pd.DataFrame) -> pd.Series:
  each = metrics['bytes_down_per_client'] + metrics['bytes_up_per_client']
  return (each * metrics['clients']).fillna(0).cumsum()


AXES: Mapping[str, _Axis] = {
  'rounds': _Axis('round', '', lambda metrics: metrics['round']),
  'batches': _Axis(
    'local batches', '', lambda metrics: budgets.spent(metrics, 'batches')
  ),
  'bytes': _Axis('bytes of all clients, down and up', 'B', _bytes),
  'seconds': _Axis(
    'seconds of training', 's', lambda m: m['seconds'].fillna(0).cumsum()
  ),
}


def compare_figure(
  groups: Sequence[groups_lib.Group],
  scores: Sequence[str] = (),
  over: str = 'rounds',
  reference: groups_lib.Group | None = None,
  final: str | None = None,
) -> matplotlib.figure.Figure:
  """Draws several configurations in one picture, a panel for each score.

  It draws the mean over seeds in a band of one sample std, without rounds that a
  seed did not measure. Without `scores` these are top-1, P@1 and MAP@10. Then it
  also draws a final value against what configurations differ in, see
  `final_points`.

  Args:
    groups: from `groups.group_runs`, at least one.
    scores: names of `catalog.SCORES`.
    over: what they are drawn over, one of `AXES`.
    reference: a configuration whose final score is the whole of the others'.
    final: the score of which final values are drawn; None: the first of these
      metrics.

  Raises:
    errors.InputError: the reference has no such score.
  """
  measured = [
    score
    for score in scores or catalog.HEADLINES
    if any(len(_band(group, score)) for group in groups)
  ]
  against = [] if scores else final_points.panels(groups, reference, final)
  panels = [*measured, *against] or [*scores] or ['top1']
  across = min(len(panels), 3)
  down = -(-len(panels) // across)
  width = max(6.5, 5.2 * across)
  figure = matplotlib.figure.Figure(
    figsize=(width, 4.2 * down + 0.24 * len(groups)), layout='constrained'
  )
  axes = figure.subplots(down, across, squeeze=False).flat
  for ax in axes[len(panels) :]:
    ax.set_axis_off()
  for ax, panel in zip(axes, panels, strict=False):
    if isinstance(panel, str):
      _draw_score(ax, groups, panel, over)
    else:
      final_points.draw(ax, panel)
  handles = [
    _handle(g, s) for g, s in zip(groups, pictures.styles(), strict=False)
  ]
  longest = max(len(handle.get_label()) for handle in handles)
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=2 if longest <= _HALF_LINE * width else 1,
    frameon=False,
  )
  return figure


def _draw_score(ax, groups, score, over):
  for group, style in zip(groups, pictures.styles(), strict=False):
    _draw_band(ax, _band(group, score, over), style)
  heading, axis = catalog.SCORES[score].heading, AXES[over]
  curves.finish_over_rounds(ax, f'{heading} on {groups[0].runs[0].task}', '')
  ax.set_xlabel(axis.label)
  ax.set_ylabel(heading)
  if axis.unit:
    ax.xaxis.set_major_formatter(ticker.EngFormatter(axis.unit, sep=' '))


def _band(group, metric, over: str = 'rounds') -> pd.DataFrame:
  """Returns round, x, mean, std, for rounds measured by every seed.

  x is the mean over seeds of what was spent until then.
  """
  if any(metric not in run.metrics for run in group.runs):
    return pd.DataFrame(columns=['round', 'x', 'mean', 'std'])
  rows = pd.concat(
    [
      run.metrics[['round', metric]].assign(x=AXES[over].upto(run.metrics))
      for run in group.runs
    ]
  )
  of_round = rows.dropna().groupby('round')
  table = of_round[metric].agg(['mean', 'std', 'count'])
  table.insert(0, 'x', of_round['x'].mean())
  table = table[table['count'] == len(group.runs)]
  return table.drop(columns='count').reset_index()


def _draw_band(ax, band, style):
  colour, line, marker = style
  if not len(band):
    return
  ax.plot(
    band['x'],
    band['mean'],
    color=colour,
    linestyle=line,
    marker=marker if len(band) <= 25 else None,
    markersize=4,
  )
  if band['std'].notna().all():
    low, high = band['mean'] - band['std'], band['mean'] + band['std']
    ax.fill_between(band['x'], low, high, color=colour, alpha=0.18, lw=0)


def _handle(group, style):
  colour, line, marker = style
  seeds = len(group.runs)
  more = f' ({seeds} seeds, mean ± std)' if seeds > 1 else ''
  return matplotlib.lines.Line2D(
    [],
    [],
    color=colour,
    linestyle=line,
    marker=marker,
    markersize=5,
    label=textwrap.fill(group.label + more, 76, subsequent_indent='  '),
  )
