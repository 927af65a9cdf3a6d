"""Scores of single clients as a table, a CSV and a picture."""

import os
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tff_xc import files
from tff_xc.measure import client_scores
from tff_xc.report import pictures

# Columns of the DataFrame: the scores of the global model and of a client's personal model.
GLOBAL, PERSONAL = 'top1', 'top1_personalized'
_STATISTICS = {
  'mean': 'mean',
  'median': 'median',
  'p10': 'p10',
  'worst': 'worst tenth',
  'std': 'std',
}
_TITLES = {client_scores.TRAINED: 'trained', client_scores.UNSEEN: 'unseen'}


def table(frame: pd.DataFrame) -> list[list[str]]:
  """Returns the rows of a table of clients' scores in percent, as they are printed.

  Args:
    frame: the DataFrame of `client_scores.clients`, with columns of scores.

  Returns:
    A heading, a block of rows for trained clients, and a block for unseen clients. The first
    row of a block is for all its clients. The other rows are for groups of these clients by
    number of examples and by number of classes. If the frame has scores of personal models,
    each of these scores stands beside the score of the global model.
  """
  names = dict(_STATISTICS)
  if PERSONAL in frame:  # Leave out a column, so that the table fits a terminal window.
    del names['std']
    names['worst'] = 'worst'
  heading = ['clients in %', 'number']
  for name in names.values():
    heading += [name, 'after'] if PERSONAL in frame else [name]
  rows = [heading]
  for title, part in _parts(frame):
    cells = [title, f'{len(part):,}']
    columns = [
      client_scores.statistics(part[column].to_numpy())
      for column in (GLOBAL, PERSONAL)
      if column in frame
    ]
    for name in names:
      cells += [f'{100 * column[name]:.1f}' for column in columns]
    rows.append(cells)
  return rows


def _parts(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
  """Yields the title and the clients of each row of the table.

  Clients without a score are left out.
  """
  frame = frame.dropna(subset=[GLOBAL])
  for name, part in frame.groupby('part', sort=False):
    yield _TITLES[name], part
    examples = part['training_examples'] + part['test_examples']
    by = [('examples', examples), ('classes', part['classes'])]
    if (examples == part['classes']).all():
      by.pop()  # Clients have one example per class, so groups by classes would be the same.
    for noun, values in by:
      for least, most, inside in client_scores.groups(values.to_numpy()):
        span = f'{least:,} to {most:,}' if most > least else f'{least:,}'
        yield f'- {span} {noun}', part[inside]


def write_csv(frame: pd.DataFrame, path: str | os.PathLike) -> None:
  """Writes one line for each client. A score is empty if the client has no examples for it."""
  with files.csv_rows(path) as file:
    frame.to_csv(file, index=False, lineterminator='\r\n')


def plot(frame: pd.DataFrame, path: str | os.PathLike, title: str) -> None:
  """Draws the distribution of the clients' scores, and their scores over their sizes."""
  frame = frame.dropna(subset=[GLOBAL])
  figure, axes = pictures.panels(3, 3, (13, 4))
  series = [
    (f'{_TITLES[name]}{after}', part, column)
    for name, part in frame.groupby('part', sort=False)
    for column, after in ((GLOBAL, ''), (PERSONAL, ', personalized'))
    if column in frame
  ]
  for style, (label, part, column) in zip(pictures.styles(), series, strict=False):
    scores = 100 * part[column]
    share = 100 * np.arange(1, len(scores) + 1) / len(scores)
    line = {n: style[n] for n in ('color', 'linestyle')}
    axes[0].plot(
      [0, *np.sort(scores), 100], [0, *share, 100], **line, drawstyle='steps-post', label=label
    )
    examples = part['training_examples'] + part['test_examples']
    for ax, values in zip(axes[1:], (examples, part['classes']), strict=True):
      _draw_points(ax, values.to_numpy(), scores.to_numpy(), style)
  y = 'clients with at most this score, %'
  pictures.label(axes[0], 'Scores of the clients', 'top-1 %', y)
  for ax, noun in zip(axes[1:], ('examples', 'classes'), strict=True):
    x, y = f'{noun} of a client', 'top-1 %'
    pictures.label(ax, f'By the number of {noun}', x, y)
  axes[0].legend(frameon=False, fontsize=9)
  figure.suptitle(title)
  pictures.save(figure, path)


def _draw_points(ax, values: np.ndarray, scores: np.ndarray, style) -> None:
  """Draws a point for each client, and a line through the means of groups of clients."""
  few = len(values) <= 300
  ax.plot(
    values,
    scores,
    style['marker'],
    color=style['color'],
    markersize=3 if few else 1.5,
    alpha=0.5 if few else 0.25,
    markeredgewidth=0,
    rasterized=not few,
  )
  means = [
    (values[inside].mean(), scores[inside].mean()) for _, _, inside in client_scores.groups(values)
  ]
  if means:
    line = {n: style[n] for n in ('color', 'linestyle', 'marker')}
    ax.plot(*zip(*means, strict=True), **line, markersize=6)
  if values.max() > 20 * max(values.min(), 1):
    ax.set_xscale('log')
