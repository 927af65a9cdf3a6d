"""Computes or trains a published table, beside what was printed.

  python -m launch.reproduce fedmlh/table5
  python -m launch.reproduce fedmlh/table3 --task=eurlex-4k-sets \\
    [--algorithm=fedmlh] [--seeds=0,1,2] [--output=DIR] [--jobs=N] \\
    [any flag of launch.train]

A table that follows from formulas is printed at once. Of a table of scores
(`python -m launch.list tables`), all experiments on one task are trained with the
table's settings, each in a run directory OUTPUT/ALGORITHM/seedS; flags replace
settings. The same command goes on with a table that stopped.
"""

import pathlib
import textwrap
from collections.abc import Sequence

from absl import flags

from launch import app
from launch import paper_runs
from launch import settings
from launch.sweeps import plan
from tasks.papers import fedmlh
from tasks.papers import registry
from tff_xc import errors
from tff_xc.report import text_table

_COMPUTED = fedmlh.COMPUTED


def main(arguments: Sequence[str]) -> None:
  """Prints the tables named on the command line."""
  names = ', '.join([*_COMPUTED, *registry.TABLES])
  if not arguments:
    raise errors.InputError(f'name a table: {names}')
  for name in arguments:
    if name not in _COMPUTED and name not in registry.TABLES:
      raise errors.InputError(f'unknown table {name!r}: there are {names}')
  width = text_table.terminal_width()
  blocks = [
    _computed(name, width) if name in _COMPUTED else _trained(name)
    for name in arguments
  ]
  print('\n'.join(blocks), end='')


def _computed(name: str, width: int) -> str:
  found = _COMPUTED[name]
  about = textwrap.fill(f'{found.title}. {found.caption}', width)
  shown = text_table.to_text([found.heading, *found.rows], (0, 1, 2), width)
  return f'{about}\n\n{shown}'


def _trained(name: str) -> str:
  values, table = flags.FLAGS, registry.TABLES[name]
  rows = paper_runs.rows_of(table, values.task, values.algorithm)
  output = pathlib.Path(values.output or f'runs/{name}_{rows[0].task}')
  runs = paper_runs.plan_runs(
    rows, settings.changes(), plan.seeds(values.seeds), output
  )
  settings.use_cache_dir()
  return paper_runs.run(table, rows, runs, output, values.jobs)


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  settings.define_experiment_flags(without=('seed',))
  flags.DEFINE_string('seeds', '0,1,2', 'seeds of every experiment')
  flags.DEFINE_string(
    'output', None, 'directory of the runs; default runs/PAPER/TABLE_TASK'
  )
  settings.define_jobs_flag()
  app.run(main, __doc__)
