"""Pictures of runs, drawn without a display. Importing this imports Matplotlib."""

import itertools
import os
from collections.abc import Sequence

import matplotlib.figure
import numpy as np
from matplotlib import ticker

from tff_xc import wording
from tff_xc.measure import catalog
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
    finish_over_rounds(ax, title, unit)
  figure.suptitle(f'{run.algorithm} on {run.task}, seed {run.seed}')
  pictures.save(figure, path)


def plot_confusion(
  matrix: np.ndarray,
  class_ids: Sequence[int | str],
  path: str | os.PathLike,
  title: str = "One client's confusion matrix",
) -> None:
  """Draws a confusion matrix of one client (FedSS, fig. 7).

  Cells are shares of their row. The last column is all classes that the client
  does not hold.

  Args:
    matrix: int [c, c + 1], from `ranking.confusion`.
    class_ids: [c], numbers or names of its rows' classes.
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
  names = [_short(wording.shown(class_ids[place])) for place in places]
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


def _short(name: str) -> str:
  return name if len(name) <= 24 else f'{name[:23]}…'


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


def finish_over_rounds(ax, title: str, unit: str) -> None:
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
