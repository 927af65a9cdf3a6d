"""The published tables by name. Importing this does not import TensorFlow."""

import dataclasses

from tasks import registry as tasks
from tasks.papers import fedaws
from tasks.papers import fedmlh
from tasks.papers import fedss
from tasks.papers import fedvc
from tasks.papers import table
from tasks.papers import turbosvm
from tff_xc.algorithms import registry as algorithms


def _runnable(found: table.PaperTable) -> table.PaperTable:
  """Returns a table without rows that cannot be run here; its notes name them."""
  missing = {row.task for row in found.rows} - set(tasks.TASKS)
  missing |= {row.algorithm for row in found.rows} - set(algorithms.ALGORITHMS)
  if not missing:
    return found
  return dataclasses.replace(
    found,
    rows=tuple(
      row for row in found.rows if not missing & {row.task, row.algorithm}
    ),
    notes=f'{found.notes} Left out, since they are not implemented here:'
    f' {", ".join(sorted(missing))}.',
  )


_ALL = [
  t for paper in (fedss, fedaws, turbosvm, fedmlh, fedvc) for t in paper.TABLES
]
TABLES = {t.name: t for t in map(_runnable, _ALL) if t.rows}


def of_task(task: str) -> list[table.PaperTable]:
  """Returns the tables with results on a task, or on data that it imitates."""
  return [t for t in TABLES.values() if any(row.task == task for row in t.rows)]
