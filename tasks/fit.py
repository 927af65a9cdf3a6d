"""How a task and an algorithm fit each other, without importing TensorFlow."""

from collections.abc import Mapping

from tasks import task as task_lib
from tff_xc import errors
from tff_xc.algorithms import entry as entry_lib
from tff_xc.algorithms import fedss
from tff_xc.algorithms import registry as algorithms


def check(task: task_lib.Task, entry: entry_lib.Entry) -> None:
  """Refuses an algorithm that needs what the task lacks.

  Raises:
    errors.InputError: naming the need, and the algorithms that fit.
  """
  missing = [need for need in entry.needs if need in task.lacks]
  if not missing:
    return
  others = [
    name
    for name, other in algorithms.ALGORITHMS.items()
    if not set(other.needs) & set(task.lacks)
  ]
  raise errors.InputError(
    f'--algorithm={entry.name} needs {missing[0]}, which --task={task.name} does'
    f' not have; choose another task, or one of {", ".join(others)}'
  )


def negatives(values: dict, given: Mapping, num_classes: int | None) -> None:
  """Lowers a default number of negatives to the other classes.

  Args:
    values: the algorithm's hyper-parameters, changed in place.
    given: those that the user chose.
    num_classes: n, or None if it is not known yet.

  Raises:
    errors.InputError: the user chose too many.
  """
  if num_classes is None or 'negatives' not in values:
    return
  if 'negatives' not in given:
    values['negatives'] = min(values['negatives'], max(num_classes - 1, 1))
  fedss.check_negatives(values['negatives'], num_classes)
