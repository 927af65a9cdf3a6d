"""The runtimes by name, and the one place that makes one TFF's default.

Importing this module does not import TensorFlow; `install` does.
"""

from collections.abc import Callable
from typing import Any

from datasets import errors


def _in_process(client_threads: int, device: str) -> Any:
  from tff_xc.runtime.in_process import context

  return context.create_context(client_threads=client_threads, device=device)


def _worker(client_threads: int, device: str) -> Any:
  if device not in ('', 'cpu'):
    raise errors.InputError(
      f"--device={device}: TFF's worker computes on the CPU only; use"
      ' --runtime=in_process'
    )
  from tff_xc.runtime import worker

  return worker.create_context(max_concurrent_calls=client_threads)


DEFAULT = 'in_process'
_CONTEXTS: dict[str, Callable[[int, str], Any]] = {
  'in_process': _in_process,
  'worker': _worker,
}


def names() -> tuple[str, ...]:
  """The names that `install` takes, in alphabetical order."""
  return tuple(sorted(_CONTEXTS))


def install(name: str, *, client_threads: int = 0, device: str = '') -> Any:
  """Creates the runtime called `name` and makes it TFF's default context.

  Args:
    name: one of `names()`.
    client_threads: clients that compute at a time; 0: the runtime's choice.
    device: where; '': the GPUs that TensorFlow sees, else the CPU. Otherwise
      'cpu', 'gpu', or names such as 'gpu:0,gpu:1'.

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

  context = _CONTEXTS[name](client_threads, device)
  tff.framework.set_default_context(context)
  return context


def give_up(structure: Any) -> Any:
  """Lets the installed runtime write into the tensors of a computation's argument.

  Use what is returned as an argument of one computation, and nothing else of it
  afterwards; where nobody else refers to a tensor, a runtime that can changes
  rows of it in place. Until the computation has finished, and where it fails,
  `keep` gives the structure back.
  """
  import tensorflow_federated as tff

  context = tff.framework.get_context_stack().current
  return (
    context.give_up(structure) if hasattr(context, 'give_up') else structure
  )


def keep(structure: Any) -> Any:
  """Returns what `give_up` was given.

  Raises:
    ValueError: where a computation has finished with it.
  """
  import tensorflow_federated as tff

  context = tff.framework.get_context_stack().current
  return context.keep(structure) if hasattr(context, 'keep') else structure
