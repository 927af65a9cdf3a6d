"""Pictures of runs, drawn without a display. Importing this module imports Matplotlib."""

import itertools
import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import matplotlib.lines
import numpy as np
import pandas as pd
from matplotlib import ticker

from tff_xc import wording
from tff_xc.measure import catalog, targets
from tff_xc.report import methods as methods_lib, pictures, run_files, tables

# If legend entries have at most this many characters per inch of the picture's width, two
# columns of entries fit.
_HALF_LINE = 5.5
# If the largest value of a sweep is more than this many times the smallest value, the axis
# is logarithmic.
_SPAN = 20
# The units for which axes begin at 0.
_FROM_ZERO = 'bytes', 'class rows', 'clients', 'distance'


def plot_run(run: run_files.Run, path: str | os.PathLike) -> None:
  """Draws the metrics of one finished or unfinished run over rounds.

  A panel is left out if each of its metrics is constant over rounds or was not measured.
  """
  panels = [
    ('Training loss', 'loss', ('loss',)),
    ('Training accuracy', 'accuracy %', ('local_accuracy', 'train_top1')),
    ('Held-out examples', 'score %', catalog.HELD_OUT),
    (
      'Messages of one client in a round',
      'bytes',
      ('bytes_down_per_client', 'bytes_up_per_client'),
    ),
    ('Class rows that a client requests', 'class rows', ('class_rows',)),
    ('Cohort', 'clients', ('clients', 'clients_dropped')),
    ('Class rows of length 1', 'distance', catalog.DISTANCES),
    ('Test loss', 'loss', ('test_loss',)),
    ('Held-out examples of clients', 'score %', catalog.OF_CLIENTS),
  ]
  changing = [
    (title, unit, columns)
    for title, unit, columns in panels
    if not _is_flat([run.metrics[name].dropna() for name in columns if name in run.metrics])
  ]
  panels = changing or panels[:1]
  lines = -(-len(panels) // 2)
  figure, axes = pictures.panels(len(panels), 2, (11, 2.5 * lines))
  first = methods_lib.colour(run.algorithm)
  for ax, (title, unit, columns) in zip(axes, panels, strict=True):
    for style, column in zip(pictures.styles(first), columns, strict=False):
      if column in run.metrics:
        measured = run.metrics[['round', column]].dropna()
        y = _scale(column) * measured[column]
        heading = catalog.METRICS[column].heading
        _draw_line(ax, measured['round'], y, style, heading)
    _finish_over_rounds(ax, title, unit)
  rounds = wording.count(int(run.metrics['round'].max()), 'round')
  name = methods_lib.title(run.algorithm)
  figure.suptitle(f'{name} on {run.task}, {rounds}, seed {run.seed}')
  pictures.save(figure, path)


def _is_flat(lines: Iterable[pd.Series]) -> bool:
  """Whether each line is constant or empty. A line with a single point is not constant."""
  return all(len(line) != 1 and line.nunique() < 2 for line in lines)


def _scale(metric: str) -> int:
  """Returns 100 for metrics that tables show in percent, or else 1."""
  return 100 if catalog.METRICS[metric].unit == 'fraction' else 1


def _heading(score: str) -> str:
  """Returns the heading and unit of a score as in tables."""
  unit = ' %' if _scale(score) == 100 else ''
  return f'{catalog.SCORES[score].heading}{unit}'


def _draw_line(ax, x, y, style, label=None):
  if len(x) > 200:  # Long lines usually have a noisy value per round, so omit markers.
    style = style | {'marker': None}
  every = 1 if len(x) <= 25 else len(x) // 12
  ax.plot(x, y, **style, markevery=every, markersize=4, label=label)


def _finish_over_rounds(ax, title: str, unit: str) -> None:
  """Labels a plot over rounds. Writes 'not measured' into an empty plot."""
  pictures.label(ax, title, 'round', unit)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
  if not ax.lines:
    ax.text(0.5, 0.5, 'not measured', ha='center', transform=ax.transAxes)
    return
  if unit == 'bytes':
    ax.yaxis.set_major_formatter(ticker.EngFormatter('B', sep=' '))
  if unit in _FROM_ZERO:
    ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
  if lines := len(ax.get_legend_handles_labels()[0]):
    # A long legend would cover the lines.
    beside = {'loc': 'center left', 'bbox_to_anchor': (1, 0.5)} if lines > 4 else {}
    ax.legend(frameon=False, fontsize=9, **beside)


def plot_confusion(
  matrix: np.ndarray,
  class_ids: Sequence[int | str],
  path: str | os.PathLike,
  title: str = "One client's confusion matrix",
) -> None:
  """Draws one client's confusion matrix (FedSS, fig. 7) as shares of each row.

  `matrix`, int [c, c + 1], is the result of `ranking.confusion`. `class_ids` [c] are the
  numbers or names of the rows' classes. The last column stands for all classes that the
  client does not have.
  """
  matrix = np.asarray(matrix)
  count = len(class_ids)
  if matrix.shape != (count, count + 1):
    raise ValueError(f'Expected a matrix of shape {(count, count + 1)}, got {matrix.shape}.')
  shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
  size = min(12.0, 4.5 + 0.16 * count)
  figure, [ax] = pictures.panels(1, 1, (size + 1, size))
  image = ax.imshow(shares, cmap='Blues', vmin=0, vmax=1, aspect='auto')
  ax.axvline(count - 0.5, color='black', linewidth=1)
  every = -(-count // 30)  # At most 30 labels are legible.
  places = list(range(0, count, every))
  names = [pictures.short(class_ids[place], 24) for place in places]
  ax.set_yticks(places, names, fontsize=8)
  if places and count - places[-1] < every:  # The last name would touch 'another'.
    places, names = places[:-1], names[:-1]
  ax.set_xticks([*places, count], [*names, 'another'], rotation=90, fontsize=8)
  if count <= 12:
    for row, column in itertools.product(range(count), range(count + 1)):
      if matrix[row, column]:
        colour = 'white' if shares[row, column] > 0.5 else 'black'
        text = str(matrix[row, column])
        ax.text(column, row, text, ha='center', va='center', color=colour)
  ax.set(title=title, xlabel='predicted class', ylabel='true class')
  percent = ticker.PercentFormatter(1, symbol=' %')
  figure.colorbar(image, ax=ax, label='share of the true class', format=percent)
  pictures.save(figure, path)


# The horizontal axes of pictures of scores, by name: the label, the unit, and a function that
# takes the table metrics.csv and returns, for each round, the cost from the start to its end.
AXES: Mapping[str, tuple[str, str, Callable[[pd.DataFrame], pd.Series]]] = {
  'rounds': ('round', '', lambda metrics: metrics['round']),
  'batches': ('local batches of a client', '', lambda m: targets.spent(m, 'batches')),
  'bytes': ('bytes sent to all clients', 'B', lambda m: targets.spent(m, 'bytes')),
  'seconds': ('seconds of training', 's', lambda metrics: metrics['seconds'].fillna(0).cumsum()),
}


def compare_figure(
  frame: pd.DataFrame,
  scores: Sequence[str] = (),
  over: str = 'rounds',
  reference: pd.DataFrame | None = None,
  final: str | None = None,
  searched: Sequence[str] = (),
  finding: str = '',
) -> matplotlib.figure.Figure:
  """Draws several methods of `collect` in one picture, with a panel for each score.

  A panel shows the mean over seeds, in a band of one sample standard deviation. The x axis is
  `over`, one of `AXES`. Without `scores`, the picture has panels for the headline
  scores that change, and the panels that `points` returns: final values of the score `final`
  over properties in which methods differ. `reference` and `searched` are arguments of
  `points`. The title begins with `finding`.
  """
  is_chosen = bool(scores)
  scores = list(scores or catalog.HEADLINES)
  found = {score: band(frame, score, over) for score in scores}
  panels = [score for score in scores if len(found[score])]
  if not is_chosen:
    means = {score: found[score].groupby('method')['mean'] for score in panels}
    panels = [score for score in panels if not _is_flat(line for _, line in means[score])]
    panels += points(frame, reference, final, searched)
  panels = panels or scores[: None if is_chosen else 1]
  first = frame.drop_duplicates('method')
  styles = methods_lib.styles(first['algorithm'].tolist())
  across = min(len(panels), 3)
  width, height = max(6.5, 5.2 * across), 4.2 * -(-len(panels) // across)
  size = width, height + 0.3 + 0.24 * len(styles)
  figure, axes = pictures.panels(len(panels), across, size)
  for ax, panel in zip(axes, panels, strict=True):
    if isinstance(panel, Panel):
      draw_points(ax, panel)
    else:
      _draw_bands(ax, found[panel], styles, _scale(panel))
      # A single panel has no title, because the picture has one.
      title = catalog.SCORES[panel].heading if len(panels) > 1 else ''
      _finish_over_rounds(ax, title, _heading(panel))
      label, unit, _ = AXES[over]
      ax.set_xlabel(label)
      if unit:
        ax.xaxis.set_major_formatter(ticker.EngFormatter(unit, sep=' '))
  seeds = frame.groupby('method')['seed'].size().tolist()
  labels = methods_lib.titles(first['algorithm'].tolist(), first['label'].tolist())
  handles = []
  for label, style, number in zip(labels, styles, seeds, strict=True):
    if len({*seeds}) > 1:
      label += f' ({wording.count(number, "seed")})'
    label = textwrap.fill(label, 76, subsequent_indent='  ')
    line = matplotlib.lines.Line2D([], [], **style, markersize=5, label=label)
    handles.append(line)
  longest = max(len(handle.get_label()) for handle in handles)
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=2 if longest <= _HALF_LINE * width else 1,
    frameon=False,
  )
  figure.suptitle('\n'.join(filter(None, [finding, _title(frame, seeds)])))
  return figure


def rounds_of(runs: Iterable[run_files.Run]) -> str:
  """Returns the rounds of finished runs: '40 rounds', or 'up to 40 rounds'."""
  rounds = {run.summary['rounds'] for run in runs}
  to = 'up to ' if len(rounds) > 1 else ''
  return f'{to}{wording.count(max(rounds), "round")}'


def _title(frame: pd.DataFrame, seeds: Sequence[int]) -> str:
  """Returns 'glyphs, 300 rounds, mean ± std of 3 seeds'."""
  words = [frame['run'].iloc[0].task, rounds_of(frame['run'])]
  if max(seeds) > 1:
    of = wording.count(seeds[0], 'seed') if len({*seeds}) == 1 else 'their seeds'
    words.append(f'mean ± std of {of}')
  return ', '.join(words)


def band(frame: pd.DataFrame, metric: str, over: str = 'rounds') -> pd.DataFrame:
  """Returns the mean and std of a metric over seeds.

  The DataFrame has the columns method, round, x, mean and std. It has a row for each round
  in which all seeds of a method measured the metric.
  """
  have = frame['run'].map(lambda run: metric in run.metrics)
  whole = frame[have.groupby(frame['method']).transform('all')]
  if whole.empty:
    return pd.DataFrame(columns=['method', 'round', 'x', 'mean', 'std'])
  rows = pd.concat(
    row.run.metrics[['round', metric]].assign(method=row.method, x=AXES[over][2](row.run.metrics))
    for row in whole.itertuples()
  )
  of_round = rows.dropna().groupby(['method', 'round'])
  table = of_round[metric].agg(['mean', 'std', 'count'])
  table.insert(0, 'x', of_round['x'].mean())
  table = table.reset_index()
  seeds = table['method'].map(whole['method'].value_counts())
  return table[table['count'] == seeds].drop(columns='count')


def _draw_bands(ax, bands: pd.DataFrame, styles: Sequence[Mapping], scale: int) -> None:
  for method, drawn in bands.groupby('method'):
    mean, std = scale * drawn['mean'], scale * drawn['std']
    _draw_line(ax, drawn['x'], mean, styles[method])
    if std.notna().all():
      colour = styles[method]['color']
      between = drawn['x'], mean - std, mean + std
      ax.fill_between(*between, color=colour, alpha=0.18, lw=0)


def lines_figure(
  lines: Mapping[str, Sequence[tuple[float, float]]], title: str, x_label: str, y_label: str
) -> matplotlib.figure.Figure:
  """Draws named lines through points (x, y). The x axis is logarithmic, so x > 0.

  If a line's name is the title of a method, the line has the method's color.
  """
  figure, [ax] = pictures.panels(1, 1, (7.5, 4.8))
  own = {methods_lib.title(name): name for name in methods_lib.METHODS}
  for (name, points), style in zip(lines.items(), pictures.styles(), strict=False):
    if name in own:
      [style] = methods_lib.styles([own[name]])
    x, y = zip(*points, strict=True)
    ax.plot(x, y, markersize=5, label=textwrap.fill(name, 40), **style)
  ax.set_xscale('log')
  pictures.label(ax, title, x_label, y_label)
  figure.legend(loc='outside right center', frameon=False, fontsize=9)
  return figure


class Panel(NamedTuple):
  """A panel that shows final scores over a property of methods."""

  title: str
  x_label: str  # The property in which the methods differ.
  y_label: str  # The score.
  # A row for each method. The column `x` is the property. `mean` and `std` are the score, in
  # percent if tables show it in percent, or nan. `algorithm` is the algorithm. A line joins
  # methods with equal `line`, which is None if there are no lines.
  points: pd.DataFrame


def points(
  frame: pd.DataFrame,
  reference: pd.DataFrame | None = None,
  score: str | None = None,
  searched: Sequence[str] = (),
) -> list[Panel]:
  """Returns at most two panels of final scores, for properties in which methods differ.

  The x axis of one panel is the number of class parameters that a client receives (FedSS,
  figs 5 and 10). The x axis of the other panel is the skew of the clients' classes (Hsu, Qi
  and Brown, fig. 4). With a reference, the second panel shows scores divided by the
  reference's score. `score` defaults to the first headline score that gives several points.
  In the second panel, a line joins methods that differ only in `searched` settings, which
  were tuned for each method.
  """
  scores = (score,) if score else tuple(catalog.HEADLINES)
  panels = []
  of_score, table = _points(frame, scores, lambda run: run.summary.get('class_rows_requested_mean'))
  if of_score:
    dims = [
      run_files.settings_of(run).get('embedding_dim')
      for run in frame.drop_duplicates('method')['run']
    ]
    what = 'rows'
    if all(isinstance(dim, int) for dim in dims):
      what = 'parameters'
      table['x'] *= dims
    title = f'{catalog.SCORES[of_score].heading} for what a client is sent'
    label = f'number of class {what} sent to a client in a round'
    panels.append(Panel(title, label, f'final {_heading(of_score)}', table))
  of_score, table = _points(
    frame, scores, lambda run: run.summary.get('emd') and round(run.summary['emd'], 2)
  )
  if of_score:
    title = f'{catalog.SCORES[of_score].heading} for the skew of the clients'
    y = f'final {_heading(of_score)}'
    if reference is not None:
      table[['mean', 'std']] /= tables.whole(reference, of_score)
      title, y = f'Relative {title}', f'{y} of the reference'
    algorithms = table['algorithm'].tolist()
    table['line'] = methods_lib.titles(algorithms, tables.methods(frame, searched))
    label = "EMD of the clients' classes, from 0 (alike) to 2"
    panels.append(Panel(title, label, y, table))
  return panels


def _points(
  frame, scores: Sequence[str], of: Callable[[run_files.Run], float | None]
) -> tuple[str, pd.DataFrame]:
  """Returns the first score whose points have different x, and the points.

  The x of a run is `of(run)`. If no score has such points, the returned score is ''.
  """
  # Leave out centralized training, which has no clients and sends no messages.
  sent = 'bytes_down_per_client_round'
  x = tables.Column('x', '', lambda run: of(run) if run.summary.get(sent) else None, str)
  algorithms = frame.drop_duplicates('method')['algorithm'].to_numpy()
  for metric in scores:
    found = tables.of_methods(frame, [x, tables.COLUMNS[metric]])
    table = pd.DataFrame(
      {
        'x': found['x_mean'],
        'mean': _scale(metric) * found[f'{metric}_mean'],
        'std': _scale(metric) * found[f'{metric}_std'],
        'algorithm': algorithms,
        'line': None,
      }
    )
    if table.dropna(subset=['x', 'mean'])['x'].nunique() > 1:
      return metric, table
  return '', table


def draw_points(ax, panel: Panel) -> None:
  """Draws a panel. Methods have the same colors and markers as in pictures of curves."""
  points = panel.points.dropna(subset=['x', 'mean'])
  lines = [line for _, line in points.groupby('line', sort=False) if len(line) > 1]
  for line, style in zip(lines, pictures.styles(), strict=False):
    line = line.sort_values(['x', 'mean'])
    ax.plot(
      line['x'],
      line['mean'],
      color=methods_lib.colour(line['algorithm'].iloc[-1]),
      linestyle=style['linestyle'],
      linewidth=1,
      zorder=0,
      label=textwrap.fill(line['line'].iloc[0], 40),
    )
  styles = methods_lib.styles(panel.points['algorithm'].tolist())
  for place, point in points.iterrows():
    spread = None if math.isnan(point['std']) else point['std']  # One seed has no std.
    ax.errorbar(point['x'], point['mean'], spread, **styles[place], markersize=7, capsize=3)
  if points['x'].max() > 10 * points['x'].min() > 0:
    ax.set_xscale('log')
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  if points['x'].max() >= 10:  # The formatter would write 0.4 as 400 m.
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=' '))
  pictures.label(ax, panel.title, panel.x_label, panel.y_label)
  if lines:
    ax.legend(frameon=False, fontsize=9)


def sweep_figure(
  points: Sequence[Mapping[str, Any]],
  values: Sequence[tuple[float, float]],
  heading: str,
  percent: bool,
  algorithm: str,
  title: str,
) -> matplotlib.figure.Figure:
  """Draws a metric over the values of a sweep's first setting.

  The picture has a line for each combination of values of the other settings.

  Args:
    points: for each point of the sweep, the values of the settings by name.
    values: for each point, the mean and std of the metric, or nan.
    heading: the metric's heading.
    percent: whether to draw the metric in percent.
    algorithm: the algorithm, whose color the lines have.
    title: the picture's title.
  """
  first, *others = points[0]
  order = list(dict.fromkeys(point[first] for point in points))
  numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in order)
  # Values that are not numbers are drawn at x = 0, 1, ...
  place = {v: v if numbers else i for i, v in enumerate(order)}
  scale = 100 if percent else 1
  figure, [ax] = pictures.panels(1, 1, (7, 4.5))
  lines: dict[str, list] = {}
  for point, (mean, std) in zip(points, values, strict=True):
    name = ', '.join(f'{name}={point[name]}' for name in others)
    drawn = lines.setdefault(name, [])
    if not math.isnan(mean):
      spread = 0 if math.isnan(std) else std  # One seed has no std.
      drawn.append((place[point[first]], scale * mean, scale * spread))
  styles = methods_lib.styles([algorithm] * len(lines))
  for name, style in zip(lines, styles, strict=True):
    x, mean, std = np.reshape(sorted(lines[name]), [-1, 3]).T
    ax.errorbar(x, mean, std, **style, markersize=6, capsize=3, label=name)
  if numbers:
    if min(order) > 0 and max(order) > _SPAN * min(order):
      ax.set_xscale('log')
    ax.set_xticks(order, [f'{value:g}' for value in order])
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  else:
    ax.set_xticks(range(len(order)), list(map(str, order)))
  pictures.label(ax, title, first, f'{heading} %' if percent else heading)
  if others:
    ax.legend(frameon=False, fontsize=9)
  return figure
