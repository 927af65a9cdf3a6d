"""The picture of a sweep. Importing this imports Matplotlib."""

import math
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import matplotlib.figure
from matplotlib import ticker

from tff_xc.report import columns
from tff_xc.report import pictures

# Numbers that span more than this factor get a logarithmic axis.
_SPAN = 20


def plot_sweep(
  points: Sequence[Mapping[str, Any]],
  values: Sequence[columns.Value | None],
  heading: str,
  percent: bool,
  path: str | os.PathLike,
) -> None:
  """Draws a metric over the values of the first grid.

  Every combination of the other grids is a line; bars are one sample std. A
  point without a value, or whose seeds did not all reach a target, is omitted.

  Args:
    points: values of the grids, by name; all points have the same names.
    values: the metric of each point.
    heading: the metric, for people.
    percent: whether to draw percent of the values.
    path: the file to write, a .png.
  """
  first, *others = points[0]
  order = list(dict.fromkeys(point[first] for point in points))
  numbers = all(_is_number(value) for value in order)
  # Texts are drawn at places 0, 1, ...
  place = {v: v if numbers else i for i, v in enumerate(order)}
  scale = 100 if percent else 1
  figure = matplotlib.figure.Figure(figsize=(7, 4.5), layout='constrained')
  ax = figure.subplots()
  lines = list(dict.fromkeys(_line(point, others) for point in points))
  for line, style in zip(lines, pictures.styles(), strict=False):
    found = [
      (place[point[first]], value)
      for point, value in zip(points, values, strict=True)
      if _line(point, others) == line and value and math.isfinite(value.mean)
    ]
    found.sort(key=lambda drawn: drawn[0])
    _draw(ax, found, style, scale, line)
  if numbers:
    if min(order) > 0 and max(order) > _SPAN * min(order):
      ax.set_xscale('log')
    ax.set_xticks(order, [f'{value:g}' for value in order])
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  else:
    ax.set_xticks(range(len(order)), list(map(str, order)))
  ax.set_xlabel(first)
  ax.set_ylabel(f'{heading} %' if percent else heading)
  ax.grid(alpha=0.3)
  if others:
    ax.legend(frameon=False, fontsize=9)
  pictures.save(figure, path)


def _is_number(value) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _line(point: Mapping[str, Any], names: Sequence[str]) -> str:
  return ', '.join(f'{name}={point[name]}' for name in names)


def _draw(ax, found, style, scale, label) -> None:
  colour, line, marker = style
  ax.errorbar(
    [x for x, _ in found],
    [scale * value.mean for _, value in found],
    yerr=[scale * (value.std or 0) for _, value in found],
    color=colour,
    linestyle=line,
    marker=marker,
    markersize=6,
    capsize=3,
    label=label,
  )
