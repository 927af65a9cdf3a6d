"""Pictures of several configurations. Importing this imports Matplotlib."""

import os
import textwrap
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.figure
import matplotlib.lines
import numpy as np
import pandas as pd
from matplotlib import ticker

from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.measure import communication
from tff_xc.report import curves
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures


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


def _batches(metrics: pd.DataFrame) -> pd.Series:
  until = budgets.spent(metrics, 'batches')
  return pd.Series(np.nan, metrics.index) if until is None else until


AXES: Mapping[str, _Axis] = {
  'rounds': _Axis('round', '', lambda metrics: metrics['round']),
  'batches': _Axis('local batches', '', _batches),
  'bytes': _Axis('bytes of all clients, down and up', 'B', _bytes),
  'seconds': _Axis(
    'seconds of training', 's', lambda m: m['seconds'].fillna(0).cumsum()
  ),
}


def plot_compare(
  groups: Sequence[groups_lib.Group],
  path: str | os.PathLike,
  scores: Sequence[str] = (),
  over: str = 'rounds',
) -> None:
  """Draws several configurations in one picture, a panel for each score.

  It draws the mean over seeds in a band of one sample std, without rounds that a
  seed did not measure. Without `scores` these are top-1, P@1 and MAP@10. Then,
  if configurations differ in the class parameters that a client receives
  (FedSS, figs 5 and 10), it also draws the final value of the first of these
  metrics against them.

  Args:
    groups: from `groups.group_runs`, at least one.
    path: the file to write, a .png.
    scores: names of `catalog.SCORES`.
    over: what they are drawn over, one of `AXES`.
  """
  measured = [
    score
    for score in scores or catalog.HEADLINES
    if any(len(_band(group, score)) for group in groups)
  ]
  points = None if scores else _sent_against_score(groups)
  panels = [*measured, *(['sent'] if points else [])] or [*scores] or ['top1']
  across = min(len(panels), 3)
  down = -(-len(panels) // across)
  figure = matplotlib.figure.Figure(
    figsize=(max(6.5, 5.2 * across), 4.2 * down + 0.24 * len(groups)),
    layout='constrained',
  )
  axes = figure.subplots(down, across, squeeze=False).flat
  for ax in axes[len(panels) :]:
    ax.set_axis_off()
  for ax, panel in zip(axes, panels, strict=False):
    if panel == 'sent':
      _draw_sent(ax, *points)
    else:
      _draw_score(ax, groups, panel, over)
  figure.legend(
    handles=[
      _handle(g, s) for g, s in zip(groups, pictures.styles(), strict=False)
    ],
    loc='outside lower center',
    ncols=1 if max(len(g.label) for g in groups) > 40 else 2,
    frameon=False,
  )
  pictures.save(figure, path)


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


def _sent_against_score(groups):
  """Returns (metric, axis label, [(x, mean, std)]), or None.

  It returns None if all runs request the same number of rows.
  """
  for metric in catalog.HEADLINES:
    points = []
    for group in groups:
      rows = [r.summary.get('class_rows_requested_mean') for r in group.runs]
      scores = [r.summary['final'].get(metric) for r in group.runs]
      sent = [r.summary.get('bytes_down_per_client_round') for r in group.runs]
      # Centralised training sends nothing.
      if None in rows or None in scores or None in sent or not all(sent):
        points.append(None)
        continue
      std = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
      points.append((float(np.mean(rows)), float(np.mean(scores)), std))
    dims = [
      groups_lib.settings_of(g.runs[0]).get('embedding_dim') for g in groups
    ]
    label = 'class rows sent to a client, |S|'
    if all(isinstance(dim, int) for dim in dims):
      label = 'class parameters sent to a client, |S| · d'
      points = [
        p and (communication.class_parameters_sent(p[0], dim), *p[1:])
        for p, dim in zip(points, dims, strict=True)
      ]
    if len({p[0] for p in points if p}) > 1:
      return metric, label, points
  return None


def _draw_sent(ax, metric, label, points):
  for point, style in zip(points, pictures.styles(), strict=False):
    if not point:
      continue
    x, mean, std = point
    ax.errorbar(
      x,
      mean,
      yerr=std,
      color=style[0],
      marker=style[2],
      markersize=7,
      capsize=3,
    )
  xs = [point[0] for point in points if point]
  if max(xs) > 10 * min(xs) > 0:
    ax.set_xscale('log')
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=' '))
  ax.set_xlabel(label)
  heading = catalog.SCORES[metric].heading
  ax.set_ylabel(f'final {heading}')
  ax.set_title(f'{heading} for what a client is sent')
  ax.grid(alpha=0.3)


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
