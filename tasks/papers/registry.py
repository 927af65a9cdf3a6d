"""The published tables and figures by name. Importing this imports no TensorFlow."""

from collections.abc import Mapping
from collections.abc import Sequence

from tasks.papers import fedaws
from tasks.papers import fedmlh
from tasks.papers import fedss
from tasks.papers import fedvc
from tasks.papers import table
from tasks.papers import turbosvm
from tff_xc import errors
from tff_xc import wording

RESULTS: Mapping[str, table.Result] = {
  found.name: found
  for paper in (fedss, fedaws, turbosvm, fedmlh, fedvc)
  for found in paper.RESULTS
}
TABLES = {n: r for n, r in RESULTS.items() if isinstance(r, table.PaperTable)}


def chosen(names: Sequence[str]) -> list[table.Result]:
  """Returns results of names, of papers ('fedss') or 'all', in the papers' order."""
  papers = list(dict.fromkeys(name.partition('/')[0] for name in RESULTS))
  wanted = set()
  for name in names:
    found = [n for n in RESULTS if name in ('all', n, n.partition('/')[0])]
    if not found:
      paper = name.partition('/')[0]
      near = [n for n in RESULTS if n.startswith(f'{paper}/')]
      known = ', '.join(
        near or ['all', *papers, 'or one of `launch.list tables`']
      )
      meant = wording.meant(name, [*papers, *RESULTS])
      raise errors.InputError(
        f'unknown table {name!r}: there are {known}{meant}'
      )
    wanted.update(found)
  return [r for name, r in RESULTS.items() if name in wanted]


def of_task(task: str) -> list[table.PaperTable]:
  """Returns the tables with results on a task, or on data that it imitates."""
  return [
    t
    for t in TABLES.values()
    if t.number.startswith('Table') and any(row.task == task for row in t.rows)
  ]
