"""Installs one of several runtimes as TFF's default context.

Importing this module does not import TensorFlow; `install` does.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tff_xc import errors
from tff_xc.lazy import tff

DEFAULT = 'in_process'
CLUSTER = 'cluster'
WORKER_TIMEOUT = 600


def _connect(
  client_threads: int, device: str, timeout: float, address: str, without_token: bool
) -> Any:
  """Returns the context of a cluster; see `install`."""
  from tff_xc.runtime.cluster import connection, context, crew
  from tff_xc.runtime.in_process import context as in_process

  in_process.new_clients(1, device)  # Check the device before workers start.
  connection.disconnect()  # A process can have only one connection.
  connection.connect(address, without_token)
  workers = crew.RayCrew(client_threads, device)
  return context.ClusterContext(workers, timeout, device)


def names() -> tuple[str, ...]:
  """Returns the names of all runtimes, in alphabetical order."""
  return CLUSTER, DEFAULT, 'worker'


def install(
  name: str,
  *,
  client_threads: int = 0,
  device: str = '',
  worker_timeout: float = WORKER_TIMEOUT,
  cluster_address: str = '',
  cluster_without_token: bool = False,
) -> Any:
  """Creates the runtime called `name` and makes it TFF's default context.

  Args:
    name: one of `names()`.
    client_threads: the number of clients that run in parallel. In a cluster, this is the
      number for each worker. 0: the runtime chooses the number.
    device: 'cpu', 'gpu', or names such as 'gpu:0,gpu:1'. '': the GPUs that TensorFlow sees,
      or the CPU if TensorFlow sees no GPU.
    worker_timeout: a cluster gives up a busy worker if, for this many seconds, the worker
      has neither read the values of a client nor run a client.
    cluster_address: 'IP:PORT' of a running Ray cluster's head, or 'auto'. '': use
      $RAY_ADDRESS. If this variable is not set, start Ray on this machine.
    cluster_without_token: whether to use a cluster that serves callers without a token.

  Returns:
    The installed context, a `tff.framework.SyncContext`.

  Raises:
    errors.InputError: if no runtime has this name, or if the runtime cannot start.
  """
  if name not in names():
    raise errors.InputError(f'unknown runtime {name!r}: the runtimes are {", ".join(names())}')
  if name == CLUSTER:
    context = _connect(
      client_threads, device, worker_timeout, cluster_address, cluster_without_token
    )
  elif name == DEFAULT:
    from tff_xc.runtime.in_process import context as in_process

    context = in_process.create_context(client_threads=client_threads, device=device)
  else:
    if device.lower() not in ('', 'cpu', 'cpu:0'):
      raise errors.InputError(
        f"--device={device}: TFF's worker computes on the CPU only; use --runtime=in_process"
      )
    from tff_xc.runtime import worker

    context = worker.create_context(max_concurrent_calls=client_threads)
  tff.framework.set_default_context(context)
  return context


def donate(structure: Any) -> Any:
  """Lets the installed runtime write into tensors of a computation's argument.

  Pass the returned structure to exactly one computation and do not use it
  again: `state = donate(state)`, then `process.next(state, ...)`. If no other
  reference to a tensor exists, the runtime may update the tensor in place. `keep`
  returns the original structure, unless the computation has succeeded.
  """
  return _of_current('donate', lambda s: s)(structure)


def keep(structure: Any) -> Any:
  """Returns the structure that was passed to `donate`.

  Raises:
    ValueError: if a computation has already consumed the structure.
  """
  return _of_current('keep', lambda s: s)(structure)


def measured() -> dict[str, float]:
  """Returns what the installed runtime measured in the last round, by name."""
  return _of_current('metrics', dict)()


def offer_data(
  source: Callable[[str], tuple[Mapping, Callable, Callable]] | None, fingerprint: Mapping[str, Any]
) -> None:
  """Lets workers that have a copy of a run's data read clients' values from this copy.

  Args:
    source: a picklable function that takes the directory of a copy and returns three
      things: the fingerprint of the data; a function from a round to the sequence of its
      clients' values; and a function without arguments that raises `errors.InputError` if
      the data have changed. None: workers read no data, not even data of an earlier call.
    fingerprint: the fingerprint of the run's data.
  """
  _of_current('offer_data', lambda *_: None)(source, fingerprint)


def referenced(values: Any, round_number: int) -> Any:
  """Returns clients' values in a form that lets workers read their copies of the data."""
  return _of_current('referenced', lambda values, _: values)(values, round_number)


def _of_current(name: str, default: Callable) -> Callable:
  """Returns a method of the installed runtime, or `default` if it lacks the method."""
  return getattr(tff.framework.get_context_stack().current, name, default)
