"""Plans and measures tables and figures, and writes what came of them."""

import dataclasses
import itertools
import pathlib
import shlex
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.reproduction import measuring
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import page
from launch.reproduction import runs as runs_lib
from launch.reproduction.studies import study
from launch.sweeps import plan
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import result
from tasks.papers import table as table_lib
from tff_xc import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """What a command line asks for.

  Attributes:
    names: of the results.
    scale: of `outcome.SCALES`.
    task: of the rows at the paper's size, or of a study; None: all.
    algorithm: of these rows; None: all.
    given: the settings that flags set, by name.
    chosen: those of `given` that choose rows.
    seeds: in place of the table's; None: the table's.
    output: the directory of results and runs.
    jobs: runs side by side; 0: as many as fit the memory.
    train: whether to train what is not finished.
  """

  names: tuple[str, ...]
  scale: str
  task: str | None = None
  algorithm: str | None = None
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  chosen: frozenset[str] = frozenset()
  seeds: Sequence[int] | None = None
  output: pathlib.Path
  jobs: int = 0
  train: bool = True

  @property
  def is_one(self) -> bool:
    """Whether one result is asked for, whose problems end the command."""
    return len(self.names) == 1

  def without(self, flag: str) -> 'Request':
    """Returns the request without a setting, or without seeds."""
    if flag == 'seeds':
      return dataclasses.replace(self, seeds=None)
    given = {n: value for n, value in self.given.items() if n != flag}
    return dataclasses.replace(self, given=given)

  def command(self, name: str) -> str:
    """Returns the command that measures one of the results again."""
    settings = {**self._limits, **self.given}
    settings.pop('data_dir', None)  # Where they lie elsewhere is not known.
    kept = [shlex.quote(f'--{n}={value}') for n, value in settings.items()]
    words = ['python -m launch.reproduce', name, f'--scale={self.scale}', *kept]
    return ' '.join(words)

  @property
  def limited(self) -> str:
    """Returns which flags leave rows or seeds out, for people; '' if none."""
    limits = ', '.join(f'--{n}={value}' for n, value in self._limits.items())
    return f'measured with {limits} only' if limits else ''

  @property
  def _limits(self) -> dict[str, str]:
    seeds = ','.join(map(str, self.seeds or ()))
    limits = {'task': self.task, 'algorithm': self.algorithm, 'seeds': seeds}
    limits |= {n: self.given[n] for n in sorted(self.chosen)}
    return {n: v for n, v in limits.items() if v not in (None, '')}


@dataclasses.dataclass(frozen=True)
class Planned:
  """A result whose flags have been checked.

  Attributes:
    found: the result.
    request: without the flags that the result has no use for.
    rows: of a table, at the scale of the request.
    runs: of each row, a run for each seed.
    config: of a study.
  """

  found: result.Result
  request: Request
  rows: Sequence[table_lib.Row] = ()
  runs: Sequence[Sequence[plan.Run]] = ()
  config: Any = None

  @property
  def by_folder(self) -> dict[pathlib.Path, plan.Run]:
    """All runs by their directories, which rows with equal settings share."""
    return {run.folder: run for group in self.runs for run in group}


def plan_all(found: Sequence[result.Result], request: Request) -> list[Planned]:
  """Checks the flags of results.

  Of several results, those that do not take the flags are left out, in a line that
  says which.

  Raises:
    errors.InputError: no result takes the flags.
  """
  planned, left_out, problems = [], {}, []
  for each in found:
    try:
      planned.append(plan_one(each, request))
    except errors.InputError as e:
      is_unused = isinstance(e, study.Unused)
      why = f'they do not take this --{e.flag}' if is_unused else str(e)
      left_out.setdefault(why, []).append(each.name)
      problems.append(e)
  if not planned:
    raise min(problems, key=_unclear)
  for why, names in left_out.items():
    print(f'left out: {", ".join(names)}: {why}', flush=True)
  return planned


def _unclear(problem: errors.InputError) -> int:
  """Returns how little a refusal says of what would be taken."""
  return 1 + problem.is_bare if isinstance(problem, study.Unused) else 0


def plan_one(found: result.Result, request: Request) -> Planned:
  """Checks the flags of one result.

  Of several results, some may have no use for where the data are, or for seeds.

  Raises:
    errors.InputError: a flag does not apply, or its value is out of bounds.
  """
  dropped = {*runs_lib.UNSEEN, *(['seeds'] if request.scale == 'paper' else [])}
  while True:
    try:
      return _planned(found, request)
    except study.Unused as e:
      if request.is_one or e.flag not in dropped:
        raise
      request = request.without(e.flag)


def _planned(found: result.Result, request: Request) -> Planned:
  limits = ('task', 'algorithm', 'seeds')
  told = {*request.given, *(n for n in limits if getattr(request, n))}
  if isinstance(found, result.Study):
    study.refuse(found.name, told & {'algorithm', 'seeds'})
    config = study.resolve(found, request.scale, request.task, request.given)
    return Planned(found, request, config=config)
  if not isinstance(found, table_lib.PaperTable):
    study.refuse(found.name, told)
    return Planned(found, request)
  if request.scale == 'paper':
    rows = runs_lib.of_paper(found, request.task, request.algorithm)
    chosen = frozenset(runs_lib.differing(rows) & set(request.given))
    request = dataclasses.replace(request, chosen=chosen)
    rows = runs_lib.having(rows, request.given)
    seeds = request.seeds or found.seeds
  else:
    study.refuse(f'{found.name} --scale=small', told - runs_lib.UNSEEN)
    rows = found.small.rows if found.small else ()
    seeds = found.small.seeds if found.small else ()
  runs = runs_lib.plan_runs(rows, request.given, seeds, request.output)
  runs_lib.check_evaluated(found, rows, runs)
  return Planned(found, request, rows, runs)


def tell_needs(planned: Sequence[Planned], request: Request) -> None:
  """Prints what the runs of results will take, from short probes.

  Raises:
    errors.InputError: no task has its data, or, after all other probes, some
      failed.
    KeyboardInterrupt: after SIGINT or SIGTERM.
  """
  from launch.reproduction import needs

  runs: dict[pathlib.Path, plan.Run] = {}
  for each in planned:
    runs |= each.by_folder
  if not runs:
    print('nothing to probe: formulas and studies have no runs of their own')
    return
  here = needs.with_data([*runs.values()])
  text, failures = needs.told(here, request.output)
  print(text, flush=True)
  if failures:
    raise errors.InputError('; '.join(failures))


def run_all(planned: Sequence[Planned], request: Request) -> None:
  """Measures results one after another; prints and writes what came of them.

  The runs of all tables of a paper are trained together, ahead of its results. Of
  several results, one that cannot be measured ends no others. At the end it writes
  the page of all results in the output's directory.

  Raises:
    errors.InputError: of a single result, its data are missing or damaged, or
      nothing could be trained; of several, at the end, files are damaged or cannot
      be written.
    KeyboardInterrupt: after SIGINT or SIGTERM; the same command goes on.
  """
  done, damaged = [], []
  for paper, group in itertools.groupby(planned, _paper):
    together, failed = [*group], {}
    if request.train and sum(bool(each.runs) for each in together) > 1:
      print(f'{paper}: the runs of its tables and figures ...', flush=True)
      failed = measuring.train_together(together)
    for each in together:
      found, is_damaged = _measure(each, failed)
      done.append(found)
      damaged += [found.name] if is_damaged else []
  if not request.is_one:
    print(outcome_lib.counted(done))
  shown = page.write(request.output, request.scale)
  print(f'written to {request.output}, see {shown.name}', flush=True)
  if damaged:
    raise errors.InputError(
      'files that are damaged, or cannot be written, kept these from being measured:'
      f' {", ".join(damaged)}; the reasons stand above'
    )


def _paper(each: Planned) -> str:
  return each.found.name.partition('/')[0]


def _measure(
  each: Planned, failed: Mapping[pathlib.Path, str]
) -> tuple[outcome_lib.Outcome, bool]:
  """Measures a result, writes and tells it; see `_not_measured`.

  What was measured before stays, also at the other scale, if nothing was now.

  Raises:
    errors.InputError: it is the only one, and cannot be measured.
  """
  is_one = each.request.is_one
  if not is_one:
    print(f'{each.found.name} ...', flush=True)
  try:
    found = _complete(each, measuring.outcome_of(each, failed))
    before = None
    if not found.has_values:
      before, _ = measuring.kept_or_why(each)
    if not before:
      outcome_lib.write(found, each.request.output)
  except errors.InputError as e:
    if is_one:
      raise
    return _not_measured(each, e)
  told = f'{found.name}: {found.verdict}: {found.why}\n'
  print(outcome_lib.to_text(found) if is_one else told, flush=True)
  if before:
    print(f'the result of before stays: {before.command}\n', flush=True)
  return before or found, False


def _not_measured(
  each: Planned, problem: errors.InputError
) -> tuple[outcome_lib.Outcome, bool]:
  """Tells why a result was not measured; returns what there is of it instead.

  Returns:
    What was measured before, which stays, or that nothing was, which is written;
    and whether files are damaged or cannot be written.
  """
  is_damaged = isinstance(problem, errors.DamageError)
  kept, why = measuring.kept_or_why(each)
  if kept:
    told = f'{problem}; the result of before stays'
    print(f'{kept.name}: {told}\n', flush=True)
    return kept, is_damaged
  is_readable = not why
  why = '; '.join(dict.fromkeys(filter(None, [str(problem), why])))
  verdict = outcome_lib.Verdict.NOT_RUN
  found = _complete(each, measuring.nothing(each, verdict, why))
  if is_readable:
    try:
      outcome_lib.write(found, each.request.output)
    except errors.DamageError:
      is_damaged = True  # As was told, or will be of the page.
  print(f'{found.name}: {verdict}: {why}\n', flush=True)
  return found, is_damaged or not is_readable


def _complete(each: Planned, found: outcome_lib.Outcome) -> outcome_lib.Outcome:
  """Returns an outcome with what was measured, and how; one that was kept has it."""
  if found.command:
    return found
  parts = found.what, each.request.limited, _part(each)
  return dataclasses.replace(
    found,
    what='; '.join(filter(None, parts)),
    command=each.request.command(each.found.name),
    version=found.version or _version(),
  )


def _part(each: Planned) -> str:
  """Returns which data sets of a table are there only in part; '' if none is."""
  places = {
    run.config['task']: run.config['data_dir']
    for run in each.by_folder.values()
  }
  parts = {
    task: found_lib.part(tasks.get(task), directory)
    for task, directory in places.items()
  }
  return ', '.join(f'{task} has {part}' for task, part in parts.items() if part)


def _version() -> str:
  from tff_xc import environment

  return environment.describe()['git_revision'] or ''
