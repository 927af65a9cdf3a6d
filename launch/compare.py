"""Compares finished runs of one task: one table and one picture.

  python -m launch.compare RUN_DIR... [--output=DIR] [--metric=top1] [--rounds=N]
      [--target=top1:0.7] [--curves=pc@1,pc@1_infrequent] [--over=bytes]
      [--at=rounds:1000,batches:10000] [--relative_to=RUN_DIR]
      [--columns=top1@400,best.pc@1] [--csv=FILE]

Runs that differ only in their seed form one row, mean ± sample std. A directory
with several runs stands for all of them. Prints the table and writes compare.md,
compare.csv and compare.png. The printed table leaves out columns that do not fit the
terminal, or 100 characters without a terminal.
"""

import contextlib
import os
import pathlib
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from launch import app, settings
from tasks import experiment
from tff_xc import errors, files, wording
from tff_xc.experiment import same_run
from tff_xc.lazy import pd
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import hyperparameters as hp, importance
from tff_xc.report import pictures, run_files, tables, text_table

# Of a run's data, what does not depend on the clients.
_SAME_DATA = ('classes', 'names_checksum', 'test_examples', 'test_checksum')
# Settings that are not part of a run's name; the table has a column of rounds.
_UNSHOWN = {'rounds', 'eval_every', 'runtime', 'device'}
# Settings that may name a file, and their values that name none.
_FILES = {
  experiment.START_FROM,
  *experiment.DATA_FILES,
  'calibration_probabilities',
  'encoder_weights',
  'importance_weights',
}
_NO_FILES = ('dirichlet', *importance.NAMED)


def compare(
  directories: Sequence[str | os.PathLike],
  output: str | os.PathLike | None = None,
  metric: str | None = None,
  rounds: int | None = None,
  target: str | None = None,
  curves: Sequence[str] = (),
  over: str = 'rounds',
  at: str | None = None,
  relative_to: str | os.PathLike | None = None,
  columns: Sequence[str] = (),
) -> str:
  """Compares runs as the flags of these names say; returns the table, and writes files."""
  metric = metric and check_metric(metric)
  for curve in curves:
    check_metric(curve, 'curves')
  targets = None if target is None else targets_lib.parse(target)
  frame = collect(directories, rounds)
  task = frame['run'].iloc[0].task
  reference = _reference(relative_to, frame)
  more = _further(columns, reference, frame)
  table = tables.build(frame, metric, targets, targets_lib.parse_budgets(at or ''), reference, more)
  from tff_xc.report import curves as curves_lib

  notes = []
  if found := tables.differing(frame):
    notes.append(f'settings that differ between the methods: {", ".join(found)}')
  first, *others = [(run.summary or {}).get('baselines') for run in frame['run']]
  if first and all(other == first for other in others):
    notes.append(f'without training reach {"; ".join(wording.baselines(first))}')
  # Drawn before anything is written, so that errors leave nothing.
  final = metric and metric.partition(':')[0]
  figure = curves_lib.compare_figure(frame, curves, over, reference, final)
  if output is None:
    parents = [run.path.resolve().parent for run in frame['run']]
    output = os.path.commonpath(parents)
  markdown = tables.to_markdown(table, mark=True)
  if notes:
    markdown += '\n'.join(['', *notes, ''])
  written = write_files(pathlib.Path(output) / 'compare', markdown, tables.to_csv(table), figure)
  when = 'final scores' if rounds is None else f'after {wording.count(rounds, "round")}'
  width = text_table.terminal_width()
  text = tables.to_text(table, width, metric, 'compare.csv', mark=True)
  text += ''.join(textwrap.fill(line, width) + '\n' for line in notes)
  return f'task {task}, {when}\n{text}{written}'


def collect(directories: Sequence[str | os.PathLike], rounds: int | None = None) -> 'pd.DataFrame':
  """Returns the runs in directories as `tables.collect` does, after `rounds`."""
  paths = find_runs(directories)
  runs = [run_files.read_run(path) for path in paths]
  if rounds is not None:
    runs = [run_files.first_rounds(run, rounds) for run in runs]
  return tables.collect(runs, chosen=_chosen)


def _reference(directory, frame: 'pd.DataFrame') -> 'pd.DataFrame | None':
  """Returns the runs in `directory`, one method on the task and data of `frame`."""
  if not directory:
    return None
  found, run = collect([directory]), frame['run'].iloc[0]
  first, number = found['run'].iloc[0], found['method'].nunique()
  if first.task != run.task or number > 1:
    what = f'{number} configurations' if first.task == run.task else f'a run of task {first.task}'
    raise errors.InputError(
      f'--relative_to={directory} is {what}; give one configuration of task'
      f' {run.task}, such as its centralized run.'
    )
  data, other = (each.config.get('data', {}) for each in (run, first))
  both = [name for name in _SAME_DATA if name in data and name in other]
  if told := same_run.differences({n: data[n] for n in both}, {n: other[n] for n in both}):
    raise errors.InputError(
      f'--relative_to={directory} was run on other data than {run.path}: {told}; give a run'
      ' on the same classes and test examples.'
    )
  return found


def _further(columns: Sequence[str], reference, frame: 'pd.DataFrame') -> list:
  """Returns the columns of these names, some of which need a reference."""
  for name in columns:
    if name.startswith('relative_') and reference is None:
      raise errors.InputError(f'--columns={name}: give --relative_to=RUN_DIR')
  found = [tables.column(name, reference) for name in columns]
  for name, each in zip(columns, found, strict=True):
    if name.startswith('best.') and not any(each.read(run) is not None for run in frame['run']):
      raise errors.InputError(
        f'--columns={name}: no run has it; those of launch.train --best_by=SCORE choose a round'
      )
  return found


def write_files(path: pathlib.Path, markdown: str, csv: str, figure) -> str:
  """Writes a table and its Matplotlib figure as PATH.md, .csv and .png; returns a line."""
  with files.writing(path.parent, 'name another --output'):
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in (('.md', markdown), ('.csv', csv)):
      with files.replacing(path.with_suffix(suffix)) as temporary:
        temporary.write_text(text, encoding='utf-8')
    drawn = pictures.save(figure, path.with_suffix('.png'))
  names = [f'{path.name}.md', f'{path.name}.csv', *(p.name for p in drawn)]
  return f'written to {path.parent}: {", ".join(names)}\n'


def keep(
  directories: Sequence[str | os.PathLike],
  path: str | os.PathLike,
  columns: Sequence[str] = (),
  relative_to: str | os.PathLike | None = None,
) -> None:
  """Writes the table of runs that a page shows, by `launch.document`, in their order.

  A label is the algorithm with what the run changes of its defaults on the task, where
  another row has it otherwise.
  """
  frame = collect(directories)
  reference = _reference(relative_to, frame)
  more = _further(columns, reference, frame)
  first = frame.drop_duplicates('method')['run']
  targets = targets_lib.parse(first.iloc[0].config.get('target', ''))
  table = tables.of_methods(frame, tables.all_columns(targets, more))
  table = table.loc[:, (table.notna() & (table != '')).any()]
  commands, processors = [], []
  seeds_of = frame.groupby('method')['seed'].agg(list)
  for run, seeds in zip(first, seeds_of, strict=True):
    given = {'task': run.task, 'algorithm': run.algorithm, **_changes(run)}
    if len(seeds) == 1:
      given['seed'] = run.seed
    words = [f'--{name}={value}' for name, value in given.items()]
    commands.append(shlex.join(['python', '-m', 'launch.train', *words]))
    is_cpu = 'tensorflow-cpu' in run.config.get('versions', {})
    processors.append(run.config.get('device') or ('CPU' if is_cpu else ''))

  def revisions(runs):
    found = [run.config.get('git_revision') for run in runs]
    return ' '.join(dict.fromkeys(filter(None, found)))

  table = table.assign(
    revision=frame.groupby('method')['run'].agg(revisions), processor=processors, command=commands
  )
  with files.writing(path, 'name another --csv'), files.replacing(path) as temporary:
    temporary.write_text(tables.to_csv(table), encoding='utf-8')


def _chosen(run: run_files.Run) -> set[str]:
  """Returns the settings by which a run is named, if other runs do not share them.

  These are the settings that differ from the defaults, or all of them if the defaults
  are not known.
  """
  try:
    return _changes(run).keys() - _UNSHOWN
  except errors.InputError:  # An algorithm or task of the user's own code.
    return run_files.settings_of(run).keys()


def _changes(run: run_files.Run) -> dict:
  """Returns what a run changes of its defaults on the task; it opens no file of the run.

  Raises InputError if the task or the algorithm is not known.
  """

  def resolved(changes: Mapping[str, Any]) -> dict[str, Any]:
    named = {
      name: value for name, value in changes.items() if name in _FILES and value not in _NO_FILES
    }
    given = {n: v for n, v in changes.items() if n not in named}
    # Without a data_dir, no task of one's own data has defaults.
    given['data_dir'] = 'data'
    config = experiment.resolve(run.task, run.algorithm, given)
    return {**run_files.flat(config), **named}

  unset = run.config.get(same_run.UNSET, ())  # They follow from the data.
  given = {
    name: value
    for name, value in run_files.settings_of(run).items()
    if name in settings.parameters() and name not in unset
  }
  changes = experiment.changes_of(given, resolved)
  # Its value may follow from another change, as that of --server_learning_rate does.
  whole = resolved(changes)
  for name in [*changes]:
    rest = {n: v for n, v in changes.items() if n != name}
    with contextlib.suppress(errors.InputError):
      if resolved(rest) == whole:
        changes = rest
  return changes


def check_metric(metric: str, flag: str = 'metric') -> str:
  """Returns the name of a score, or of a target such as 'top1:0.7' of --metric."""
  if ':' in metric and flag == 'metric':
    return targets_lib.parse_one(metric).name
  if metric not in catalog.SCORES:
    raise errors.InputError(
      f'--{flag}={metric}: there is no such score; there are {", ".join(catalog.SCORES)}, and'
      ' for --metric targets such as top1:0.7'
    )
  return metric


def find_runs(directories: Sequence[str | os.PathLike]) -> list[pathlib.Path]:
  """Returns the run directories among and below `directories`, each once."""
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
    raise errors.InputError('no run was named; give run directories: launch.compare RUN_DIR...')
  values = flags.FLAGS
  names = ('output', 'metric', 'rounds', 'target', 'curves', 'over', 'at')
  if values.csv:
    others = (*names, 'picture_format')
    settings.refuse(others, 'does not go with --csv, which takes --columns and --relative_to')
    keep(arguments, values.csv, values.columns, values.relative_to)
    print(f'written: {values.csv}')
    return
  names += ('relative_to', 'columns')
  settings.use_picture_format()
  text = compare(arguments, **{name: values[name].value for name in names})
  print(text, end='')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  for _name, _help in {
    'output': 'directory for the table and the picture; default: the directory that'
    ' the runs have in common',
    'metric': f'final score to sort by: {", ".join(catalog.SCORES)}, or a target'
    ' such as top1:0.7; default: the first of these that the runs have',
    'target': 'scores to which to count the rounds, such as top1:0.7,mcc:0.5;'
    ' default: those that the runs were trained with',
    'at': 'budgets at which to show the score that rows are sorted by, such as'
    ' rounds:1000,batches:10000,bytes:1000000',
    'relative_to': 'run directory, such as that of algorithm centralized, whose'
    ' final score is 100 %: adds relative scores and the rounds until 10, 50 and'
    ' 90 %',
    'csv': 'write only this file: a table with exact numbers, revisions and commands. Only'
    ' --columns and --relative_to apply to it',
  }.items():
    flags.DEFINE_string(_name, None, _help)
  for _name, _help in {
    'curves': 'scores to draw, such as pc@1,pc@1_infrequent; default: the headline metrics',
    'columns': 'additional columns: a score after a round (top1@400); a score, the number or'
    ' the bytes of the best round (best.pc@1, best.round, best.bytes_down); or the standard'
    ' deviation of a score over the last tenth of the evaluations (volatility_top1)',
  }.items():
    flags.DEFINE_list(_name, [], _help)
  flags.DEFINE_integer(
    'rounds',
    None,
    'compare the runs after this number of rounds; default: at their ends',
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_enum(
    'over',
    'rounds',
    ['rounds', 'batches', 'bytes', 'seconds'],
    'horizontal axis of the picture; batches are those of the largest client in each round, and'
    ' bytes are those of all clients together',
  )
  settings.define_picture_flag()
  app.run(main, __doc__)
