"""What `Task.find` finds of a task's data."""

from collections.abc import Callable
from typing import Any

from tff_xc import errors


class Part(str):
  """What is there of a set that is not whole, for people: '5 of 3,550 users'."""


MISSING = 'missing'


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
