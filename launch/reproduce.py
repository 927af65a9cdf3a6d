"""Computes published tables that follow from formulas, beside what was printed.

  python -m launch.reproduce fedmlh/table5

Tables of scores need runs: `python -m launch.list tables` has their experiments.
"""

import textwrap
from collections.abc import Sequence

from launch import app
from tasks.papers import fedmlh
from tasks.papers import registry
from tff_xc import errors
from tff_xc.report import text_table

_COMPUTED = fedmlh.COMPUTED


def main(arguments: Sequence[str]) -> None:
  """Prints the tables named on the command line."""
  if not arguments:
    raise errors.InputError(
      f'name a table: {", ".join(_COMPUTED)}; or several of them'
    )
  width = text_table.terminal_width()
  blocks = [_block(name, width) for name in arguments]
  print('\n'.join(blocks), end='')


def _block(name: str, width: int) -> str:
  if name in registry.TABLES:
    raise errors.InputError(
      f'{name} is a table of scores, which need runs: `python -m launch.list'
      ' tables` has their settings'
    )
  if name not in _COMPUTED:
    raise errors.InputError(
      f'unknown table {name!r}: there are {", ".join(_COMPUTED)}'
    )
  found = _COMPUTED[name]
  about = textwrap.fill(f'{found.title}. {found.caption}', width)
  shown = text_table.to_text([found.heading, *found.rows], (0, 1, 2), width)
  return f'{about}\n\n{shown}'


if __name__ == '__main__':
  app.run(main, __doc__)
