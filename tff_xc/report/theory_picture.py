"""The picture of FedMLH's theory on a data set. Importing this imports Matplotlib."""

import os

import matplotlib.figure
import numpy as np

from tff_xc.measure import hashed_labels
from tff_xc.measure import ranking
from tff_xc.report import pictures

# More labels are not told apart in a panel.
_MOST_DOTS = 2000
_MOST_TICKS = 20
_LABELS, _BUCKETS, _LEMMA = (
  colour for (colour, _, _), _ in zip(pictures.styles(), range(3), strict=False)
)


def plot(
  found: hashed_labels.Theory, title: str, path: str | os.PathLike
) -> None:
  """Draws four panels.

  The positives of labels and of their buckets (Lemma 1); the divergence of every
  pair of clients over labels and over buckets (Theorem 2); how frequent labels
  are, and the labels that clients hold (FedMLH, fig. 2).

  Args:
    found: the theory and the set.
    title: of the picture.
    path: the file to write, a .png.
  """
  figure = matplotlib.figure.Figure(figsize=(11, 8), layout='constrained')
  axes = figure.subplots(2, 2)
  _positives(axes[0, 0], found)
  _divergences(axes[0, 1], found)
  _frequencies(axes[1, 0], found)
  _clients(axes[1, 1], found)
  for ax in axes.flat:
    ax.grid(alpha=0.3)
    ax.set_axisbelow(True)
  figure.suptitle(title)
  pictures.save(figure, path)


def _positives(ax, found) -> None:
  order = np.argsort(-found.label_counts, kind='stable')
  rank = np.arange(1, len(order) + 1)
  dots = np.unique(np.geomspace(1, len(order), _MOST_DOTS).astype(int)) - 1
  observed = found.observed.mean(axis=0)[order]
  ax.plot(
    *(rank[dots], observed[dots], '.'),
    color=_BUCKETS,
    markersize=3,
    label='its buckets, mean of the tables',
  )
  ax.plot(
    *(rank, found.expected[order], '--'),
    color=_LEMMA,
    label='its buckets, expected (Lemma 1)',
  )
  alone = np.where(found.label_counts > 0, found.label_counts, np.nan)[order]
  ax.plot(rank, alone, color=_LABELS, label='the label alone')
  ax.set(
    xscale='log',
    yscale='log',
    xlabel='label, by frequency',
    ylabel='positive examples',
    title='Positive examples of a label and of its buckets',
  )
  ax.legend(frameon=False, fontsize=9)


def _divergences(ax, found) -> None:
  of_labels, of_buckets = found.pairs
  ax.plot(of_labels, of_buckets, '.', color=_BUCKETS, markersize=4)
  most = 1.05 * max(of_labels.max(initial=0), of_buckets.max(initial=0), 1e-3)
  ax.plot([0, most], [0, most], '--', color='0.4')
  ax.annotate(
    'equal', (0.72 * most, 0.72 * most), (-6, 6), textcoords='offset points',
    ha='right', color='0.4',
  )  # fmt: skip
  ax.set(
    xlim=(0, most),
    ylim=(0, most),
    xlabel='over labels, nats',
    ylabel='over buckets of a table, nats',
    title='KL divergence of two clients (Theorem 2)',
  )


def _frequencies(ax, found) -> None:
  share = np.sort(found.label_counts) / found.num_examples
  upto = np.arange(1, len(share) + 1) / len(share)
  some = share > 0
  ax.step(share[some], 100 * upto[some], where='post', color=_LABELS)
  ax.axvline(ranking.FREQUENT, linestyle='--', color='0.4')
  ax.annotate(
    'frequent', (ranking.FREQUENT, 2), (4, 0), textcoords='offset points',
    color='0.4',
  )  # fmt: skip
  ax.set(
    xscale='log',
    ylim=(0, 103),
    xlabel='share of the training examples',
    ylabel='labels of at most this share, %',
    title='Frequencies of labels',
  )


def _clients(ax, found) -> None:
  held, places = found.client_counts > 0, np.arange(1, len(found.of_labels) + 1)
  for name, part, colour, shift in (
    ('frequent', found.is_frequent, _LABELS, -0.2),
    ('infrequent', ~found.is_frequent, _BUCKETS, 0.2),
  ):
    share = held[:, part].sum(axis=1) / max(part.sum(), 1)
    label = f'of the {part.sum():,} {name} labels'
    ax.bar(places + shift, 100 * share, width=0.4, color=colour, label=label)
  if len(held) <= _MOST_TICKS:
    ax.set_xticks(places)
  ax.set(
    ylim=(0, 120),
    xlabel='client',
    ylabel='labels held, %',
    title='Labels of which a client has examples',
  )
  ax.legend(frameon=False, fontsize=9, ncols=2, loc='upper center')
