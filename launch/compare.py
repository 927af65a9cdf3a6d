"""Compares finished runs of one task: one table and one picture.

  python -m launch.compare RUN_DIR... [--output=DIR] [--metric=top1] [--rounds=N]
      [--target=top1:0.7] [--curves=pc@1,pc@1_infrequent] [--over=bytes]
      [--at=rounds:1000,batches:10000] [--relative_to=RUN_DIR]

Runs that differ only in their seed form one row, mean ± sample std. A directory
with several runs stands for all of them. Prints the table and writes
compare.md, compare.csv and compare.png. The printed table leaves out columns
that do not fit the terminal, or 100 characters without a terminal.
"""

import os
import pathlib
import textwrap
from collections.abc import Callable
from collections.abc import Sequence

from absl import flags

from launch import app
from tff_xc import errors
from tff_xc import wording
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.measure import targets as targets_lib
from tff_xc.report import run_files

# Of a run's data, what does not depend on the clients.
_SAME_DATA = ('classes', 'names_checksum', 'test_examples', 'test_checksum')


def compare(
  directories: Sequence[str | os.PathLike],
  output: str | os.PathLike | None = None,
  metric: str | None = None,
  rounds: int | None = None,
  target: str | None = None,
  curves: Sequence[str] = (),
  over: str = 'rounds',
  at: str = '',
  relative_to: str | os.PathLike | None = None,
) -> str:
  """Compares runs and writes compare.md, compare.csv and compare.png.

  Args:
    directories: run directories, or directories of some.
    output: the directory for the files; None: the runs' common parent.
    metric: the score to sort by, or a target; None: the first that a run has.
      Final values of this score are drawn.
    rounds: compare the runs after this number of rounds; None: at their ends.
    target: scores to which to count the rounds; None: the runs' own.
    curves: scores to draw, a panel each; without any, the headline metrics.
    over: 'rounds', 'batches', 'bytes' or 'seconds', over which they are drawn.
    at: budgets at which to show the score, 'rounds:1000,batches:10000'.
    relative_to: the run, or runs of several seeds, whose final score is the
      whole: centralised training for relative accuracy; at their ends always.

  Returns:
    The table as text that fits the terminal, or 100 columns without one.

  Raises:
    errors.InputError: a directory holds no run; runs are damaged, unfinished, or
      of different tasks, or did not count batches, over which they are drawn; a
      metric, curve, target or budget is unknown.
  """
  metric = metric and check_metric(metric)
  _check_curves(curves)
  targets = None if target is None else targets_lib.parse(target)
  from tff_xc.report import tables

  groups, parent = _groups(directories, rounds)
  _check_over(over, groups)
  reference = relative_to and find_reference(relative_to, groups[0].runs[0])
  rows = tables.build_rows(
    groups, metric, targets, budgets.parse(at), reference
  )
  from tff_xc.report import compare_curves
  from tff_xc.report import pictures

  unequal = _unequal(groups)
  # Drawn before anything is written, so that errors leave nothing.
  final = metric and metric.partition(':')[0]
  figure = compare_curves.compare_figure(groups, curves, over, reference, final)
  write_files(
    pathlib.Path(output or parent) / 'compare',
    tables.to_markdown(rows) + (unequal and f'\n{unequal}\n'),
    tables.to_csv(rows),
    lambda path: pictures.save(figure, path),
  )
  task = groups[0].runs[0].task
  return _told(rows, task, rounds, metric, unequal, output or parent)


def _unequal(groups) -> str:
  """Returns a sentence on what differs besides the methods; '' for nothing."""
  from tff_xc.report import groups as groups_lib

  found = groups_lib.differing(groups)
  if not found:
    return ''
  return f'settings that differ between the methods: {", ".join(found)}'


def _told(
  rows, task: str, rounds: int | None, metric, unequal: str, where
) -> str:
  """Returns what is printed of rows that lie in `where`."""
  from tff_xc.report import tables
  from tff_xc.report import text_table

  when = 'final scores'
  if rounds is not None:
    when = f'after {wording.count(rounds, "round")}'
  width = text_table.terminal_width()
  table = tables.to_text(rows, width, metric, 'compare.csv')
  if unequal:
    table += textwrap.fill(unequal, width) + '\n'
  return (
    f'task {task}, {when}\n{table}'
    f'written to {where}: compare.md, compare.csv, compare.png\n'
  )


def _groups(directories, rounds: int | None):
  """Returns the configurations of the runs, and the runs' common parent."""
  from tff_xc.report import groups as groups_lib

  paths = find_runs(directories)
  runs = [run_files.read_run(path) for path in paths]
  if rounds is not None:
    runs = [run_files.first_rounds(run, rounds) for run in runs]
  parent = os.path.commonpath([path.resolve().parent for path in paths])
  return groups_lib.group_runs(runs), parent


def find_reference(directory, run: run_files.Run):
  """Returns the runs in `directory` as one configuration, of the task of `run`.

  Raises:
    errors.InputError: they are several, or of another task or of other data.
  """
  found, _ = _groups([directory], None)
  task = found[0].runs[0].task
  if len(found) > 1 or task != run.task:
    what = (
      f'a run of task {task}'
      if task != run.task
      else f'{len(found)} configurations'
    )
    raise errors.InputError(
      f'--relative_to={directory} is {what}; give one configuration of task'
      f' {run.task}, such as its centralised run.'
    )
  data, other = (r.config.get('data', {}) for r in (run, found[0].runs[0]))
  for name in _SAME_DATA:
    if name in data and name in other and data[name] != other[name]:
      raise errors.InputError(
        f'--relative_to={directory} was run on other data than {run.path}: {name} is'
        f' {other[name]} there and {data[name]} here; give a run on the same classes'
        ' and test examples.'
      )
  return found[0]


def write_files(
  path: pathlib.Path,
  markdown: str,
  csv: str,
  plot: Callable[[pathlib.Path], None],
) -> None:
  """Writes a table as PATH.md and PATH.csv, and its picture as PATH.png.

  Raises:
    errors.InputError: the directory cannot be written.
  """
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in (('.md', markdown), ('.csv', csv)):
      with run_files.replacing(path.with_suffix(suffix)) as temporary:
        temporary.write_text(text, encoding='utf-8')
    plot(path.with_suffix('.png'))
  except OSError as e:
    raise errors.InputError(
      f'{path.parent} cannot be written ({e.strerror}); name another --output.'
    ) from e


def check_metric(metric: str) -> str:
  """Returns the name of a score, or of a target such as 'top1:0.7'.

  Raises:
    errors.InputError: it is neither.
  """
  if ':' in metric:
    return targets_lib.parse_one(metric).name
  if metric not in catalog.SCORES:
    raise errors.InputError(
      f'--metric={metric}: there is no such metric; there are'
      f' {", ".join(catalog.SCORES)}, and targets such as top1:0.7'
    )
  return metric


def _check_curves(curves: Sequence[str]) -> None:
  for curve in curves:
    if curve not in catalog.SCORES:
      raise errors.InputError(
        f'--curves={curve}: there is no such score; there are'
        f' {", ".join(catalog.SCORES)}'
      )


def _check_over(over: str, groups) -> None:
  """Refuses runs without what their scores are to be drawn over."""
  for group in groups:
    for run in group.runs:
      if over in budgets.UNITS and budgets.spent(run.metrics, over) is None:
        raise errors.InputError(
          f'{run.path} did not count its {over}; leave it out, or leave out'
          f' --over={over}'
        )


def find_runs(directories: Sequence[str | os.PathLike]) -> list[pathlib.Path]:
  """Returns the run directories among and below `directories`, each once.

  Raises:
    errors.InputError: a directory has none.
  """
  found: dict[pathlib.Path, pathlib.Path] = {}
  for directory in map(pathlib.Path, directories):
    runs = []
    for folder, below, _ in os.walk(directory):
      if run_files.is_run(folder):
        runs.append(pathlib.Path(folder))
        below.clear()  # A run's own folders hold no further runs.
      else:
        below[:] = sorted(name for name in below if not name.startswith('.'))
    if not runs:
      what = 'no run lies in it' if directory.is_dir() else 'it does not exist'
      raise errors.InputError(
        f'{directory} is no run directory, {what}; give the --run_dir of a '
        'launch.train, or a directory of several.'
      )
    for run in runs:
      found.setdefault(run.resolve(), run)
  return list(found.values())


def main(arguments: Sequence[str]) -> None:
  """Compares the runs named on the command line."""
  if not arguments:
    raise errors.InputError(
      'no run was named; give run directories: launch.compare RUN_DIR...'
    )
  values = flags.FLAGS
  print(
    compare(
      arguments,
      values.output,
      values.metric,
      values.rounds,
      values.target,
      values.curves,
      values.over,
      values.at,
      values.relative_to,
    ),
    end='',
  )


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  flags.DEFINE_string(
    'output',
    None,
    'directory for the table and the picture; default: the directory that the '
    'runs have in common',
  )
  flags.DEFINE_string(
    'metric',
    None,
    f'final score to sort by: {", ".join(catalog.SCORES)}, or a target such as'
    ' top1:0.7; default: the first of these that the runs have',
  )
  flags.DEFINE_string(
    'target',
    None,
    'scores to which to count the rounds, such as top1:0.7,mcc:0.5; default:'
    ' those that the runs were trained with',
  )
  flags.DEFINE_integer(
    'rounds',
    None,
    'compare the runs after this number of rounds; default: at their ends',
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_list(
    'curves',
    [],
    'scores to draw, such as pc@1,pc@1_infrequent; default: the headline metrics',
  )
  flags.DEFINE_enum(
    'over',
    'rounds',
    ['rounds', 'batches', 'bytes', 'seconds'],
    'what scores are drawn over; batches are those of the client that takes the'
    ' most in a round, bytes those of all clients',
  )
  flags.DEFINE_string(
    'at',
    '',
    'budgets at which to show the score that rows are sorted by, such as'
    ' rounds:1000,batches:10000',
  )
  flags.DEFINE_string(
    'relative_to',
    None,
    'run directory, such as that of algorithm centralized, whose final score is'
    ' 100 %: adds relative scores and the rounds until 10, 50 and 90 %',
  )
  app.run(main, __doc__)
