"""The tasks by name. Importing this does not import TensorFlow."""

from tasks import cifar
from tasks import glyphs
from tasks import images
from tasks import label_sets
from tasks import leaf
from tasks import omniglot
from tasks import photographs
from tasks import table
from tasks import task
from tasks import xc
from tff_xc import errors
from tff_xc import wording

TASKS = {
  t.name: t
  for module in (
    *(glyphs, omniglot, cifar, photographs, xc, label_sets, leaf, images),
    table,
  )
  for t in module.TASKS
}


def get(name: str) -> task.Task:
  """Returns the task of a name; `errors.InputError` lists the known names."""
  if name not in TASKS:
    raise errors.InputError(
      f'unknown task {name!r}{wording.meant(name, TASKS)}; choose one of '
      + ', '.join(TASKS)
    )
  return TASKS[name]
