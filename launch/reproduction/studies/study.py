"""What a study is: a module with `resolve` and `measure`.

resolve(name, scale, task, given) -> config: checks what the flags say without
  importing TensorFlow. `name` is of the result, `scale` 'paper' or 'small',
  `task` that of --task or None, `given` the settings that flags set, by name.
  Raises errors.InputError.
measure(config, folder, output, jobs) -> Measured: measures, and draws pictures in
  `folder`, which exists. `output` is the directory of all results, with whose runs
  a study may share models; `jobs` of them are trained side by side, 0: as many as
  fit. Raises errors.InputError for missing or damaged data.
"""

import importlib
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from launch.reproduction import outcome as outcome_lib
from tasks import registry as tasks
from tasks.papers import result
from tff_xc import errors


class Unused(errors.InputError):
  """A flag that a result has no use for.

  Attributes:
    flag: its name.
    is_bare: whether the message does not say what would be taken.
  """

  def __init__(self, flag: str, message: str, is_bare: bool = False):
    super().__init__(message)
    self.flag = flag
    self.is_bare = is_bare


class Measured(NamedTuple):
  """What a study has measured.

  Attributes:
    values: by name, those of which something is expected. A name may be of a task,
      'TASK: NAME'; what is expected of NAME is expected of each.
    tables: of text.
    pictures: names of files in the folder.
    missing: how many published values, or values of which something is expected,
      were asked for, and lack their data.
  """

  values: Mapping[str, float]
  tables: tuple[outcome_lib.Cells, ...]
  pictures: tuple[str, ...] = ()
  missing: int = 0


def refuse(name: str, unused: Iterable[str]) -> None:
  """Refuses flags that a result has no use for.

  Raises:
    Unused: there is one.
  """
  for flag in sorted(unused):
    told = f'--{flag}: {name} has no use for it; leave it out'
    raise Unused(flag, told, is_bare=True)


def lacks(config: Mapping[str, Any]) -> str:
  """Returns why a configuration's data are not there; '' if they are."""
  find = tasks.get(config['task']).find
  try:
    if find is not None:
      find(config['data_dir'])
  except errors.InputError as e:
    return str(e)
  return ''


def not_measured(tasks_: Sequence[str]) -> list[outcome_lib.Cells]:
  """Returns the table of tasks whose data are missing; nothing without any."""
  rows = tuple((task, 'its files are missing') for task in tasks_)
  heading = 'task', 'why'
  return [outcome_lib.Cells('Not measured', heading, rows)] if rows else []


def resolve(
  found: result.Study, scale: str, task: str | None, given: Mapping[str, Any]
) -> Any:
  """Returns the settings of a study, after checking the flags."""
  return _module(found).resolve(found.name, scale, task, given)


def conclude(
  found: result.Study,
  scale: str,
  config: Any,
  output: pathlib.Path,
  jobs: int = 0,
) -> outcome_lib.Outcome:
  """Measures a study and returns its outcome.

  Args:
    found: the study.
    scale: of `outcome.SCALES`.
    config: from `resolve`.
    output: the directory of all results.
    jobs: runs side by side; 0: as many as fit the memory.

  Raises:
    errors.InputError: data are missing or damaged, or the folder cannot be made.
  """
  folder = outcome_lib.folder(output, found.name)
  with outcome_lib.writing(folder):
    pass  # It can be made.
  measured = _module(found).measure(config, folder, output, jobs)
  expected = found.expected
  if scale == 'paper' and found.published:
    expected = found.published
  checked = tuple(
    outcome_lib.Checked(
      f'{name}: {each.bounds}',
      shown(measured.values[name]),
      each.holds(measured.values[name]),
    )
    for each in expected
    # A data set may be missing; a small form measures all that it expects.
    if expected is found.expected or each.of in measured.values
    for name in _names(each.of, measured.values)
  )
  verdict, why = _judged(checked, measured.missing, expected is found.published)
  return outcome_lib.Outcome(
    name=found.name,
    scale=scale,
    verdict=verdict,
    why=why,
    what=found.small if scale == 'small' else '',
    tables=measured.tables,
    checked=checked,
    pictures=measured.pictures,
  )


def _names(name: str, values: Mapping[str, float]) -> list[str]:
  """Returns a value's names, see `Measured.values`; `name` itself without any."""
  of_tasks = [each for each in values if each.endswith(f': {name}')]
  return of_tasks if of_tasks and name not in values else [name]


def shown(value: float) -> str:
  """Returns a value for people: '1,262', '3,743.2', '0.2865'."""
  if abs(value) < 1e3:
    return f'{value:.4g}'
  return f'{value:,.10g}' if value.is_integer() else f'{value:,.1f}'


def _judged(
  checked: Sequence[outcome_lib.Checked], missing: int, is_published: bool
) -> tuple[outcome_lib.Verdict, str]:
  """Returns the verdict on a study, and why.

  Args:
    checked: what was measured.
    missing: as in `Measured`.
    is_published: whether the values are beside the published ones.
  """
  verdicts = outcome_lib.Verdict
  if is_published and not checked:
    return verdicts.NOT_RUN, 'no published value was measured'
  verdict, why = outcome_lib.judged(checked)
  if missing:
    kind = 'published' if is_published else 'expected'
    why = f'{why}; {missing} {kind} values were not measured'
  if verdict != verdicts.SHAPE:
    return verdict, why
  if missing:  # They may still not be as expected.
    return verdicts.NOT_RUN, why
  return (verdicts.REPRODUCED if is_published else verdict), why


def _module(found: result.Study):
  return importlib.import_module(f'launch.reproduction.studies.{found.module}')
