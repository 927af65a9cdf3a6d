"""What `Task.find` finds of a task's data."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from tff_xc import errors


class Part(str):
  """What is there of a set that is not whole, for people: '5 of 3,550 users'."""


MISSING = 'missing'
# Between the things that a task's sentence says are missing.
ALSO = '; also '


def error(missing: Mapping[str, str]) -> errors.InputError:
  """Returns the error for data that are all missing.

  Args:
    missing: task -> why `Task.find` refuses its directory.
  """
  if len(missing) == 1:
    [(task, why)] = missing.items()
    return errors.InputError(f'{task}: {why}')
  lines = '\n  '.join(_lines(missing))
  return errors.InputError(
    f'the data of these {len(missing)} tasks are missing\n  {lines}'
  )


def tell(missing: Mapping[str, str]) -> None:
  """Prints what is missing of some tasks, see `error`; '' is not missing."""
  for line in _lines({task: why for task, why in missing.items() if why}):
    print(f'missing: {line}', flush=True)


def _lines(missing: Mapping[str, str]) -> list[str]:
  """Returns a line for each thing that is missing, with the tasks that need it."""
  tasks: dict[str, list[str]] = {}
  for task, why in missing.items():
    for part in why.split(ALSO):
      tasks.setdefault(part, []).append(task)
  return [f'{", ".join(of)}: {part}' for part, of in tasks.items()]


def state(find: Callable[[str], Any], data_dir: str) -> str:
  """Returns MISSING, which `Part` of a task's data is there, or '' for all.

  Args:
    find: the task's `Task.find`.
    data_dir: the directory of all data.
  """
  try:
    found = find(data_dir)
  except (errors.InputError, OSError):
    return MISSING
  return found if isinstance(found, Part) else ''


def part(task, data_dir: str) -> str:
  """Returns what is there of a task's set if that is not all; '' otherwise.

  Args:
    task: a `tasks.task.Task`.
    data_dir: the directory of all data; they may be missing.
  """
  found = state(task.find, data_dir) if task.find else ''
  return '' if found == MISSING else found
