"""The tasks by name. Importing this does not import TensorFlow."""

from collections.abc import Mapping

from tasks import cifar, glyphs, items, leaf, own_data, photographs, task, xc
from tff_xc import errors, wording
from tff_xc.options import hyperparameters as hp

TASKS: Mapping[str, task.Task] = {
  t.name: t
  for module in (glyphs, cifar, photographs, xc, items, leaf, own_data)
  for t in module.TASKS
}
# The options of all tasks by name. Each task may have a different default.
OPTIONS: Mapping[str, hp.Hyperparameter] = {
  option.name: option for t in TASKS.values() for option in t.options
}


def get(name: str) -> task.Task:
  """Returns the task of a name; raises `errors.InputError`, which names the known tasks."""
  if name not in TASKS:
    choice = wording.meant(name, TASKS) or f'; choose one of {", ".join(TASKS)}'
    raise errors.InputError(f'unknown task {name!r}{choice}')
  return TASKS[name]
