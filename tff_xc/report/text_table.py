"""Text tables for a terminal, with aligned columns and wrapped cells."""

import shutil
import textwrap
from collections.abc import Collection, Sequence

_GAP = 2
# The width if the output is a pipe or a file.
_WIDTH_WITHOUT_TERMINAL = 100


def terminal_width() -> int:
  """Returns $COLUMNS, or the terminal's width in columns, or 100 without a terminal."""
  return shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns


def to_text(
  rows: Sequence[Sequence[str]], left: Collection[int] = (0,), width: int | None = None
) -> str:
  """Returns rows as text that ends in a newline.

  The first row is the heading, and a rule of dashes follows it. The columns `left` are
  aligned to the left. Their cells wrap between words, so that the table fits `width`. If
  the longest words do not fit, the table is wider than `width`.
  """
  widths = _widths(rows, left, width)
  lines = []
  for row in [rows[0], ['-' * w for w in widths], *rows[1:]]:
    cells = [_wrap(cell, widths[i]) if i in left else [cell] for i, cell in enumerate(row)]
    for k in range(max(map(len, cells))):
      parts = [cell[k] if k < len(cell) else '' for cell in cells]
      padded = [
        part.ljust(w) if i in left else part.rjust(w)
        for i, (part, w) in enumerate(zip(parts, widths, strict=True))
      ]
      lines.append((' ' * _GAP).join(padded).rstrip())
  return '\n'.join(lines) + '\n'


def to_markdown(rows: Sequence[Sequence[str]]) -> str:
  """Returns rows as a Markdown table; the first row is the heading."""
  heading, *cells = rows
  rule = ['---'] + ['---:'] * (len(heading) - 1)
  escaped = ([_markdown(cell) for cell in row] for row in (heading, rule, *cells))
  return ''.join(f'| {" | ".join(row)} |\n' for row in escaped)


def _markdown(cell: str) -> str:
  """Escapes a cell's text, so that it adds no cells, links or HTML in Markdown."""
  found = cell.replace('|', '\\|').replace('<', '&lt;')
  return found.replace('](', ']\\(')


def _wrap(text: str, width: int) -> list[str]:
  lines = []
  for line in text.split('\n'):
    lines += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or ['']
  return lines


def _widths(rows, left, width: int | None) -> list[int]:
  """Returns the widths of the columns. The widest columns that can wrap shrink first."""
  columns = list(zip(*rows, strict=True))
  widths = [max(len(line) for cell in column for line in cell.split('\n')) for column in columns]
  if width is None:
    return widths
  least = [
    max(len(word) for cell in column for word in cell.split() or ['']) if i in left else widths[i]
    for i, column in enumerate(columns)
  ]
  room = width - _GAP * (len(columns) - 1)
  while sum(widths) > room:
    shrinkable = [i for i in range(len(widths)) if widths[i] > least[i]]
    if not shrinkable:
      break
    widths[max(shrinkable, key=lambda i: widths[i])] -= 1
  return widths
