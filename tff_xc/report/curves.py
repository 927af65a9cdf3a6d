"""Pictures of runs, drawn without a display. Importing this imports Matplotlib."""

import itertools
import os
import textwrap
from collections.abc import Sequence

import matplotlib.figure
import matplotlib.lines
import numpy as np
import pandas as pd
from matplotlib import ticker

from tff_xc.measure import catalog
from tff_xc.measure import communication
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures
from tff_xc.report import run_files

_TRAINING = ('accuracy', 'train_top1')


def plot_run(run: run_files.Run, path: str | os.PathLike) -> None:
  """Draws one run: loss, accuracies, bytes, and the cohort, over rounds.

  It omits columns that the run's metrics.csv lacks.

  Args:
    run: with or without a summary.
    path: the file to write, a .png.
  """
  panels = [
    ('Training loss', 'loss', ('loss',)),
    ('Training accuracy', 'fraction', _TRAINING),
    ('Held-out examples', 'fraction', catalog.HELD_OUT),
    (
      'Bytes of one client and round',
      'bytes',
      ('bytes_down_per_client', 'bytes_up_per_client'),
    ),
    ('Class rows', 'rows', ('class_rows',)),
    ('Cohort', 'clients', ('clients', 'clients_dropped')),
  ]
  if set(catalog.DISTANCES) & set(run.metrics):
    panels.append(('Class rows of length 1', 'distance', catalog.DISTANCES))
  lines = -(-len(panels) // 2)
  figure = matplotlib.figure.Figure(
    figsize=(11, 2.5 * lines), layout='constrained'
  )
  axes = figure.subplots(lines, 2)
  for ax in axes.flat[len(panels) :]:
    ax.set_axis_off()
  for ax, (title, unit, columns) in zip(axes.flat, panels, strict=False):
    for style, column in zip(pictures.styles(), columns, strict=False):
      if column in run.metrics:
        measured = run.metrics[['round', column]].dropna()
        _draw_line(ax, measured['round'], measured[column], column, style)
    _finish_over_rounds(ax, title, unit)
  figure.suptitle(f'{run.algorithm} on {run.task}, seed {run.seed}')
  pictures.save(figure, path)


def plot_compare(
  groups: Sequence[groups_lib.Group], path: str | os.PathLike
) -> None:
  """Draws several configurations in one picture.

  It draws top-1, P@1 and MAP@10 over rounds: the mean over seeds in a band of
  one sample std, without rounds that a seed did not measure. If configurations
  differ in the class parameters that a client receives (FedSS, figs 5 and 10),
  it also draws the final value of the first of these metrics against them.

  Args:
    groups: from `groups.group_runs`, at least one.
    path: the file to write, a .png.
  """
  measured = [
    metric
    for metric in catalog.HEADLINES
    if any(len(_band(group, metric)) for group in groups)
  ]
  points = _sent_against_score(groups)
  panels = [*measured, *(['sent'] if points else [])] or ['top1']
  figure = matplotlib.figure.Figure(
    figsize=(max(6.5, 5.2 * len(panels)), 4.2 + 0.24 * len(groups)),
    layout='constrained',
  )
  axes = figure.subplots(1, len(panels), squeeze=False)[0]
  for ax, panel in zip(axes, panels, strict=True):
    if panel == 'sent':
      _draw_sent(ax, *points)
    else:
      for group, style in zip(groups, pictures.styles(), strict=False):
        _draw_band(ax, _band(group, panel), style)
      heading = catalog.SCORES[panel].heading
      _finish_over_rounds(ax, f'{heading} on {groups[0].runs[0].task}', '')
      ax.set_ylabel(heading)
  figure.legend(
    handles=[
      _handle(g, s) for g, s in zip(groups, pictures.styles(), strict=False)
    ],
    loc='outside lower center',
    ncols=1 if max(len(g.label) for g in groups) > 40 else 2,
    frameon=False,
  )
  pictures.save(figure, path)


def plot_confusion(
  matrix: np.ndarray,
  class_ids: Sequence[int],
  path: str | os.PathLike,
  title: str = "One client's confusion matrix",
) -> None:
  """Draws a confusion matrix of one client (FedSS, fig. 7).

  Cells are shares of their row. The last column is all classes that the client
  does not hold.

  Args:
    matrix: int [c, c + 1], from `ranking.confusion`.
    class_ids: int [c], the classes of its rows.
    path: the file to write, a .png.
    title: text above the picture.

  Raises:
    ValueError: for a matrix of another shape.
  """
  matrix = np.asarray(matrix)
  count = len(class_ids)
  if matrix.shape != (count, count + 1):
    raise ValueError(
      f'Expected a matrix of shape {(count, count + 1)}, got {matrix.shape}.'
    )
  shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
  size = min(12.0, 4.5 + 0.16 * count)
  figure = matplotlib.figure.Figure(
    figsize=(size + 1, size), layout='constrained'
  )
  ax = figure.subplots()
  image = ax.imshow(shares, cmap='Blues', vmin=0, vmax=1, aspect='auto')
  ax.axvline(count - 0.5, color='black', linewidth=1)
  every = -(-count // 30)  # At most 30 labels stay legible.
  places = list(range(0, count, every))
  names = [str(class_ids[place]) for place in places]
  ax.set_yticks(places, names, fontsize=8)
  if places and count - places[-1] < every:  # It would touch 'another'.
    places, names = places[:-1], names[:-1]
  ax.set_xticks([*places, count], [*names, 'another'], rotation=90, fontsize=8)
  if count <= 12:
    for row, column in itertools.product(range(count), range(count + 1)):
      if matrix[row, column]:
        dark = shares[row, column] > 0.5
        ax.text(
          column,
          row,
          str(matrix[row, column]),
          ha='center',
          va='center',
          color='white' if dark else 'black',
        )
  ax.set_xlabel('predicted class')
  ax.set_ylabel('true class')
  ax.set_title(title)
  figure.colorbar(image, ax=ax, label='share of the true class')
  pictures.save(figure, path)


def _draw_line(ax, rounds, values, column, style):
  colour, line, marker = style
  few = len(rounds) <= 25
  ax.plot(
    rounds,
    values,
    color=colour,
    linestyle=line,
    marker=marker if few else None,
    markersize=4,
    label=catalog.METRICS[column].heading,
  )


def _finish_over_rounds(ax, title, unit):
  """Labels an axis over rounds, also if nothing was measured."""
  ax.set_title(title)
  ax.set_xlabel('round')
  ax.set_ylabel(unit)
  ax.grid(alpha=0.3)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
  if not ax.lines:
    ax.text(0.5, 0.5, 'not measured', ha='center', transform=ax.transAxes)
    return
  if unit == 'bytes':
    ax.yaxis.set_major_formatter(ticker.EngFormatter('B', sep=' '))
  if unit in ('bytes', 'rows', 'clients', 'distance'):
    ax.set_ylim(bottom=0)
    low, high = ax.get_ylim()
    ax.set_ylim(low, 1.1 * high)
  lines = len(ax.get_legend_handles_labels()[0])
  if lines > 4:  # It would cover the lines.
    ax.legend(
      frameon=False, fontsize=8, loc='center left', bbox_to_anchor=(1, 0.5)
    )
  elif lines > 1:
    ax.legend(frameon=False, fontsize=9)


def _band(group, metric) -> pd.DataFrame:
  """Returns round, mean, std, for rounds measured by every seed."""
  if any(metric not in run.metrics for run in group.runs):
    return pd.DataFrame(columns=['round', 'mean', 'std'])
  rows = pd.concat([run.metrics[['round', metric]] for run in group.runs])
  table = rows.dropna().groupby('round')[metric].agg(['mean', 'std', 'count'])
  table = table[table['count'] == len(group.runs)]
  return table.drop(columns='count').reset_index()


def _draw_band(ax, band, style):
  colour, line, marker = style
  if not len(band):
    return
  ax.plot(
    band['round'],
    band['mean'],
    color=colour,
    linestyle=line,
    marker=marker if len(band) <= 25 else None,
    markersize=4,
  )
  if band['std'].notna().all():
    low, high = band['mean'] - band['std'], band['mean'] + band['std']
    ax.fill_between(band['round'], low, high, color=colour, alpha=0.18, lw=0)


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
