"""Measures tables and figures of the papers, beside what was printed.

  python -m launch.reproduce fedmlh/table5
  python -m launch.reproduce fedss fedaws     # All of these papers, small; or: all.
  python -m launch.reproduce fedmlh/table3 --scale=paper [--task=eurlex-4k-sets] \\
    [--algorithm=fedmlh] [--seeds=0,1,2] [any flag of launch.train]
  options: [--output=DIR] [--jobs=N] [--finished_only] [--needs]

`python -m launch.list tables` lists the names, and what each needs. --scale=small,
the default, runs the experiment in minutes on data that are always there, and
compares with what was expected before it was run. --scale=real does so in hours on
real data of which a part is small enough, such as CIFAR-10. --scale=paper trains with the
published settings on the paper's data: on all tasks of the table whose data are
there, or on --task; flags replace settings, or choose the rows that have them where
rows differ. The same command goes on where it stopped; before it trains, and with
--needs instead, it says what is missing, how many rounds are left, and about how long
they take by the seconds of earlier rounds. If several results are named, those that do
not take a flag are left out, each in a line that says why. `methods` and
`scaffold/table3` are comparisons of our own, which `all` does not have.
Results lie in OUTPUT/PAPER/TABLE, their runs in OUTPUT/runs, and OUTPUT/report.html
shows all results there; --finished_only trains nothing.
"""

import pathlib
from collections.abc import Sequence

from absl import flags

from launch import app, runs as runs_lib, settings
from launch.reproduction import lines, plan, run
from tasks.papers import registry, table
from tff_xc import errors


def main(arguments: Sequence[str]) -> None:
  """Measures the results named on the command line."""
  if not arguments:
    raise errors.InputError(
      'name a table or figure, a paper or all: fedmlh/table5, fedss, all;'
      ' `python -m launch.list tables` lists them'
    )
  values = flags.FLAGS
  if values.needs and values.finished_only:
    raise errors.InputError('--needs and --finished_only both train nothing; leave one out')
  if values.output == '':
    raise errors.InputError('--output is empty; name a directory')
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
  # Not at import, since other commands have flags of these names.
  settings.define_experiment_flags(without=('seed',))
  flags.DEFINE_enum(
    'scale',
    'small',
    table.SCALES,
    'small: in minutes, on data that are always there; real: in hours, on real data of'
    ' that kind; paper: as published',
  )
  flags.DEFINE_string('seeds', None, "seeds of every experiment; default: the table's")
  flags.DEFINE_string('output', None, 'directory of results and runs; default runs/reproduce-SCALE')
  flags.DEFINE_bool('finished_only', False, 'train nothing; show what has finished')
  flags.DEFINE_bool('needs', False, 'train nothing, and say what all runs will roughly take')
  settings.define_jobs_flag()
  settings.define_picture_flag()
  app.run(main, __doc__, settings.narrow_help)
