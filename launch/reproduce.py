"""Computes or trains a published table, beside what was printed.

  python -m launch.reproduce fedmlh/table5
  python -m launch.reproduce fedmlh/table3 --task=eurlex-4k-sets \\
    [--algorithm=fedmlh] [--seeds=0,1,2] [--output=DIR] [--jobs=N] \\
    [any flag of launch.train]
  python -m launch.reproduce fedmlh/theory --task=bibtex-sets \\
    [--hash_tables=R] [--hash_buckets=B] [--output=DIR]

A table that follows from formulas is printed at once. Of a table of scores
(`python -m launch.list tables`), all experiments on one task are trained with the
table's settings, each in a run directory OUTPUT/ALGORITHM/seedS; flags replace
settings. The same command goes on with a table that stopped. fedmlh/theory
compares FedMLH's lemmas and theorem with the labels of a task, without training,
as a table and a picture.
"""

import pathlib
import textwrap
from collections.abc import Sequence

from absl import flags

from launch import app
from launch import paper_runs
from launch import settings
from launch.sweeps import plan
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import fedmlh
from tasks.papers import registry
from tff_xc import errors
from tff_xc.algorithms import entry
from tff_xc.report import text_table

_COMPUTED = fedmlh.COMPUTED
_THEORY = 'fedmlh/theory'
_OF_THEORY = {
  *('data_dir', 'cache_dir', 'hash_tables', 'hash_buckets', 'num_classes'),
  *('num_features', 'num_clients', 'partition_rule', 'validation'),
  *('published_reading', 'data_seed'),
}
_RUNS = ('seeds', 'jobs')  # Flags of tables that are trained.


def main(arguments: Sequence[str]) -> None:
  """Prints the tables named on the command line."""
  known = [_THEORY, *_COMPUTED, *registry.TABLES]
  if not arguments:
    raise errors.InputError(f'name a table: {", ".join(known)}')
  for name in arguments:
    if name not in known:
      raise errors.InputError(
        f'unknown table {name!r}: there are {", ".join(known)}'
      )
  print('\n'.join(map(_block, arguments)), end='')


def _block(name: str) -> str:
  if name in _COMPUTED:
    _refuse(name, 'task', 'algorithm', 'output', *settings.parameters(), *_RUNS)
    return _computed(name)
  if name == _THEORY:
    _refuse(name, *(set(settings.parameters()) - _OF_THEORY), *_RUNS)
    return _theory()
  return _trained(name)


def _refuse(name: str, *unused: str) -> None:
  for flag in unused:
    if flag in flags.FLAGS and flags.FLAGS[flag].present:
      raise errors.InputError(
        f'--{flag}: {name} has no use for it; leave it out'
      )


def _computed(name: str) -> str:
  width = text_table.terminal_width()
  found = _COMPUTED[name]
  about = textwrap.fill(f'{found.title}. {found.caption}', width)
  shown = text_table.to_text([found.heading, *found.rows], (0, 1, 2), width)
  return f'{about}\n\n{shown}'


def _theory() -> str:
  values = flags.FLAGS
  fitting = [
    task.name for task in tasks.TASKS.values() if entry.ONE_LABEL in task.lacks
  ]
  if values.task not in fitting:
    given = f'--task={values.task}' if values.task else '--task is missing'
    raise errors.InputError(
      f'{given}: {_THEORY} is of tasks whose examples keep all labels:'
      f' {", ".join(fitting)}'
    )
  if values.algorithm not in (None, 'fedmlh'):
    raise errors.InputError(
      f'--algorithm={values.algorithm}: {_THEORY} is of fedmlh; leave it out'
    )
  config = experiment.resolve(values.task, 'fedmlh', settings.changes())
  settings.use_cache_dir()
  print('loading TensorFlow and the data ...', flush=True)
  from launch import theory

  return theory.run(config, values.output or f'runs/{_THEORY}_{values.task}')


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
    'output',
    None,
    'directory of the runs or the picture; default runs/PAPER/TABLE_TASK',
  )
  settings.define_jobs_flag()
  app.run(main, __doc__)
