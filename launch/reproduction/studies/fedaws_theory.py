"""Compares what FedAwS minimises with the contrastive loss of eq. (11) and (12).

With unit rows w_c, an embedding g of class y, s_c = g . w_c and a margin nu:

  l_ccl = (1 - s_y)^2 + sum_{c != y} max(0, nu - 1 + s_c)^2          eq. (11), (12)
  l_sp  = (1 - s_y)^2 + sum_{c != y} max(0, nu - 1 + w_y . w_c)^2

Clients of one class each, with as many examples, and the server's eq. (7) with cosine
distance together minimise the mean of l_sp: of its second term the mean over the
examples is reg(W) / C.

Public summaries of the paper give these statements; they were not compared with its
print, so the numbers of their equations are as in the summaries:

  Lemma 1   l_ccl >= 2 (nu - 1) if another class has a higher cosine, 1 < nu < 2
  eq. (17)  |l_sp - l_ccl| <= (1 + 2 nu) sum_{c != y} |w_c . (w_y - g)|

Both follow, with better constants, which are measured too. If s_c >= s_y = s, then
l_ccl >= (1 - s)^2 + max(0, nu - 1 + s)^2 >= nu^2 / 2 >= 2 (nu - 1), with equality in
the middle at s = 1 - nu / 2. And max(0, nu - 1 + s)^2 changes by 2 nu at most for a
cosine, so that 2 nu is enough in eq. (17).

Examples are drawn: rows apart, or close as after a collapse, and embeddings from near
their own rows to anywhere.
"""

import itertools
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tff_xc.report import pictures

_CLASSES = (2, 10, 100, 1000)
_DIM, _EXAMPLES = 64, 2000
# Embeddings are w_y plus a vector of about this length, at any angle, normalised.
_NOISE = (0.1, 0.3, 1.0, 3.0, 10.0)
_MARGINS = (1.1, 1.5, 1.9)
_COMMON = {
  'apart': 0.0,
  'close': 2.0,
}  # A direction that rows share, and its length.
# Shown noise by noise, and drawn.
_SHOWN = (100, 'apart', 1.5)


class Draw(NamedTuple):
  """Losses of drawn examples, float64 [N] each."""

  cosines: np.ndarray  # Of embeddings and their own rows.
  is_wrong: np.ndarray  # bool, whether another row is as near or nearer.
  contrastive: np.ndarray  # l_ccl.
  spread: np.ndarray  # l_sp.
  mismatch: np.ndarray  # sum_{c != y} |w_c . (w_y - g)|.
  objective: float  # The mean of the clients' loss, plus reg(W) / C.


def resolve(name: str, request) -> tuple[int, ...]:
  """Returns the numbers of classes; see `studies`."""
  rows_lib.refuse(name, request.told())  # It has one size.
  return _CLASSES


def measure(
  config: tuple[int, ...], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the comparison by noise, and of all draws; draws FOLDER/result.png."""
  draws = {
    (classes, kind, margin, noise): draw(classes, kind, margin, noise)
    for classes in config
    for kind in _COMMON
    for margin in _MARGINS
    for noise in _NOISE
  }
  shown = _SHOWN if _SHOWN[0] in config else (config[0], *_SHOWN[1:])
  _plot(draws, shown, folder / 'result.png')
  lines = []
  for noise in _NOISE:
    found = draws[(*shown, noise)]
    values = {
      'mean cosine to the own row': found.cosines.mean(),
      'misclassified %': 100 * found.is_wrong.mean(),
      'l_ccl': found.contrastive.mean(),
      'l_sp': found.spread.mean(),
      'their mean difference': _apart(found).mean(),
      'its bound': (_of_paper(shown[2]) * found.mismatch).mean(),
    }
    row = f'noise {noise:g}'
    lines += [
      {'row': row, 'metric': name, 'mean': float(value)}
      for name, value in values.items()
    ]
  return lines + [studies.value(n, v) for n, v in _values(draws).items()]


def draw(classes: int, kind: str, margin: float, noise: float) -> Draw:
  """Draws rows and as many embeddings of each class; one seed for each of them."""
  random = np.random.default_rng(classes)
  rows = random.normal(size=(classes, _DIM)) / _DIM**0.5
  rows = _unit(rows + _COMMON[kind] * np.eye(_DIM)[0])
  y = np.repeat(np.arange(classes), max(_EXAMPLES // classes, 1))
  away = random.normal(size=(len(y), _DIM)) / _DIM**0.5
  return compared(rows, _unit(rows[y] + noise * away), y, margin)


def compared(
  rows: np.ndarray, embeddings: np.ndarray, y: np.ndarray, margin: float
) -> Draw:
  """Returns the losses of unit embeddings [N, d] with labels y, by unit rows [C, d].

  Classes have equally many examples.
  """
  cosines, of_rows = embeddings @ rows.T, rows @ rows.T
  examples = np.arange(len(y))
  own = cosines[examples, y]
  others = np.arange(len(rows)) != y[:, None]
  pull = (1 - own) ** 2
  push = lambda s: (np.maximum(0, margin - 1 + s) ** 2 * others).sum(axis=1)
  apart = np.maximum(0, margin - 1 + of_rows[~np.eye(len(rows), dtype=bool)])
  return Draw(
    own,
    (others & (cosines >= own[:, None])).any(axis=1),
    pull + push(cosines),
    pull + push(of_rows[y]),
    (np.abs(of_rows[y] - cosines) * others).sum(axis=1),
    float(pull.mean() + (apart**2).sum() / len(rows)),
  )


def _unit(vectors):
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _apart(found: Draw) -> np.ndarray:
  return np.abs(found.spread - found.contrastive)


def _of_wrong(found: Draw) -> float:
  """Returns the least contrastive loss of a misclassified example."""
  return found.contrastive[found.is_wrong].min(initial=np.inf)


def _of_paper(margin: float) -> float:
  """Returns the factor in eq. (17)."""
  return 1 + 2 * margin


def _values(draws) -> dict[str, float]:
  """Returns the values that have bounds, over all draws."""
  by_margin = [(key[2], found) for key, found in draws.items()]
  found = [*draws.values()]
  least = lambda bound: min(
    _of_wrong(each) / bound(margin) for margin, each in by_margin
  )
  most = lambda constant: max(
    (_apart(each) / (constant(margin) * each.mismatch)).max()
    for margin, each in by_margin
  )
  nearer = [
    _apart(draws[(*key, a)]).mean() / _apart(draws[(*key, b)]).mean()
    for key in {key[:-1] for key in draws}
    for a, b in itertools.pairwise(_NOISE)
  ]
  objectives = [abs(each.objective / each.spread.mean() - 1) for each in found]
  wrong = 'least loss of a misclassified example over'
  apart = 'largest difference of the two losses over'
  return {
    'examples': sum(len(each.cosines) for each in found),
    'misclassified examples': sum(each.is_wrong.sum() for each in found),
    f'{wrong} 2 (nu - 1) (Lemma 1)': least(lambda nu: 2 * (nu - 1)),
    f'{wrong} nu^2 / 2 (ours)': least(lambda nu: nu**2 / 2),
    f'{apart} (1 + 2 nu) sum |w_c . (w_y - g)| (eq. 17)': most(_of_paper),
    f'{apart} 2 nu sum |w_c . (w_y - g)| (ours)': most(lambda nu: 2 * nu),
    "FedAwS's objective less the mean of l_sp, relative": max(objectives),
    'difference of the losses with less noise over that with more': max(nearer),
  }


def _plot(draws, shown, path: pathlib.Path) -> None:
  """Draws the least losses of misclassified examples, and differences by bounds."""
  figure, (left, right) = pictures.panels(2, 2, (11, 4.5))
  margins = np.linspace(1, 2, 51)
  least = [
    min(_of_wrong(found) for key, found in draws.items() if key[2] == margin)
    for margin in _MARGINS
  ]
  left.plot(_MARGINS, least, 'o', label='least loss drawn')
  left.plot(margins, margins**2 / 2, label='nu² / 2')
  left.plot(margins, 2 * (margins - 1), '--', label='2 (nu - 1), Lemma 1')
  title = 'Contrastive loss of a misclassified example'
  pictures.label(left, title, 'margin nu', 'loss')
  for noise in _NOISE:
    found = draws[(*shown, noise)]
    bound = _of_paper(shown[2]) * found.mismatch
    label = f'noise {noise:g}'
    right.plot(bound, _apart(found), '.', markersize=2, label=label)
  ends = np.array(right.get_xlim())
  right.plot(ends, ends, '--', color='0.4', label='equal')
  right.set(xscale='log', yscale='log')
  title = f'FedAwS beside the contrastive loss, {shown[0]:,} classes'
  x = '(1 + 2 nu) sum |w_c . (w_y - g)|, eq. (17)'
  pictures.label(right, title, x, 'absolute difference of the two losses')
  for ax, place in ((left, 'upper left'), (right, 'lower right')):
    ax.legend(frameon=False, fontsize=9, loc=place)
  pictures.save(figure, path)
