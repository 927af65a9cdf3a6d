"""Runs tables and figures of the papers and compares them with the printed numbers.

  python -m launch.reproduce fedmlh/table5
  python -m launch.reproduce fedss fedaws     # All of these papers, small; or: all.
  python -m launch.reproduce fedmlh/table3 --scale=paper [--task=eurlex-4k-sets] \\
    [--algorithm=fedmlh] [--seeds=0,1,2] [any flag of launch.train]
  options: [--output=DIR] [--jobs=N] [--finished_only] [--needs]

`python -m launch.list tables` lists all results by name, with the data that each one needs.

  --scale=small  (default) runs in minutes on data that the program generates
  --scale=real   runs in hours on small real data, such as CIFAR-10
  --scale=paper  trains with the published settings on the paper's data: on all tasks of
                 the table whose data exist, or on --task. Other flags replace settings,
                 or select the rows that have these settings

The same command resumes after an interruption. Before it trains, it prints what is
missing, how many rounds are left and about how long they take. Results that do not
accept a flag are skipped, and a line says why. `all` does not include our own
comparisons, `methods` and `scaffold/table3`. Results go to OUTPUT/PAPER/TABLE, their
runs to OUTPUT/runs, and OUTPUT/report.html shows all results.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from launch import app, runs as runs_lib, settings
from launch.reproduction import lines, plan, run
from tasks.papers import registry, table
from tff_xc import errors


def main(arguments: Sequence[str]) -> None:
  """Measures the results that the command line names."""
  if not arguments:
    raise errors.InputError(
      'name a table or figure, a paper or all: fedmlh/table5, fedss, all;'
      ' `python -m launch.list tables` lists them'
    )
  values = flags.FLAGS
  if values.needs and values.finished_only:
    raise errors.InputError('--needs and --finished_only both train nothing; leave one out')
  found = registry.chosen(arguments)
  request = plan.Request(
    scale=values.scale,
    task=values.task,
    algorithm=values.algorithm,
    given=settings.changes(),
    seeds=None if values.seeds is None else runs_lib.seeds(values.seeds),
    output=pathlib.Path(values.output or f'runs/reproduce-{values.scale}'),
    jobs=values.jobs,
    train=not values.finished_only,
    is_one=len(found) == 1,
  )
  planned = plan.plan_all(found, request)
  lines.refuse_others(request.output, [each.name for each in found])
  settings.use_cache_dir()
  settings.use_picture_format()
  if values.needs:
    plan.tell_needs(planned, request)
    return
  if values.scale != 'small' and not values.finished_only:
    try:
      plan.tell_needs(planned, request)
    except errors.InputError as e:
      if request.is_one:
        raise
      print(e, flush=True)  # Other results may need no data.
  run.run_all(planned, request)


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  settings.define_experiment_flags(without=('seed',))
  flags.DEFINE_enum(
    'scale',
    'small',
    table.SCALES,
    'small: generated data, in minutes; real: small real data, in hours; paper: the published'
    ' data and settings',
  )
  flags.DEFINE_string('seeds', None, "seeds of every experiment; default: the table's")
  flags.DEFINE_string(
    'output', None, 'directory of results and runs; default: runs/reproduce-SCALE'
  )
  flags.DEFINE_bool('finished_only', False, 'train nothing, and show the finished runs')
  flags.DEFINE_bool(
    'needs', False, 'train nothing, and print the missing data and a rough time for all runs'
  )
  settings.define_jobs_flag()
  settings.define_picture_flag()
  app.run(main, __doc__, settings.narrow_help)
