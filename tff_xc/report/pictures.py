"""Styles of pictures, and functions that write pictures without a display.

Picture files are written atomically and contain no date, so equal runs give equal bytes.
The colors are from Okabe and Ito, and color-blind readers can distinguish them. The module
`methods` has the colors of algorithms.
"""

import itertools
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tff_xc import errors, files, wording

if TYPE_CHECKING:
  import matplotlib.figure

# The formats of --picture_format. For each format, the names of metadata that `save` leaves
# out, because they would contain versions or dates.
_METADATA = {
  'png': ('Software',),
  'pdf': ('Creator', 'Producer', 'CreationDate'),
  'svg': ('Creator', 'Date'),
}
FORMATS = tuple(_METADATA)
# This environment variable names the formats that `save` writes additionally, in this
# process and in child processes.
_VARIABLE = 'TFF_XC_PICTURE_FORMAT'
# Text stays text: PDF files contain TrueType fonts, and SVG files use the viewer's fonts.
# With a fixed salt, equal pictures give SVG files with equal bytes.
_TEXT = {'pdf.fonttype': 42, 'svg.fonttype': 'none', 'svg.hashsalt': 'tff_xc'}
_COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')
_LINES = ('-', '--', '-.', ':')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X')


def use_formats(text: str) -> None:
  """Makes `save` also write formats such as 'pdf,svg', in this and in child processes."""
  for name in text.split(','):
    if name not in FORMATS:
      raise errors.InputError(
        f'--picture_format={text}: expected some of {", ".join(FORMATS)}, separated by commas'
      )
  os.environ[_VARIABLE] = text


def formats() -> list[str]:
  """Returns the formats set by `use_formats`, such as ['pdf', 'svg']."""
  chosen = os.environ.get(_VARIABLE, '').split(',')
  return [name for name in FORMATS if name in chosen]


def styles(first: str | None = None) -> Iterator[dict[str, str]]:
  """Yields colors, line styles and markers as arguments of Matplotlib's `plot`.

  28 successive styles are different. `first` is the color of the first style.
  """
  colours = _COLOURS
  if first:
    colours = (first, *(each for each in _COLOURS if each != first))
  for place in itertools.count():
    turn = place // len(colours)
    yield {
      'color': colours[place % len(colours)],
      'linestyle': _LINES[(place + 2 * turn) % len(_LINES)],
      'marker': MARKERS[(place + turn) % len(MARKERS)],
    }


def panels(count: int, across: int, size: tuple[float, float]):
  """Returns a figure and the axes of its `count` panels, with `across` panels per row."""
  import matplotlib.figure

  figure = matplotlib.figure.Figure(figsize=size, layout='constrained')
  axes = figure.subplots(-(-count // across), across, squeeze=False).flat
  for ax in axes[count:]:
    ax.set_axis_off()
  return figure, axes[:count]


def label(ax, title: str, x: str, y: str, has_grid: bool = True) -> None:
  """Sets the title and axis labels of a panel."""
  ax.set(title=title, xlabel=x, ylabel=y)
  if has_grid:
    ax.grid(alpha=0.3)


def short(name: object, most: int) -> str:
  """Returns a name from a user's data on one line, with at most `most` characters."""
  text = wording.shown(name)
  return text if len(text) <= most else f'{text[: most - 1]}…'


def save(figure: 'matplotlib.figure.Figure', path: str | os.PathLike) -> list[pathlib.Path]:
  """Writes a figure to `path`, and in the formats of `use_formats` beside `path`.

  Returns the paths of the written files. The suffix of `path` is one of `FORMATS`. A `$` in
  a name is printed as it is, and does not start a formula.
  """
  import matplotlib
  import matplotlib.text

  for text in figure.findobj(matplotlib.text.Text):
    text.set_parse_math(False)
  for ax in figure.axes:
    for axis in (ax.xaxis, ax.yaxis):
      if axis.get_scale() == 'log':  # Matplotlib writes formulas as labels of these ticks.
        for text in axis.get_ticklabels(which='both'):
          text.set_parse_math(True)
  path = pathlib.Path(path)
  others = (path.with_suffix(f'.{name}') for name in formats())
  written = list(dict.fromkeys([path, *others]))
  for each in written:
    kind = each.suffix[1:]
    with (
      files.replacing(each) as temporary,
      warnings.catch_warnings(),
      matplotlib.rc_context(_TEXT),
    ):
      # Characters that the font lacks are drawn as boxes.
      warnings.filterwarnings('ignore', 'Glyph .* missing from')
      figure.savefig(temporary, dpi=120, format=kind, metadata=dict.fromkeys(_METADATA[kind]))
  return written
