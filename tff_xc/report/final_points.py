"""Panels of final scores against what configurations differ in, a point each.

Importing this imports Matplotlib.
"""

import textwrap
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import ticker

from tff_xc.measure import catalog
from tff_xc.measure import communication
from tff_xc.report import columns
from tff_xc.report import groups as groups_lib
from tff_xc.report import pictures
from tff_xc.report import run_files


class Panel(NamedTuple):
  """Final scores against something.

  Attributes:
    title: of the panel.
    x_label: what the configurations differ in.
    y_label: the score.
    points: (x, mean, std) of each configuration; None without a score, std None
      with one seed.
    lines: the configurations with one name are joined by a line of this name;
      empty: none are.
  """

  title: str
  x_label: str
  y_label: str
  points: tuple[tuple[float, float, float | None] | None, ...]
  lines: tuple[str, ...] = ()


def panels(
  groups: Sequence[groups_lib.Group],
  reference: groups_lib.Group | None = None,
  score: str | None = None,
) -> list[Panel]:
  """Returns the panels in which configurations differ, at most two.

  The first is against the class parameters that a client receives (FedSS, figs 5
  and 10), the second against the skew of the clients' classes (Hsu, Qi and
  Brown, fig. 4).

  Args:
    groups: from `groups.group_runs`.
    reference: a configuration; the second panel has scores over its own.
    score: the one that is drawn; None: the first headline metric that tells
      configurations apart.

  Raises:
    errors.InputError: the reference has no such score.
  """
  scores = (score,) if score else tuple(catalog.HEADLINES)
  both = _sent(groups, scores), _skew(groups, scores, reference)
  return [panel for panel in both if panel]


def draw(ax, panel: Panel) -> None:
  """Draws a panel, in the styles of the configurations' curves.

  Args:
    ax: Matplotlib's axes.
    panel: from `panels`.
  """
  lines = {name: [] for name in panel.lines}
  for point, name in zip(panel.points, panel.lines, strict=False):
    if point:
      lines[name].append(point[:2])
  joined = {name: line for name, line in lines.items() if len(line) > 1}
  for (name, line), (_, dash, _) in zip(
    joined.items(), pictures.styles(), strict=False
  ):
    ax.plot(
      *zip(*sorted(line), strict=True),
      color='0.5',
      linestyle=dash,
      linewidth=1,
      zorder=0,
      label=textwrap.fill(name, 40),
    )
  for point, style in zip(panel.points, pictures.styles(), strict=False):
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
  xs = [point[0] for point in panel.points if point]
  if max(xs) > 10 * min(xs) > 0:
    ax.set_xscale('log')
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  if max(xs) >= 10:  # Below, it would write 0.4 as 400 m.
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=' '))
  ax.set_xlabel(panel.x_label)
  ax.set_ylabel(panel.y_label)
  ax.set_title(panel.title)
  ax.grid(alpha=0.3)
  if joined:
    ax.legend(frameon=False, fontsize=9)


def _points(
  groups, scores: Sequence[str], of: Callable[[run_files.Run], float | None]
) -> tuple[str, list] | None:
  """Returns the first metric with values that `of` tells apart, and its points."""
  for metric in scores:
    points = []
    for group in groups:
      # Centralised training has no clients, and sends nothing.
      xs = [
        of(run) if run.summary.get('bytes_down_per_client_round') else None
        for run in group.runs
      ]
      ys = [run.summary['final'].get(metric) for run in group.runs]
      if None in xs or None in ys:
        points.append(None)
        continue
      mean, std = columns.mean_and_std(ys)
      points.append((float(np.mean(xs)), mean, std))
    if len({point[0] for point in points if point}) > 1:
      return metric, points
  return None


def _sent(groups, scores) -> Panel | None:
  rows = lambda run: run.summary.get('class_rows_requested_mean')
  found = _points(groups, scores, rows)
  if not found:
    return None
  metric, points = found
  label = 'class rows sent to a client, |S|'
  dims = [
    groups_lib.settings_of(g.runs[0]).get('embedding_dim') for g in groups
  ]
  if all(isinstance(dim, int) for dim in dims):
    label = 'class parameters sent to a client, |S| · d'
    points = [
      p and (communication.class_parameters_sent(p[0], dim), *p[1:])
      for p, dim in zip(points, dims, strict=True)
    ]
  heading = catalog.SCORES[metric].heading
  return Panel(
    f'{heading} for what a client is sent',
    label,
    f'final {heading}',
    tuple(points),
  )


def _skew(groups, scores, reference) -> Panel | None:
  emd = lambda run: run.summary.get('emd') and round(run.summary['emd'], 2)
  found = _points(groups, scores, emd)
  if not found:
    return None
  metric, points = found
  heading = catalog.SCORES[metric].heading
  title, label = f'{heading} for the skew of the clients', f'final {heading}'
  if reference:
    whole = columns.whole(reference, metric)
    title, label = f'Relative {title}', f'{label} / that of the reference'
    points = [
      p and (p[0], p[1] / whole, None if p[2] is None else p[2] / whole)
      for p in points
    ]
  return Panel(
    title,
    'EMD of the split, from 0 (alike) to 2',
    label,
    tuple(points),
    tuple(groups_lib.methods(groups)),
  )
