"""The published tables and figures by name. Importing this imports no TensorFlow."""

from collections.abc import Mapping, Sequence

from tasks.papers import comparisons, fedaws, fedmlh, fedss, fedvc, table, turbosvm
from tff_xc import errors, wording

RESULTS: Mapping[str, table.Result] = {
  found.name: found for paper in (fedss, fedaws, turbosvm, fedmlh, fedvc) for found in paper.RESULTS
}
# The published results, and our own comparisons, which the name 'all' does not include.
KNOWN: Mapping[str, table.Result] = {
  **RESULTS,
  **{found.name: found for found in comparisons.COMPARISONS},
}
TABLES = {n: r for n, r in RESULTS.items() if isinstance(r, table.PaperTable)}


def chosen(names: Sequence[str]) -> list[table.Result]:
  """Returns the results that names, papers ('fedss') or 'all' select, in the papers' order."""
  papers = list(dict.fromkeys(name.partition('/')[0] for name in KNOWN))
  wanted = set()
  for name in names:
    found = [n for n in KNOWN if name in (n, n.partition('/')[0])]
    found += [n for n in RESULTS if name == 'all']
    if not found:
      near = [n for n in KNOWN if n.startswith(f'{name.partition("/")[0]}/')]
      known = near or ['all', *papers, 'or one of `launch.list tables`']
      meant = wording.meant(name, [*papers, *KNOWN])
      raise errors.InputError(f'unknown table {name!r}: there are {", ".join(known)}{meant}')
    wanted.update(found)
  return [result for name, result in KNOWN.items() if name in wanted]


def of_task(task: str) -> list[table.PaperTable]:
  """Returns the tables that have results on a task."""
  return [
    t
    for t in TABLES.values()
    if t.number.startswith('Table') and any(row.task == task for row in t.rows)
  ]
