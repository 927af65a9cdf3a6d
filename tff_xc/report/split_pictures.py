"""Pictures of a split and of a data set. Importing this module imports Matplotlib."""

import os
from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.colors
import numpy as np
import scipy.sparse
from matplotlib import ticker

from tff_xc import wording
from tff_xc.report import pictures

# The most clients, and the most classes or groups of classes, in a picture of class counts.
_CLIENTS, _CLASSES = 100, 200


def plot_clients(sizes: np.ndarray, classes: np.ndarray, path: str | os.PathLike) -> None:
  """Draws the clients' numbers of examples and of classes, the largest first.

  Figs 2 and 3 of FedVC show these numbers. `sizes` and `classes` are int [K].
  """
  figure, axes = pictures.panels(2, 2, (10, 4))
  styles = pictures.styles()
  drawn = (('examples', sizes), ('classes', classes))
  for ax, (noun, values) in zip(axes, drawn, strict=True):
    _draw_ranks(ax, values, next(styles))
    title = f'{noun.capitalize()} of the clients'
    pictures.label(ax, title, f'client, by number of {noun}', noun)
  pictures.save(figure, path)


def plot_labels(train: np.ndarray, test: np.ndarray | None, path: str | os.PathLike) -> None:
  """Draws the number of examples of each class, int [n], in training and test data."""
  figure, [ax] = pictures.panels(1, 1, (6.5, 4))
  styles = pictures.styles()
  _draw_ranks(ax, train, next(styles), 'with clients')
  if test is not None and test.any():
    ax.plot(
      np.arange(1, len(test) + 1),
      test[np.argsort(-train, kind='stable')],
      **(next(styles) | {'linestyle': 'none'}),
      markersize=3 if len(test) <= 300 else 1,
      label='test',
    )
    ax.legend(frameon=False)
  x = 'class, by number of examples with clients'
  pictures.label(ax, 'Examples of the classes', x, 'examples')
  pictures.save(figure, path)


def plot_class_counts(
  counts: scipy.sparse.csr_matrix, client_ids: Sequence[str], path: str | os.PathLike
) -> None:
  """Draws the class shares of each client's examples (FedVC, fig. 10).

  `counts`, int [K, n], is the result of `skew.class_counts`. If there are more than 100
  clients, the picture shows 100 of them, evenly spread by size. If there are more than 200
  classes, successive classes form groups.
  """
  shown, table, group = _shares(counts)
  width, height = 3.5 + 0.06 * table.shape[1], 2.8 + 0.06 * len(shown)
  figure, [ax] = pictures.panels(1, 1, (min(9.0, width), min(8.0, height)))
  extent = (-0.5, table.shape[1] * group - 0.5, len(shown) - 0.5, -0.5)
  image = _draw_shares(ax, table, max(table.max(), 1e-9), extent)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=8, integer=True))
  places = np.unique(np.linspace(0, len(shown) - 1, 10).astype(int))
  names = [pictures.short(client_ids[shown[place]], 16) for place in places]
  ax.set_yticks(places, names)
  x, y = 'class', 'client'
  if group > 1:
    x += f', in groups of {group:,}'
  if len(shown) < counts.shape[0]:
    y += f' ({len(shown)} of {counts.shape[0]:,}, by size)'
  pictures.label(ax, 'Classes of the clients', x, y, False)
  _add_bar(figure, image, ax)
  pictures.save(figure, path)


def plot_panels(counts: Mapping[str, scipy.sparse.csr_matrix], path: str | os.PathLike) -> None:
  """Draws the class shares of several splits, each in a panel with its title."""
  across = min(4, len(counts))
  size = 2.6 * across + 0.8, 3.4 * -(-len(counts) // across)
  figure, axes = pictures.panels(len(counts), across, size)
  for ax, (title, each) in zip(axes, counts.items(), strict=True):
    image = _draw_shares(ax, _shares(each)[1], 1)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=5, integer=True))
    ax.set_title(title, fontsize=10)
    ax.set_xlabel('class')
    ax.set_ylabel('client')
    ax.label_outer()
  _add_bar(figure, image, figure.axes, shrink=0.6)
  pictures.save(figure, path)


def plot_sizes(sizes: Mapping[str, np.ndarray], path: str | os.PathLike) -> None:
  """Draws a histogram of client sizes, int [K], for each name (TurboSVM-FL, fig. 3)."""
  figure, axes = pictures.panels(len(sizes), len(sizes), (5 * len(sizes), 3.6))
  for ax, style, (title, values) in zip(axes, pictures.styles(), sizes.items(), strict=False):
    ax.hist(values, bins=50, color=style['color'])
    title = f'{title}, {wording.count(len(values), "client")}'
    pictures.label(ax, title, 'examples of a client', 'clients')
    ax.set_axisbelow(True)
  pictures.save(figure, path)


def plot_map(positions: np.ndarray, owners: np.ndarray, path: str | os.PathLike) -> None:
  """Draws the places of examples, colored by client (FedVC, fig. 1).

  `positions`, float [N, 2], are latitude and longitude in degrees. `owners`, int [N], are
  indices of clients. Clients with successive indices have different colors. There are 20
  colors, so distant clients may have the same color.
  """
  figure, [ax] = pictures.panels(1, 1, (10, 5.2))
  ax.scatter(
    positions[:, 1],
    positions[:, 0],
    s=1 if len(owners) > 5000 else 6,
    c=matplotlib.colormaps['tab20'](owners % 20),
    linewidths=0,
    rasterized=True,  # There are too many points for vectors in a PDF or SVG.
  )
  ax.set(xlim=(-180, 180), ylim=(-90, 90), aspect='equal')
  title = f'Examples of {wording.count(len(np.unique(owners)), "client")}'
  pictures.label(ax, title, 'longitude in degrees', 'latitude in degrees', False)
  pictures.save(figure, path)


def _shares(counts: scipy.sparse.csr_matrix):
  """Returns (shown clients int [k], class shares float [k, groups], classes per group)."""
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


def _add_bar(figure, image, ax, **more) -> None:
  bar = figure.colorbar(image, ax=ax, label="share of a client's examples", **more)
  bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1, symbol=' %'))


def _draw_shares(ax, table, most: float, extent=None):
  return ax.imshow(
    table,
    cmap='Blues',
    norm=matplotlib.colors.PowerNorm(0.5, 0, most),
    aspect='auto',
    interpolation='nearest',
    extent=extent,
  )


def _draw_ranks(ax, values: np.ndarray, style, label: str | None = None) -> None:
  """Draws values in descending order over their rank."""
  ranked = np.sort(values)[::-1]
  # Draw at most 5,000 values, so that the file stays small.
  chosen = np.arange(len(ranked))
  if len(ranked) > 5000:
    chosen = np.unique(np.linspace(0, len(ranked) - 1, 5000).astype(int))
  few = {'marker': 'o', 'markersize': 3} if len(ranked) <= 25 else {}
  ax.plot(
    chosen + 1, ranked[chosen], color=style['color'], drawstyle='steps-mid', label=label, **few
  )
  ax.xaxis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True))
  positive = ranked[ranked > 0]
  if len(positive) and positive[0] > 20 * positive[-1]:
    ax.set_yscale('log')
    return
  ax.set_ylim(0, 1.1 * max(ranked.max(initial=0), 1))
  ax.yaxis.set_major_locator(ticker.MaxNLocator(nbins=6, integer=True))
