"""Plans the runs of published results: chooses rows by the flags, and checks the data.

Tables with the same --output share runs with equal settings. A figure that shows finished
runs of a table trains nothing. The directories of runs are
OUTPUT/runs/TASK/ALGORITHM_NAME=VALUE.../seedS.
"""

import collections
import contextlib
import dataclasses
import pathlib
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launch import runs as runs_lib
from launch.reproduction import lines as lines_lib
from tasks import configuration, registry as tasks, task as task_lib
from tasks.papers import encoders, names, registry, table as table_lib
from tff_xc import errors, wording
from tff_xc.algorithms import base, registry as algorithms
from tff_xc.report import run_files, text_table

# Settings that do not affect training, so they are not part of an experiment.
UNSEEN = frozenset({*run_files.NOT_CONFIGURATION, 'device', 'runtime'})
ENCODERS = 'encoders'  # The folder of runs whose encoders other runs start from.
_KEPT_RESULTS = pathlib.Path(__file__).parents[2] / 'docs' / 'results'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """The flags of a command line. None: all tasks, all algorithms, or the seeds of the table."""

  scale: str
  output: pathlib.Path
  task: str | None = None
  algorithm: str | None = None
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  seeds: Sequence[int] | None = None
  jobs: int = 0  # The number of parallel runs; 0: as many as fit the memory.
  train: bool = True
  # Whether the user requests only one result. Then a problem with the result ends the command.
  is_one: bool = True

  def limits(self) -> dict[str, Any]:
    """Returns the given flags that choose tasks, algorithms and seeds."""
    seeds = ','.join(map(str, self.seeds or ()))
    named = {'task': self.task, 'algorithm': self.algorithm, 'seeds': seeds}
    return {name: value for name, value in named.items() if value}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
  """A result with checked flags."""

  found: table_lib.Result
  request: Request  # The request, without the flags that this result ignores.
  # The rows of a table, and the runs of each row by seed.
  rows: Sequence[table_lib.Row] = ()
  runs: Sequence[Sequence[runs_lib.Run]] = ()
  configs: Sequence[Mapping[str, Any]] = ()  # A study's configuration for each task.

  @property
  def command(self) -> str:
    """The command that measures the result again."""
    request = self.request
    # The path of the data may differ on another machine.
    settings = table_lib.without(request.limits() | {**request.given}, ['data_dir'])
    kept = [shlex.quote(f'--{n}={value}') for n, value in settings.items()]
    return ' '.join([lines_lib.command(self.found.name, request.scale), *kept])

  @property
  def by_folder(self) -> dict[pathlib.Path, runs_lib.Run]:
    """All runs by directory. Rows with equal settings share a directory."""
    return {run.folder: run for group in self.runs for run in group}

  @property
  def encoders(self) -> dict[pathlib.Path, runs_lib.Run]:
    """The runs whose encoders the rows start from, by directory."""
    found = (encoder_run(row, self.request.output) for row in self.rows)
    return {run.folder: run for run in found if run}

  def kept(self) -> lines_lib.Measured:
    """Returns earlier measurements of the result at this scale."""
    return lines_lib.read(self.request.output, self.found, self.request.scale)

  def measured(self, lines: Sequence[lines_lib.Line]) -> lines_lib.Measured:
    """Returns new measurements with these lines."""
    return lines_lib.Measured(self.found, self.request.scale, lines)


def plan_all(found: Sequence[table_lib.Result], request: Request) -> list[Planned]:
  """Checks flags and plans results. Skips results that refuse a flag, and prints why."""
  planned, problems = [], {}
  for each in found:
    try:
      planned.append(plan_one(each, request))
    except errors.InputError as e:
      problems[each.name] = str(e)
  if not planned:  # The longest message says most about valid flags.
    raise errors.InputError(max(problems.values(), key=len))
  for name, why in problems.items():
    print(f'left out: {name}: {why}', flush=True)
  return planned


def plan_one(found: table_lib.Result, request: Request) -> Planned:
  """Checks the flags of one result, and plans its runs.

  If the user requests several results, a result ignores --seeds and flags that do not affect
  training, if it has no use for them.
  """
  table, scale = found, request.scale
  has_form = scale != 'real'
  if isinstance(found, table_lib.PaperTable):
    has_form = scale == 'small' or found.form(scale).rows
  elif isinstance(found, table_lib.Study) and found.runs_of:
    table = registry.TABLES[found.runs_of[0]]
  if not has_form:
    why = f'--scale={scale}: {found.name} has no form at this scale; leave it out'
    raise errors.InputError(why)
  request = _used(table, request)
  if isinstance(table, table_lib.PaperTable):
    planned = _of_table(table, request)
    return planned if table is found else _fewest(found, planned)
  configs = _of_study(found, request) if isinstance(found, table_lib.Study) else ()
  return Planned(found=found, request=request, configs=configs)


def _used(found: table_lib.Result, request: Request) -> Request:
  """Refuses flags that a result does not use.

  If the user requests several results, unused flags of seeds and unused flags that do not
  affect training are removed instead.
  """
  told = {*request.given, *request.limits()}
  unused, name = told, found.name
  if isinstance(found, table_lib.Study):
    unused = told - ({'task', *found.flags} if found.tasks else set())
  elif isinstance(found, table_lib.PaperTable):
    unused = told - UNSEEN - {'seeds'} if request.scale == 'small' else set()
    name += ' --scale=small'
  if not request.is_one:
    left_out = unused & {*UNSEEN, 'seeds'}
    unused -= left_out
    given = table_lib.without(request.given, left_out)
    seeds = None if 'seeds' in left_out else request.seeds
    request = dataclasses.replace(request, given=given, seeds=seeds)
  for flag in sorted(unused):
    raise errors.InputError(f'--{flag}: {name} has no use for it; leave it out')
  return request


def _of_table(found: table_lib.PaperTable, request: Request) -> Planned:
  """Plans the runs of those rows of a table that the flags choose."""
  form, given = found.form(request.scale), request.given
  rows = form.rows
  if request.scale != 'small':
    rows = choose(found, rows, request.task, request.algorithm)
    # A flag that chooses rows does not replace settings of the other rows.
    given = table_lib.without(request.given, _differing(rows))
    rows = having(rows, request.given)
  runs = plan_runs(rows, given, request.seeds or form.seeds, request.output)
  check_evaluated(found, rows, runs)
  return Planned(found=found, request=request, rows=rows, runs=runs)


def _differing(rows: Sequence[table_lib.Row]) -> set[str]:
  """Returns the settings in which rows of one task and algorithm differ."""
  return {name for row in rows for name in table_lib.differing(row, rows)}


def _of_study(found: table_lib.Study, request: Request) -> list[dict[str, Any]]:
  """Returns the configurations of a study's tasks."""
  of = found.tasks.get(request.scale, {})
  if request.task:
    known = [*of]
    if found.takes_sets:
      known = [t.name for t in tasks.TASKS.values() if base.ONE_LABEL in t.lacks]
    if request.task not in known:
      told = f'--task={request.task}: {found.name} is of {", ".join(known)}'
      raise errors.InputError(told)
    of = {request.task: of.get(request.task, {})}
  return [
    configuration.resolve(task, found.algorithm, {**options, **request.given})
    for task, options in of.items()
  ]


def _fewest(found: table_lib.Study, whole: Planned) -> Planned:
  """Plans a study that uses runs of a table.

  For each algorithm, the study uses the run with the fewest negatives and the first seed.
  """
  rows, runs = [], []
  for algorithm in found.runs_of[1:]:
    own = [
      pair for pair in zip(whole.rows, whole.runs, strict=True) if pair[0].algorithm == algorithm
    ]
    row, group = min(own, key=lambda pair: pair[0].changes.get('negatives', 0))
    rows.append(row)
    runs.append(group[:1])
  return dataclasses.replace(whole, found=found, rows=rows, runs=runs)


def choose(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  task: str | None,
  algorithm: str | None,
) -> list[table_lib.Row]:
  """Returns the rows of a table that flags choose.

  If `task` is None, these are the rows on tasks that read data files, or all rows if the table
  has no such task. If results are relative to reference rows, these rows are added.
  """
  known = list(dict.fromkeys(row.task for row in rows))
  if task not in (None, *known):
    raise errors.InputError(f'--task={task}: {found.name} has results on {", ".join(known)}')
  real = [name for name in known if tasks.get(name).find is not None]
  wanted = [task] if task else real or known
  rows = [row for row in rows if row.task in wanted]
  kept = [row for row in rows if algorithm in (None, row.algorithm)]
  if not kept:
    there = ', '.join(dict.fromkeys(row.algorithm for row in rows))
    told = f'{found.name} has, on {", ".join(wanted)}, {there}'
    raise errors.InputError(f'--algorithm={algorithm}: {told}')
  metrics = {name for row in kept for name in row.published}
  metrics |= {claim.metric for claim in found.form('paper').claims}
  if any(names.parse(metric).relative is not None for metric in metrics):
    kept += [found.reference(row, rows) for row in kept]
  return [row for row in rows if any(row is each for each in kept)]


def having(rows: Sequence[table_lib.Row], given: Mapping[str, Any]) -> list[table_lib.Row]:
  """Returns the rows that `given` selects.

  A setting of `given` selects rows by its value only among rows of one task and algorithm that
  differ in this setting; all other rows are kept. Raises `errors.InputError` if no row has the
  value.
  """
  kept = list(rows)
  for name in sorted(_differing(rows) & set(given)):
    values = {
      id(row): _settings(row, row.changes).get(name)
      for row in rows
      if name in table_lib.differing(row, rows)
    }
    if given[name] not in values.values():
      known = ', '.join(map(str, dict.fromkeys(values.values())))
      raise errors.InputError(f'--{name}={given[name]}: rows of this table have {known}')
    kept = [row for row in kept if values.get(id(row), given[name]) == given[name]]
  return kept


def _settings(row: table_lib.Row, changes: Mapping[str, Any]) -> dict[str, Any]:
  return run_files.flat(configuration.resolve(row.task, row.algorithm, changes))


def plan_runs(
  rows: Sequence[table_lib.Row],
  given: Mapping[str, Any],
  seeds: Sequence[int],
  output: pathlib.Path,
) -> list[list[runs_lib.Run]]:
  """Returns the runs of each row, one for each seed. `given` replaces settings of rows."""
  there = dict.fromkeys(row.algorithm for row in rows)
  taken = {name for each in there for name in algorithms.get(each).names}
  for name in sorted(given.keys() & algorithms.HYPERPARAMETERS.keys() - taken):
    why = 'is a hyper-parameter of none of these algorithms'
    raise errors.InputError(f'--{name} {why}: {", ".join(there)}')
  found = []
  for row, label in zip(rows, table_lib.labels(rows), strict=True):
    values = {**row.changes, **table_lib.applying(given, row.algorithm)}
    before, after = _settings(row, {}), _settings(row, values)
    seen = {
      name: values[name]
      for name in sorted(set(values) - UNSEEN)
      if before.get(name) != after.get(name)
    }
    folder = runs_lib.folder_of(pathlib.Path(output, 'runs', row.task), seen, row.algorithm)
    if source := encoder_run(row, output):
      values |= {'start_from': str(source.folder), 'start_from_rows': 'none'}
    group = []
    for seed in seeds:
      config = configuration.resolve(row.task, row.algorithm, {**values, 'seed': seed})
      group.append(runs_lib.Run(values, config, folder / f'seed{seed}', label))
    found.append(group)
  return found


def encoder_run(row: table_lib.Row, output: pathlib.Path) -> runs_lib.Run | None:
  """Returns the run whose encoder the runs of a row start from, or None.

  The directory of this run is OUTPUT/runs/encoders/NAME.
  """
  name = row.changes.get('start_from')
  if name not in encoders.ENCODERS:
    return None
  task, changes = encoders.ENCODERS[name]
  config = configuration.resolve(task, 'centralized', changes)
  folder = pathlib.Path(output, 'runs', ENCODERS, name)
  return runs_lib.Run(changes, config, folder, f'encoder {name}')


def check_evaluated(
  found: table_lib.PaperTable, rows: Sequence[table_lib.Row], runs: Sequence[Sequence[runs_lib.Run]]
) -> None:
  """Refuses runs that are not evaluated after the rounds that a table shows."""
  for row, [run, *_] in zip(rows, runs, strict=True):
    budgets = (names.parse(name).budget for name in row.published)
    wanted = {each.number for each in budgets if each and each.unit == 'rounds'}
    wanted |= {found.at_rounds} - {None}
    rounds, every = run.config['rounds'], run.config['eval_every']
    shown = sorted({min(number, rounds) for number in wanted})
    if shown and (stop := run.config['early_stopping_patience']):
      raise errors.InputError(
        f'--early_stopping_patience={stop}: a run may end before round {shown[-1]}, whose'
        ' scores this table shows; leave it out'
      )
    for at in shown:
      if at % every and at != rounds:  # The last round is always evaluated.
        raise errors.InputError(
          f'--eval_every={every}: the scores are those after round {at} of {rounds},'
          ' which would not be evaluated; give a divisor of it'
        )


def tell_needs(planned: Sequence[Planned], request: Request) -> None:
  """Prints the approximate time that the runs of results take.

  Raises `errors.InputError` if the data of all tasks are missing.
  """
  runs: dict[pathlib.Path, runs_lib.Run] = {}
  for each in planned:
    runs |= each.encoders | each.by_folder
  if not runs:
    print('nothing to run: formulas and studies have no runs of their own')
  else:
    there = with_data(run.config for run in runs.values())
    print(needs([run for run in runs.values() if there[run.task]], request.output))


def with_data(configs: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
  """Returns whether each task has its data, and prints which data are missing or incomplete.

  Raises `errors.InputError` if the data of all tasks are missing.
  """
  missing: dict[str, str] = {}
  for task, directory in {c['task']: c['data_dir'] for c in configs}.items():
    missing[task] = ''
    try:
      runs_lib.check_files(task, directory)
    except errors.InputError as e:
      missing[task] = str(e)
    if part := task_lib.part(tasks.get(task), directory):
      print(f'only a part: {task} in {directory} has {part}', flush=True)
  needed_by = collections.defaultdict(list)  # The tasks that need each missing part of the data.
  for task, why in missing.items():
    for part in filter(None, why.split(task_lib.ALSO)):
      needed_by[part].append(task)
  lines = [f'{", ".join(of)}: {part}' for part, of in needed_by.items()]
  if all(missing.values()):
    raise errors.InputError('\n  '.join(['these data are missing:', *lines]))
  for line in lines:
    print(f'missing: {line}', flush=True)
  return {task: not why for task, why in missing.items()}


def needs(runs: Sequence[runs_lib.Run], output: pathlib.Path) -> str:
  """Returns a text on the remaining runs and rounds, and their approximate time."""
  waiting = [run for run in runs if not runs_lib.is_finished(run)]
  counts, rounds = collections.Counter(), collections.Counter()
  for run in waiting:
    key = run.task, run.config['algorithm']
    counts[key] += 1
    rounds[key] += run.config['rounds'] - _rounds_done(run)
  each = _seconds(output)
  seconds = {key: each[key] * rounds[key] for key in counts if key in each}
  rows = [['runs of', 'left', 'rounds', 's / round', 'time']]
  for key, count in counts.items():
    shown = [table_lib.NONE, table_lib.NONE]
    if key in seconds:
      shown = [f'{each[key]:.2g}', wording.human_duration(seconds[key])]
    rows.append([' '.join(key), str(count), f'{rounds[key]:,}', *shown])
  table = text_table.to_text(rows, (0,), text_table.terminal_width())
  hours = f'about {wording.human_duration(sum(seconds.values()))}' if seconds else 'not known'
  if unknown := sum(count for key, count in counts.items() if key not in seconds):
    hours += f', without {wording.count(unknown, "run")}'
  return (
    f'{wording.count(len(runs), "run")}, {len(waiting)} of them not finished\n\n'
    f'{table}\ns / round: the median of earlier runs of this task and algorithm,'
    ' without evaluations;\n  –: none has run yet, and a few rounds will do\n'
    f'one after another: {hours}\n'
  )


def _rounds_done(run: runs_lib.Run) -> int:
  """Returns the round of the newest checkpoint; 0 if there is none."""
  found = (run.folder / 'checkpoints').glob('round_*.npz')
  done = (path.stem.removeprefix('round_') for path in found)
  newest = max(map(int, filter(str.isdigit, done)), default=0)
  return min(newest, run.config['rounds'])


def _seconds(output: pathlib.Path) -> dict[tuple[str, str], float]:
  """Returns the median seconds of a round in earlier runs, by task and algorithm.

  The seconds come from runs in `output`, or else from results in docs/results.
  """
  kept, own = collections.defaultdict(list), collections.defaultdict(list)
  for paper in dict.fromkeys(name.partition('/')[0] for name in registry.RESULTS):
    for line in lines_lib.read_all(_KEPT_RESULTS / f'{paper}.csv'):
      if line.metric == names.SECONDS and line.measured:
        kept[line.task, line.algorithm].append(line.measured.value)
  for path in (output / 'runs').glob(f'*/*/*/{run_files.METRICS}'):
    with contextlib.suppress(errors.InputError):
      run = run_files.read_run(path.parent)
      # A run that stopped in its first round has no seconds.
      if 'seconds' in run.metrics and run.metrics['seconds'].count():
        own[run.task, run.algorithm].append(run.metrics['seconds'].median())
  return {k: float(statistics.median(v)) for k, v in {**kept, **own}.items()}


def cost(run: runs_lib.Run) -> float:
  """Returns a number that grows with the time and the memory that a run needs."""
  values = run_files.flat(run.config)
  passes = values.get('local_steps') or values.get('local_epochs', 1)
  clients, layers = values.get('clients_per_round') or 1, values.get('depth', 1)
  return clients * passes * layers * values.get('embedding_dim', 1)
