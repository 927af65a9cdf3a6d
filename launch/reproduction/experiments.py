"""Plans and measures tables and figures, and writes what came of them."""

import dataclasses
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
from tasks import found as found_lib
from tasks import registry as tasks
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
  seeds: Sequence[int] | None = None
  output: pathlib.Path
  jobs: int = 0
  train: bool = True

  @property
  def is_one(self) -> bool:
    """Whether one result is asked for, whose problems end the command."""
    return len(self.names) == 1

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
    return {name: value for name, value in limits.items() if value}


@dataclasses.dataclass(frozen=True)
class Planned:
  """A result whose flags have been checked.

  Attributes:
    found: the result.
    rows: of a table, at the scale of the request.
    runs: of each row, a run for each seed.
    config: of a study.
  """

  found: result.Result
  rows: Sequence[table_lib.Row] = ()
  runs: Sequence[Sequence[plan.Run]] = ()
  config: Any = None


def plan_one(found: result.Result, request: Request) -> Planned:
  """Checks the flags of one result.

  Raises:
    errors.InputError: a flag does not apply, or its value is out of bounds.
  """
  # Of several results, some may have no use for where the data are.
  told = {
    name
    for name in request.given
    if request.is_one or name not in runs_lib.UNSEEN
  }
  told |= {n for n in ('task', 'algorithm', 'seeds') if getattr(request, n)}
  if isinstance(found, result.Study):
    study.refuse(found.name, told & {'algorithm', 'seeds'})
    given = {n: v for n, v in request.given.items() if n in told}
    return Planned(
      found, config=study.resolve(found, request.scale, request.task, given)
    )
  if not isinstance(found, table_lib.PaperTable):
    study.refuse(found.name, told)
    return Planned(found)
  if request.scale == 'paper':
    rows = runs_lib.of_paper(found, request.task, request.algorithm)
    seeds = request.seeds or found.seeds
  else:
    study.refuse(f'{found.name} --scale=small', told - runs_lib.UNSEEN)
    rows = found.small.rows if found.small else ()
    seeds = found.small.seeds if found.small else ()
  runs = runs_lib.plan_runs(rows, request.given, seeds, request.output)
  return Planned(found, rows, runs)


def tell_needs(planned: Sequence[Planned], request: Request) -> None:
  """Prints what the runs of results will take, from short probes.

  Raises:
    errors.InputError: no task has its data, or, after all other probes, some
      failed.
    KeyboardInterrupt: after SIGINT or SIGTERM.
  """
  from launch.reproduction import needs

  runs = {
    run.folder: run for each in planned for group in each.runs for run in group
  }
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

  At the end it writes the page of all results in the output's directory.

  Raises:
    errors.InputError: of a single result, its data are missing or damaged, or
      nothing could be trained; the output cannot be written.
    KeyboardInterrupt: after SIGINT or SIGTERM; the same command goes on.
  """
  done = []
  for each in planned:
    if not request.is_one:
      print(f'{each.found.name} ...', flush=True)
    try:
      found = measuring.outcome_of(each, request)
    except errors.InputError as e:
      if request.is_one:
        raise
      kept, why = measuring.kept_or_why(each, request)
      if why and why != str(e):
        why = f'{e}; {why}'
      found = measuring.nothing(
        each, request, outcome_lib.Verdict.NOT_RUN, why or str(e)
      )
      if kept or why:
        told = f'{e}; the result of before stays' if kept else why
        print(f'{found.name}: {told}\n', flush=True)
        done.append(kept or found)
        continue
    if not found.command:  # One that was kept has that which measured it.
      found = dataclasses.replace(
        found,
        what='; '.join(
          filter(None, [found.what, request.limited, _part(each)])
        ),
        command=request.command(each.found.name),
        version=_version(),
      )
    outcome_lib.write(found, request.output)
    done.append(found)
    told = f'{found.name}: {found.verdict}: {found.why}\n'
    print(outcome_lib.to_text(found) if request.is_one else told, flush=True)
  if not request.is_one:
    print(outcome_lib.counted(done))
  shown = page.write(request.output, request.scale)
  print(f'written to {request.output}, see {shown.name}')


def _part(each: Planned) -> str:
  """Returns which data sets of a table are there only in part; '' if none is."""
  places = {
    run.config['task']: run.config['data_dir']
    for group in each.runs
    for run in group
  }
  parts = {
    task: found_lib.part(tasks.get(task), directory)
    for task, directory in places.items()
  }
  return ', '.join(f'{task} has {part}' for task, part in parts.items() if part)


def _version() -> str:
  from tff_xc import environment

  return environment.describe()['git_revision'] or ''
