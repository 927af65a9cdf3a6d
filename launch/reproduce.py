"""Repeats published tables and figures, and compares the results with the printed numbers.

  python -m launch.reproduce fedmlh/table5
  python -m launch.reproduce fedss fedaws     # All results of these papers; `all`: all papers.
  python -m launch.reproduce fedmlh/table3 --scale=paper [--task=eurlex-4k-sets] \\
    [--algorithm=fedmlh] [--seeds=0,1,2] [any flag of launch.train]
  options: [--output=DIR] [--jobs=N] [--finished_only] [--needs]

`python -m launch.list tables` lists all results by name, with the data that each one needs.

  --scale=small  (default) runs in minutes on data that the program generates
  --scale=real   runs in hours on small real data, such as CIFAR-10
  --scale=paper  trains with the published settings on the paper's data: on --task, or on all
                 tasks of the table whose data this machine has. Other flags replace settings
                 of all runs of the table. If the table compares several values of a setting,
                 the flag of this setting selects the runs with the given value

After an interruption, the same command resumes. Before it trains at the scale real or paper,
the command prints which data are missing, how many rounds are left, and about how long they
take. The command skips a result that does not accept a flag, and prints the reason. `all` does
not include our own comparisons, `methods` and `scaffold/table3`. The command writes results to
OUTPUT/PAPER/TABLE and runs to OUTPUT/runs. OUTPUT/report.html shows all results.
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
    'size of the experiments. small: generated data, in minutes; real: small real data, in hours;'
    ' paper: the published data and settings',
  )
  flags.DEFINE_string(
    'seeds',
    None,
    'seeds of every experiment, such as 0,1,2; default: seeds that the table sets for each scale',
  )
  flags.DEFINE_string(
    'output', None, 'directory to write results and runs to; default: runs/reproduce-SCALE'
  )
  flags.DEFINE_bool('finished_only', False, 'do not train; show the results of finished runs')
  flags.DEFINE_bool(
    'needs', False, 'do not train; print which data are missing, and about how long all runs take'
  )
  settings.define_jobs_flag()
  settings.define_picture_flag()
  app.run(main, __doc__, settings.narrow_help)
