"""Pictures of a split. Importing this imports Matplotlib."""

import os
from collections.abc import Mapping
from collections.abc import Sequence

import matplotlib
import matplotlib.colors
import matplotlib.figure
import numpy as np
import scipy.sparse
from matplotlib import ticker

from tff_xc.report import pictures

# The largest picture of class counts, in cells.
_CLIENTS, _CLASSES = 100, 200


def plot_clients(
  sizes: np.ndarray, classes: np.ndarray, path: str | os.PathLike
) -> None:
  """Draws clients by size rank (FedVC, figs 2 and 3).

  Args:
    sizes: int [K], examples of each client.
    classes: int [K], classes of each client.
    path: the file to write, a .png.
  """
  figure = matplotlib.figure.Figure(figsize=(10, 4), layout='constrained')
  styles = pictures.styles()
  for ax, (noun, values) in zip(
    figure.subplots(1, 2),
    {'examples': sizes, 'classes': classes}.items(),
    strict=True,
  ):
    _draw_ranks(ax, values, next(styles))
    ax.set_title(f'{noun.capitalize()} of the clients')
    ax.set_xlabel(f'client, by number of {noun}')
    ax.set_ylabel(noun)
  pictures.save(figure, path)


def plot_labels(
  train: np.ndarray, test: np.ndarray | None, path: str | os.PathLike
) -> None:
  """Draws the examples of each class, the largest first.

  Args:
    train: int [n], examples with clients.
    test: int [n], examples for the test, or None.
    path: the file to write, a .png.
  """
  figure = matplotlib.figure.Figure(figsize=(6.5, 4), layout='constrained')
  ax = figure.subplots()
  order = np.argsort(-train, kind='stable')
  styles = pictures.styles()
  _draw_ranks(ax, train, next(styles), 'with clients')
  if test is not None and test.any():
    colour, _, marker = next(styles)
    ax.plot(
      np.arange(1, len(test) + 1),
      test[order],
      color=colour,
      linestyle='none',
      marker=marker,
      markersize=3 if len(test) <= 300 else 1,
      label='test',
    )
    ax.legend(frameon=False)
  ax.set_title('Examples of the classes')
  ax.set_xlabel('class, by number of examples with clients')
  ax.set_ylabel('examples')
  pictures.save(figure, path)


def plot_class_counts(
  counts: scipy.sparse.csr_matrix,
  client_ids: Sequence[str],
  path: str | os.PathLike,
) -> None:
  """Draws which classes clients have, as shares of a client (FedVC, fig. 10).

  Of more than 100 clients it shows 100, evenly spread by size; more than 200
  classes are shown in groups of successive classes.

  Args:
    counts: int [K, n], from `skew.class_counts`.
    client_ids: [K].
    path: the file to write, a .png.
  """
  clients = counts.shape[0]
  shown, table, group = _shares(counts)
  figure = matplotlib.figure.Figure(
    figsize=(
      min(9.0, 3.5 + 0.06 * table.shape[1]),
      min(8.0, 2.8 + 0.06 * len(shown)),
    ),
    layout='constrained',
  )
  ax = figure.subplots()
  image = ax.imshow(
    table,
    cmap='Blues',
    norm=matplotlib.colors.PowerNorm(0.5, 0, max(table.max(), 1e-9)),
    aspect='auto',
    interpolation='nearest',
    extent=(-0.5, table.shape[1] * group - 0.5, len(shown) - 0.5, -0.5),
  )
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=8, integer=True))
  places = np.unique(np.linspace(0, len(shown) - 1, 10).astype(int))
  ax.set_yticks(places, [_short(client_ids[shown[i]]) for i in places])
  ax.set_xlabel('class' if group == 1 else f'class, in groups of {group:,}')
  more = f' ({len(shown)} of {clients:,}, by size)'
  ax.set_ylabel(f'client{more if clients > _CLIENTS else ""}')
  ax.set_title('Classes of the clients')
  figure.colorbar(image, ax=ax, label="share of a client's examples")
  pictures.save(figure, path)


def plot_panels(
  counts: Mapping[str, scipy.sparse.csr_matrix], path: str | os.PathLike
) -> None:
  """Draws which classes clients have, a panel for each of several splits.

  Args:
    counts: by title, int [K, n], from `skew.class_counts`; drawn as by
      `plot_class_counts`.
    path: the file to write, a .png.
  """
  columns = min(4, len(counts))
  lines = -(-len(counts) // columns)
  figure = matplotlib.figure.Figure(
    figsize=(2.6 * columns + 0.8, 3.4 * lines), layout='constrained'
  )
  axes = figure.subplots(lines, columns, squeeze=False)
  for ax in axes.flat[len(counts) :]:
    ax.set_axis_off()
  for ax, (title, each) in zip(axes.flat, counts.items(), strict=False):
    _, table, _ = _shares(each)
    image = ax.imshow(
      table,
      cmap='Blues',
      norm=matplotlib.colors.PowerNorm(0.5, 0, 1),
      aspect='auto',
      interpolation='nearest',
    )
    ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    ax.set_title(title, fontsize=10)
    ax.set_xlabel('class')
    ax.set_ylabel('client')
    ax.label_outer()
  figure.colorbar(
    image, ax=axes, label="share of a client's examples", shrink=0.6
  )
  pictures.save(figure, path)


def plot_sizes(
  sizes: Mapping[str, np.ndarray], path: str | os.PathLike
) -> None:
  """Draws histograms of the clients' sizes (TurboSVM-FL, fig. 3).

  Args:
    sizes: by title, int [K], examples of each client.
    path: the file to write, a .png.
  """
  figure = matplotlib.figure.Figure(
    figsize=(5 * len(sizes), 3.6), layout='constrained'
  )
  axes = figure.subplots(1, len(sizes), squeeze=False)
  for ax, style, (title, values) in zip(
    axes.flat, pictures.styles(), sizes.items(), strict=False
  ):
    ax.hist(values, bins=50, color=style[0])
    ax.set_title(f'{title}, {len(values):,} clients')
    ax.set_xlabel('examples of a client')
    ax.set_ylabel('clients')
    ax.grid(alpha=0.3)
    ax.set_axisbelow(True)
  pictures.save(figure, path)


def _shares(counts: scipy.sparse.csr_matrix):
  """Returns the clients that are shown, their shares of classes, and the grouping.

  Returns:
    int [k], the clients; float [k, groups], shares of a client's examples; the
    number of successive classes of a group.
  """
  clients, classes = counts.shape
  sizes = np.asarray(counts.sum(axis=1)).ravel()
  shown = np.arange(clients)
  if clients > _CLIENTS:
    by_size = np.argsort(-sizes, kind='stable')
    shown = by_size[np.arange(_CLIENTS) * (clients - 1) // (_CLIENTS - 1)]
  group = -(-classes // _CLASSES)
  cells = counts[shown].tocoo()
  table = np.zeros([len(shown), -(-classes // group)])
  np.add.at(table, (cells.row, cells.col // group), cells.data)
  table /= np.maximum(sizes[shown], 1)[:, None]
  return shown, table, group


def plot_map(
  positions: np.ndarray, owners: np.ndarray, path: str | os.PathLike
) -> None:
  """Draws where examples were taken, coloured by client (FedVC, fig. 1).

  Neighbouring clients mostly differ in colour; far ones may share one.

  Args:
    positions: float [N, 2], latitude and longitude in degrees.
    owners: int [N], the client of each.
    path: the file to write, a .png.
  """
  figure = matplotlib.figure.Figure(figsize=(10, 5.2), layout='constrained')
  ax = figure.subplots()
  ax.scatter(
    positions[:, 1],
    positions[:, 0],
    s=1 if len(owners) > 5000 else 6,
    c=matplotlib.colormaps['tab20'](owners % 20),
    linewidths=0,
  )
  ax.set_xlim(-180, 180)
  ax.set_ylim(-90, 90)
  ax.set_aspect('equal')
  clients = len(np.unique(owners))
  ax.set_title(f'Examples by client ({clients:,} clients)')
  ax.set_xlabel('longitude')
  ax.set_ylabel('latitude')
  pictures.save(figure, path)


def _short(name: str) -> str:
  return name if len(name) <= 16 else f'{name[:15]}…'


def _draw_ranks(
  ax, values: np.ndarray, style, label: str | None = None
) -> None:
  """Draws values over their rank, the largest first."""
  colour, *_ = style
  ranked = np.sort(values)[::-1]
  if (
    len(ranked) > 5000
  ):  # Equal bytes of a picture, whatever the rank's number.
    chosen = np.unique(np.linspace(0, len(ranked) - 1, 5000).astype(int))
  else:
    chosen = np.arange(len(ranked))
  few = {'marker': 'o', 'markersize': 3} if len(ranked) <= 25 else {}
  ax.plot(
    chosen + 1,
    ranked[chosen],
    color=colour,
    drawstyle='steps-mid',
    label=label,
    **few,
  )
  ax.grid(alpha=0.3)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True))
  positive = ranked[ranked > 0]
  if len(positive) and positive[0] > 20 * positive[-1]:
    ax.set_yscale('log')
    return
  ax.set_ylim(0, 1.1 * max(ranked.max(initial=0), 1))
  ax.yaxis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True))
