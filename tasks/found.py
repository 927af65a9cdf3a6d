"""What `Task.find` finds of a task's data."""

from tff_xc import errors


class Part(str):
  """What is there of a set that is not whole, for people: '5 of 3,550 users'."""


def part(task, data_dir: str) -> str:
  """Returns what is there of a task's set if that is not all; '' otherwise.

  Args:
    task: a `tasks.task.Task`.
    data_dir: the directory of all data; they may be missing.
  """
  if task.find is None:
    return ''
  try:
    found = task.find(data_dir)
  except (errors.InputError, OSError):
    return ''
  return found if isinstance(found, Part) else ''
