"""Styles and files of pictures, which are drawn without a display.

Pictures are written atomically and contain no date: equal runs give equal bytes.
Colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

import itertools
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tff_xc import files
from tff_xc import wording

if TYPE_CHECKING:
  import matplotlib.figure

_COLOURS = (
  '#0072B2',
  '#D55E00',
  '#009E73',
  '#CC79A7',
  '#E69F00',
  '#56B4E9',
  '#000000',
)
_LINES = ('-', '--', '-.', ':')
_MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X')


def styles() -> Iterator[tuple[str, str, str]]:
  """Yields (colour, line style, marker), all different for 28 in a row."""
  for place in itertools.count():
    turn = place // len(_COLOURS)
    yield (
      _COLOURS[place % len(_COLOURS)],
      _LINES[(place + 2 * turn) % len(_LINES)],
      _MARKERS[(place + turn) % len(_MARKERS)],
    )


def panels(count: int, across: int, size: tuple[float, float]):
  """Returns a figure, and the axes of its `count` panels, `across` in a line."""
  import matplotlib.figure

  figure = matplotlib.figure.Figure(figsize=size, layout='constrained')
  axes = figure.subplots(-(-count // across), across, squeeze=False).flat
  for ax in axes[count:]:
    ax.set_axis_off()
  return figure, axes[:count]


def label(ax, title: str, x: str, y: str, has_grid: bool = True) -> None:
  """Names a panel and its axes."""
  ax.set(title=title, xlabel=x, ylabel=y)
  if has_grid:
    ax.grid(alpha=0.3)


def short(name: object, most: int) -> str:
  """Returns a name of somebody's data on one line, of at most `most` characters."""
  text = wording.shown(name)
  return text if len(text) <= most else f'{text[: most - 1]}…'


def save(figure: 'matplotlib.figure.Figure', path: str | os.PathLike) -> None:
  """Writes a figure as a .png or .pdf; `$` in names is a character, no formula."""
  import matplotlib.text

  for text in figure.findobj(matplotlib.text.Text):
    text.set_parse_math(False)
  for ax in figure.axes:
    for axis in (ax.xaxis, ax.yaxis):
      if axis.get_scale() == 'log':  # Its own labels are formulas.
        for text in axis.get_ticklabels(which='both'):
          text.set_parse_math(True)
  # No version and no date in the file, so that equal pictures have equal bytes.
  kind, without = 'png', ('Software',)
  if pathlib.Path(path).suffix == '.pdf':
    kind, without = 'pdf', ('Creator', 'Producer', 'CreationDate')
  with files.replacing(path) as temporary, warnings.catch_warnings():
    # A name in a script that the font lacks is drawn as boxes.
    warnings.filterwarnings('ignore', 'Glyph .* missing from')
    figure.savefig(
      temporary, dpi=120, format=kind, metadata=dict.fromkeys(without)
    )
