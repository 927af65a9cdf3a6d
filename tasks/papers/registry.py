"""The published tables by name. Importing this does not import TensorFlow."""

from tasks.papers import fedaws
from tasks.papers import fedss
from tasks.papers import table

TABLES = {t.name: t for paper in (fedss, fedaws) for t in paper.TABLES}


def of_task(task: str) -> list[table.PaperTable]:
  """Returns the tables with results on a task, or on data that it imitates."""
  return [t for t in TABLES.values() if any(row.task == task for row in t.rows)]
