"""Compares finished runs of one task in a table and a picture.

  python -m launch.compare RUN_DIR... [--output=DIR] [--metric=top1] [--rounds=N]
      [--target=top1:0.7] [--curves=pc@1,pc@1_infrequent] [--over=bytes]
      [--at=rounds:1000,batches:10000] [--relative_to=RUN_DIR]
      [--columns=top1@400,best.pc@1] [--csv=FILE]

Runs that differ only in their seed share a row, which shows their mean ± sample standard
deviation. RUN_DIR may also be a directory that contains several runs. The command prints the
table and writes compare.md, compare.csv and compare.png. The printed table leaves out columns
that do not fit into the terminal, or into 100 characters if there is no terminal.
"""

import contextlib
import os
import pathlib
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from datasets.splits import rules
from launch import app, settings
from tasks import configuration
from tff_xc import errors, files, wording
from tff_xc.experiment import same_run
from tff_xc.lazy import pd
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.options import hyperparameters as hp, importance
from tff_xc.report import pictures, run_files, tables, text_table

# Properties of a run's data that do not depend on the clients.
_SAME_DATA = ('classes', 'names_checksum', 'test_examples', 'test_checksum')
# Settings that never appear in the label of a row. The table shows the rounds in a column.
_UNSHOWN = {'rounds', 'eval_every', 'runtime', 'device'}
# Settings whose value may be the name of a file. The values in `_NO_FILES` are not file names.
_FILES = {
  configuration.START_FROM,
  *configuration.DATA_FILES,
  'calibration_probabilities',
  'encoder_weights',
  'importance_weights',
}
_NO_FILES = ('class', 'dirichlet', *importance.NAMED)
# Settings that do not change results, but belong to the command of a run.
_OF_COMMAND = ('target', 'best_by', 'early_stopping_patience')


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
  """Compares runs, writes the files and returns the table. The arguments are the flags."""
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
    notes.append(f'scores without training: {"; ".join(wording.baselines(first))}')
  # The figure is drawn before anything is written, so that errors leave no files.
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
  """Returns the frame of `tables.collect` for all runs in the directories, up to `rounds`."""
  paths = find_runs(directories)
  runs = [run_files.read_run(path) for path in paths]
  if rounds is not None:
    runs = [run_files.first_rounds(run, rounds) for run in runs]
  return tables.collect(runs, chosen=_chosen)


def _reference(directory, frame: 'pd.DataFrame') -> 'pd.DataFrame | None':
  """Returns the runs in `directory`; refuses several methods, another task and other data."""
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
  """Returns the columns with these names. A relative column needs a reference."""
  for name in columns:
    if name.startswith('relative_') and reference is None:
      raise errors.InputError(f'--columns={name}: give --relative_to=RUN_DIR')
  found = [tables.column(name, reference) for name in columns]
  for name, each in zip(columns, found, strict=True):
    if name.startswith('best.') and not any(each.read(run) is not None for run in frame['run']):
      raise errors.InputError(
        f'--columns={name}: no run has it; only runs of launch.train --best_by=SCORE choose a'
        ' best round'
      )
  return found


def write_files(path: pathlib.Path, markdown: str, csv: str, figure) -> str:
  """Writes a table and a Matplotlib figure as PATH.md, .csv and .png.

  Returns a line that names the files.
  """
  with files.folder(path.parent):
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
  """Writes the table of runs that `launch.document` shows on a page, in the order of the runs.

  The label of a row has the algorithm and some settings: those that differ from the task's
  defaults and also from another row.
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
    given = {'task': run.task, 'algorithm': run.algorithm, **_changes(run, _OF_COMMAND)}
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
  """Returns the settings that the label of a run may show, if they differ between runs.

  These are the settings that differ from the defaults, or all settings if the defaults
  are unknown.
  """
  try:
    return _changes(run).keys() - _UNSHOWN
  except errors.InputError:  # The user's code defines the algorithm or the task.
    return run_files.settings_of(run).keys()


def _is_file(name: str, value: Any) -> bool:
  if name not in _FILES or value in _NO_FILES:
    return False
  try:
    return name != 'split' or rules.parse(value) is None
  except errors.InputError:
    return True


def _changes(run: run_files.Run, more: Sequence[str] = ()) -> dict:
  """Returns the settings of a run that differ from the task's defaults, without reading files.

  `more` names settings that do not change results. Raises InputError if the task or the
  algorithm is unknown.
  """

  def resolved(changes: Mapping[str, Any]) -> dict[str, Any]:
    named = {
      name: value
      for name, value in changes.items()
      if name == configuration.START_FROM_ROWS or _is_file(name, value)
    }
    given = {n: v for n, v in changes.items() if n not in named}
    # Tasks on the user's own data cannot be resolved without a data_dir.
    given['data_dir'] = 'data'
    config = configuration.resolve(run.task, run.algorithm, given)
    return {**run_files.flat(config), **named}

  unset = run.config.get(same_run.UNSET, ())  # Settings that follow from the data.
  found = run_files.settings_of(run) | {n: run.config[n] for n in more if n in run.config}
  given = {
    name: value
    for name, value in found.items()
    if name in settings.parameters() and name not in unset
  }
  changes = configuration.changes_of(given, resolved)
  # A value may follow from another setting. For example, --server_optimizer changes the default of
  # --server_learning_rate.
  whole = resolved(changes)
  for name in [*changes]:
    rest = {n: v for n, v in changes.items() if n != name}
    with contextlib.suppress(errors.InputError):
      if resolved(rest) == whole:
        changes = rest
  return changes


def check_metric(metric: str, flag: str = 'metric') -> str:
  """Checks and returns the name of a score.

  --metric may also be a target such as 'top1:0.7'.
  """
  if ':' in metric and flag == 'metric':
    return targets_lib.parse_one(metric).name
  if metric not in catalog.SCORES:
    raise errors.InputError(
      f'--{flag}={metric}: there is no such score; choose one of {", ".join(catalog.SCORES)}, or'
      ' for --metric a target such as top1:0.7'
    )
  return metric


def find_runs(directories: Sequence[str | os.PathLike]) -> list[pathlib.Path]:
  """Returns all run directories among and below `directories`, without repetitions."""
  found: dict[pathlib.Path, pathlib.Path] = {}
  for directory in map(pathlib.Path, directories):
    runs, visited = [], set()
    for folder, below, _ in os.walk(directory, followlinks=True):
      real = os.path.realpath(folder)
      if real in visited:
        below.clear()  # A link leads here again.
        continue
      visited.add(real)
      if run_files.is_run(folder):
        runs.append(pathlib.Path(folder))
        below.clear()  # There are no runs inside a run directory.
      else:
        below[:] = sorted(name for name in below if not name.startswith('.'))
    if not runs:
      what = 'it is no directory' if directory.exists() else 'it does not exist'
      if directory.is_dir():
        what = 'no run lies in it'
      raise errors.InputError(
        f'{directory} is no run directory, {what}; give the --run_dir of a '
        'launch.train command, or a directory with several runs.'
      )
    for run in runs:
      found.setdefault(run.resolve(), run)
  return list(found.values())


def main(arguments: Sequence[str]) -> None:
  """Compares the runs that the command line names."""
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
  text = compare(arguments, **{name: values[name].value for name in names})
  print(text, end='')


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  for _name, _help in {
    'output': 'directory for the table and the picture; default: the directory that contains all'
    ' the runs',
    'metric': f'final score to sort by: {", ".join(catalog.SCORES)}, or a target'
    ' such as top1:0.7; default: the first of these scores that the runs have',
    'target': 'scores to reach, such as top1:0.7,mcc:0.5. The table shows the number of rounds'
    ' until a run reaches each score. Default: the --target of the runs',
    'at': 'show the score of --metric at these budgets, such as'
    ' rounds:1000,batches:10000,bytes:1000000',
    'relative_to': 'run directory of a reference, such as a centralized run. The final score of'
    ' the reference counts as 100 %. The table also shows relative scores, and the rounds until a'
    ' run reaches 10, 50 and 90 %',
    'csv': 'write only this file, a table with exact numbers, revisions and commands. Only'
    ' --columns and --relative_to may be combined with --csv',
  }.items():
    flags.DEFINE_string(_name, None, _help)
  for _name, _help in {
    'curves': 'scores to draw in the picture, such as pc@1,pc@1_infrequent; default: the main'
    ' metrics of the task',
    'columns': 'additional columns, separated by commas. top1@400: a score after round 400;'
    ' best.pc@1: a score in the best round; best.round: the number of the best round;'
    ' best.bytes_down: the bytes sent to clients until the best round; volatility_top1: the'
    ' standard deviation of a score over the last tenth of the evaluations',
  }.items():
    flags.DEFINE_list(_name, [], _help)
  flags.DEFINE_integer(
    'rounds',
    None,
    'compare the runs after this number of rounds; default: after the last round of each run',
    lower_bound=1,
    upper_bound=hp.INT32_MAX,
  )
  flags.DEFINE_enum(
    'over',
    'rounds',
    ['rounds', 'batches', 'bytes', 'seconds'],
    'horizontal axis of the picture. batches: the sum over rounds of the number of batches of the'
    ' largest client; bytes: the bytes of all clients together',
  )
  settings.define_picture_flag()
  app.run(main, __doc__)
