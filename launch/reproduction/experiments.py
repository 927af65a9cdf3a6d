"""Plans and measures tables and figures, and writes what came of them."""

import dataclasses
import itertools
import pathlib
import shlex
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch import machine
from launch.reproduction import judge
from launch.reproduction import needs
from launch.reproduction import page
from launch.reproduction import results
from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from launch.sweeps import plan
from launch.sweeps import training
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import table as table_lib
from tff_xc import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """What a command line asks for; None: all tasks, algorithms, or the table's seeds."""

  scale: str
  output: pathlib.Path
  task: str | None = None
  algorithm: str | None = None
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  chosen: frozenset[str] = frozenset()  # Settings of `given` that choose rows.
  seeds: Sequence[int] | None = None
  jobs: int = 0  # Runs side by side; 0: as many as fit the memory.
  train: bool = True
  is_one: bool = True  # One result, whose problems end the command.

  def told(self) -> set[str]:
    """Returns the flags that limit or change results."""
    limits = ('task', 'algorithm', 'seeds')
    return {*self.given, *(n for n in limits if getattr(self, n))}

  def command(self, name: str) -> str:
    """Returns the command that measures a result again."""
    seeds = ','.join(map(str, self.seeds or ()))
    limits = {'task': self.task, 'algorithm': self.algorithm, 'seeds': seeds}
    settings = {n: value for n, value in limits.items() if value}
    settings |= {n: self.given[n] for n in sorted(self.chosen)} | {**self.given}
    settings.pop('data_dir', None)  # Where they lie elsewhere is not known.
    kept = [shlex.quote(f'--{n}={value}') for n, value in settings.items()]
    return ' '.join([results.command(name, self.scale), *kept])


@dataclasses.dataclass(frozen=True)
class Planned:
  """A result whose flags have been checked."""

  found: table_lib.Result
  request: Request  # Without the flags that the result has no use for.
  # Of a table, each with a run for each seed.
  rows: Sequence[table_lib.Row] = ()
  runs: Sequence[Sequence[plan.Run]] = ()
  config: Any = None  # Of a study.

  @property
  def by_folder(self) -> dict[pathlib.Path, plan.Run]:
    """All runs by their directories, which rows with equal settings share."""
    return {run.folder: run for group in self.runs for run in group}

  @property
  def encoders(self) -> dict[pathlib.Path, plan.Run]:
    """The runs by whose encoders others start, by their directories."""
    found = (rows_lib.encoder_run(r, self.request.output) for r in self.rows)
    return {run.folder: run for run in found if run}

  def kept(self) -> results.Measured:
    """Returns what was measured before at this scale."""
    return results.read(self.request.output, self.found, self.request.scale)

  def measured(self, lines: Sequence[Mapping[str, Any]]) -> results.Measured:
    """Returns what these lines say."""
    return results.Measured(
      self.found, self.request.scale, results.frame(lines)
    )


def plan_all(
  found: Sequence[table_lib.Result], request: Request
) -> list[Planned]:
  """Checks the flags; leaves out, in a line that says so, results that do not take them."""
  planned, left_out, problems = [], {}, []
  for each in found:
    try:
      planned.append(plan_one(each, request))
    except errors.InputError as e:
      is_unused = isinstance(e, rows_lib.Unused)
      why = f'they do not take this --{e.flag}' if is_unused else str(e)
      left_out.setdefault(why, []).append(each.name)
      problems.append(e)
  if not planned:  # The refusal that says most of what would be taken.
    raise min(problems, key=lambda e: 1 + getattr(e, 'is_bare', -1))
  for why, names in left_out.items():
    print(f'left out: {", ".join(names)}: {why}', flush=True)
  return planned


def plan_one(found: table_lib.Result, request: Request) -> Planned:
  """Checks the flags of one result; of several some may have no use for seeds or data."""
  while True:
    try:
      return _planned(found, request)
    except rows_lib.Unused as e:
      if request.is_one or e.flag not in {*rows_lib.UNSEEN, 'seeds'}:
        raise
      given = {n: value for n, value in request.given.items() if n != e.flag}
      seeds = None if e.flag == 'seeds' else request.seeds
      request = dataclasses.replace(request, given=given, seeds=seeds)


def _planned(found: table_lib.Result, request: Request) -> Planned:
  told = request.told()
  if request.scale == 'real' and not getattr(found, 'real', None):
    told = f'--scale=real: {found.name} has no form on real data; leave it out'
    raise rows_lib.Unused('scale', told)
  if isinstance(found, table_lib.Study):
    rows_lib.refuse(found.name, told & {'algorithm', 'seeds'})
    config = studies.module(found).resolve(found.name, request)
    return Planned(found, request, config=config)
  if not isinstance(found, table_lib.PaperTable):
    rows_lib.refuse(found.name, told)
    return Planned(found, request)
  _, rows, _, seeds = found.form(request.scale) or table_lib.Form('', ())
  if request.scale == 'small':
    unused = told - rows_lib.UNSEEN - {'seeds'}
    rows_lib.refuse(f'{found.name} --scale=small', unused)
  else:
    rows = rows_lib.chosen(found, rows, request.task, request.algorithm)
    chosen = frozenset(rows_lib.differing(rows) & set(request.given))
    request = dataclasses.replace(request, chosen=chosen)
    rows = rows_lib.having(rows, request.given)
  # What chose rows is theirs, and replaces nothing in others.
  given = {n: v for n, v in request.given.items() if n not in request.chosen}
  runs = rows_lib.plan_runs(rows, given, request.seeds or seeds, request.output)
  rows_lib.check_evaluated(found, rows, runs)
  return Planned(found, request, rows, runs)


def tell_needs(planned: Sequence[Planned], request: Request) -> None:
  """Prints what the runs of results will roughly take; refuses if all data are missing."""
  runs: dict[pathlib.Path, plan.Run] = {}
  for each in planned:
    runs |= each.encoders | each.by_folder
  if not runs:
    print('nothing to run: formulas and studies have no runs of their own')
  else:
    print(needs.told(needs.with_data([*runs.values()]), request.output))


def run_all(planned: Sequence[Planned], request: Request) -> None:
  """Measures results one after another; prints and writes what came of them.

  The runs of all tables of a paper are trained together, ahead of its results. Of
  several results, one that cannot be measured ends no others.
  """
  verdicts, damaged = [], []
  for paper, group in itertools.groupby(planned, lambda each: each.found.paper):
    together = [*group]
    trained = _train(paper, together, request) if request.train else ({}, {})
    for each in together:
      try:
        verdicts.append(_measure(each, *trained))
      except errors.InputError as e:
        if request.is_one:
          raise
        if isinstance(e, errors.DamageError):
          damaged.append(each.found.name)
        verdicts.append(_not_measured(each, e))
  if not request.is_one:
    print(results.counted(verdicts))
  shown = page.write(request.output, request.scale)
  print(f'written to {request.output}, see {shown.name}', flush=True)
  if damaged:
    raise errors.InputError(
      'files that are damaged, or cannot be written, kept these from being measured:'
      f' {", ".join(damaged)}; the reasons stand above'
    )


def _not_measured(each: Planned, problem: errors.InputError) -> judge.Verdict:
  """Tells why a result was not measured, and writes it where nothing was before."""
  kept, why = each.kept(), str(problem)
  if kept.is_measured:
    why = f'{why}; the result of before stays'
  elif not isinstance(problem, errors.DamageError):
    about = {'scale': kept.scale, 'table': kept.found.table, 'note': why}
    about['command'] = each.request.command(kept.found.name)
    kept = each.measured([about])
    kept.write(each.request.output)
  verdict = kept.judged.verdict
  print(f'{kept.found.name}: {verdict}: {why}\n', flush=True)
  return verdict


def _measure(
  each: Planned,
  failures: Mapping[pathlib.Path, str],
  problems: Mapping[str, Exception],
) -> judge.Verdict:
  """Measures, writes and tells a result; without any now, that of before stays."""
  found, request = each.found, each.request
  if not request.is_one:
    print(f'{found.name} ...', flush=True)
  try:
    notes = _notes(each, failures, problems)
    now, kept = _measured(each, notes), each.kept()
    shown = now if now.is_measured or not kept.is_measured else kept
    if shown is now and len(now.lines):
      now.write(request.output)
    with results.writing(request.output / found.name) as where:
      shown.write_text(where)
  except BrokenPipeError:
    raise  # Nobody reads what is printed.
  except OSError as e:
    raise errors.DamageError(
      f'{found.name} could not be measured: {e}; mend that, and run the same'
      ' command again'
    ) from e
  verdict, why, _ = shown.judged
  told = f'{found.name}: {verdict}: {why}\n'
  print(shown.to_text() if request.is_one else told, flush=True)
  if shown is kept:
    print('nothing was measured now; the result of before stays\n', flush=True)
  return verdict


def _measured(each: Planned, notes: Mapping[int, str]) -> results.Measured:
  """Measures a study, or reads a table's runs; `notes` say why its rows lack some."""
  found, request = each.found, each.request
  command, where = request.command(found.name), request.output / found.name
  about = {'scale': request.scale, 'command': command, 'note': _part(each)}
  if request.train:  # Where finished runs come from is not known.
    about['processor'] = machine.processor()
  if isinstance(found, table_lib.Study) and request.train:
    with results.writing(where):
      made = studies.module(found).measure(each.config, where)
    about |= {'revision': studies.revision(), 'table': found.table}
    return each.measured([{**about, **line} for line in made])
  from launch.reproduction import measure

  if isinstance(found, table_lib.Formula) and found.curves:
    with results.writing(where):
      measure.draw_formula(found, where)
  if not each.rows:
    return each.measured([])
  groups = measure.finished(found, each.runs)
  if any(groups):
    with results.writing(where):
      measure.draw(found, each.rows, groups, where)
  return each.measured(measure.lines(found, each.rows, groups, about, notes))


def _part(each: Planned) -> str:
  """Returns which data sets of a table are there only in part; '' if none is."""
  places = {
    run.config['task']: run.config['data_dir']
    for run in each.by_folder.values()
  }
  parts = {t: found_lib.part(tasks.get(t), d) for t, d in places.items()}
  return ', '.join(f'{task} has {part}' for task, part in parts.items() if part)


def _train(
  paper: str, planned: Sequence[Planned], request: Request
) -> tuple[dict[pathlib.Path, str], dict[str, Exception]]:
  """Trains the runs of tables together, so that no core waits for a table's last run.

  Returns why runs failed, by directory, and why those of a task were not trained.
  """
  with_runs = [each for each in planned if each.runs]
  by_task: dict[str, dict[pathlib.Path, plan.Run]] = {}
  # Encoders are trained before the runs that start from them.
  encoders = {f: run for each in with_runs for f, run in each.encoders.items()}
  if encoders:
    by_task[rows_lib.ENCODERS] = encoders
  for each in with_runs:
    for folder, run in each.by_folder.items():
      if len(with_runs) > 1:  # Rows of several tables have one label.
        run = dataclasses.replace(run, name=f'{each.found.name} {run.point}')
      by_task.setdefault(run.config['task'], {}).setdefault(folder, run)
  if len(with_runs) > 1:
    print(f'{paper}: the runs of its tables and figures ...', flush=True)
  failures, problems = {}, {}
  for task, runs in by_task.items():
    if task != rows_lib.ENCODERS:
      without = _without_encoder(runs, encoders, problems, failures)
      failures |= without
      runs = {f: run for f, run in runs.items() if f not in without}
    if not runs:
      continue
    # One tells how many fit the memory, and the cores wait for the last.
    ordered = sorted(runs.values(), key=needs.cost, reverse=True)
    where = request.output / 'runs' / task
    try:
      failures |= training.train(ordered, {}, where, request.jobs)
    except BrokenPipeError:
      raise  # Nobody reads what is printed.
    except (errors.InputError, OSError) as e:
      problems[task] = e
  return failures, problems


def _without_encoder(
  runs: Mapping[pathlib.Path, plan.Run],
  encoders: Mapping[pathlib.Path, plan.Run],
  problems: Mapping[str, Exception],
  failures: Mapping[pathlib.Path, str],
) -> dict[pathlib.Path, str]:
  """Returns why runs cannot start: their encoder has not finished."""
  whys = {}
  for folder, encoder in encoders.items():
    try:
      if not training.is_finished(encoder):
        why = problems.get(rows_lib.ENCODERS, 'it has not finished')
        whys[str(folder)] = str(failures.get(folder, why))
    except errors.InputError as e:
      whys[str(folder)] = str(e)
  return {
    folder: f'the encoder that it starts from was not trained: {whys[source]}'
    for folder, run in runs.items()
    if (source := run.config['start_from']) in whys
  }


def _notes(
  each: Planned,
  failures: Mapping[pathlib.Path, str],
  problems: Mapping[str, Exception],
) -> dict[int, str]:
  """Returns why rows lack runs, by number; raises if no task could be trained."""
  tasks_ = {run.config['task'] for run in each.by_folder.values()}
  own = {task: e for task, e in problems.items() if task in tasks_}
  for e in own.values():
    if isinstance(e, OSError):
      raise e
  is_new = not any(folder.exists() for folder in each.by_folder)
  if own and own.keys() == tasks_ and is_new:
    raise errors.InputError('; '.join(f'{t}: {e}' for t, e in own.items()))
  notes: dict[int, str] = {}
  for number, group in enumerate(each.runs):
    for run in group:
      task = run.config['task']
      if run.folder in failures:
        notes[number] = f'{run.folder} failed: {failures[run.folder]}'
      elif task in own:
        notes.setdefault(number, f'{task}: {own[task]}')
  return notes
