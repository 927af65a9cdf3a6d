"""The runtimes by name, and the one place that makes one TFF's default.

Importing this module does not import TensorFlow; `install` does.
"""

from collections.abc import Callable
from typing import Any

from datasets import errors


def _worker() -> Any:
  from tff_xc.runtime import worker

  return worker.create_context()


DEFAULT = 'worker'
_CONTEXTS: dict[str, Callable[[], Any]] = {'worker': _worker}


def names() -> tuple[str, ...]:
  """The names that `install` takes, in alphabetical order."""
  return tuple(sorted(_CONTEXTS))


def install(name: str) -> Any:
  """Creates the runtime called `name` and makes it TFF's default context.

  Args:
    name: one of `names()`.

  Returns:
    The context that was installed, a `tff.framework.SyncContext`.

  Raises:
    errors.InputError: no runtime has that name, or it could not be started.
  """
  if name not in _CONTEXTS:
    raise errors.InputError(
      f'unknown runtime {name!r}: the runtimes are {", ".join(names())}'
    )
  import tensorflow_federated as tff

  context = _CONTEXTS[name]()
  tff.framework.set_default_context(context)
  return context
