"""Workers that are actors of Ray."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from tff_xc import environment
from tff_xc import errors
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import crew
from tff_xc.runtime.cluster import launching

# Seconds between looks at which machines there are.
_LOOK_SECONDS = 2.0
# Calls that an actor takes at a time; `dispatch` gives it fewer.
_CALLS = 256


class RayCrew:
  """One worker for each unit of `connection.RESOURCE` in the cluster."""

  def __init__(self, folder: str | None = None):
    """Connects to the cluster of this machine.

    Args:
      folder: that of `launch.workers`; None: its default folder.

    Raises:
      errors.InputError: there is none, or it does not answer.
    """
    connection.connect(folder)
    import ray

    self._ray = ray
    self._new_actor = ray.remote(
      num_cpus=0,
      resources={connection.RESOURCE: 1},
      max_concurrency=_CALLS,
      max_restarts=0,
      max_task_retries=0,
    )(_Actor)
    self._actors: dict[str, Any] = {}
    self._infos: dict[str, crew.Info] = {}
    self._starting: dict[str, Any] = {}
    self._count = 0
    self._looked = -_LOOK_SECONDS

  def workers(self) -> dict[str, crew.Info]:
    now = time.monotonic()
    if now - self._looked >= _LOOK_SECONDS or self._starting:
      self._looked = now
      units = int(self._ray.cluster_resources().get(connection.RESOURCE, 0))
      for _ in range(units - len(self._actors)):
        self._start()
      self._welcome()
    return dict(self._infos)

  def _start(self) -> None:
    name = f'worker {self._count}'
    self._count += 1
    self._actors[name] = self._new_actor.remote(list(sys.path))
    self._starting[name] = self._actors[name].describe.remote()

  def _welcome(self) -> None:
    """Adds the workers that have started."""
    done, _ = (
      self._ray.wait(
        list(self._starting.values()),
        num_returns=len(self._starting),
        timeout=0,
      )
      if self._starting
      else ([], [])
    )
    for name in [n for n, ref in self._starting.items() if ref in done]:
      ref = self._starting.pop(name)
      try:
        info, found = self._ray.get(ref)
      except self._ray.exceptions.RayError:
        self._actors.pop(name)  # Its machine has left; others are started anew.
        continue
      here = environment.describe()
      if found != here:
        raise errors.InputError(
          f'a worker on {info.machine} has other packages or another version of'
          f' this program ({_difference(here, found)}): install the same there'
        )
      self._infos[name] = info

  def call(self, worker: str, method: str, *args: Any) -> Any:
    return getattr(self._actors[worker], method).remote(*args)

  def wait(self, tickets: Sequence, seconds: float) -> list:
    done, _ = self._ray.wait(list(tickets), timeout=seconds)
    return done

  def result(self, ticket) -> Any:
    try:
      return self._ray.get(ticket)
    except self._ray.exceptions.RayTaskError:
      raise  # Of our own code.
    except self._ray.exceptions.RayError as e:
      raise crew.LostError(str(e).split('\n')[0]) from e

  def dismiss(self, worker: str) -> None:
    self._infos.pop(worker, None)
    actor = self._actors.pop(worker, None)
    if actor is not None:
      self._ray.kill(actor, no_restart=True)

  def share(self, value: Any) -> '_Shared':
    return _Shared(self._ray.put(value))

  def close(self) -> None:
    connection.disconnect()


class _Shared:
  """A value in Ray's store: a machine fetches it once."""

  def __init__(self, ref):
    self._ref = ref

  def get(self) -> Any:
    import ray

    return ray.get(self._ref)


class _Actor:
  """A `worker.Worker` in a process of Ray."""

  def __init__(self, path: Sequence[str]):
    """Args: the driver's places of modules."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    sys.path.extend(p for p in path if p not in sys.path)
    from tff_xc.runtime.cluster import worker

    threads = int(os.environ.get(launching.THREADS_VARIABLE, 0) or 0)
    self._threads = threads or len(os.sched_getaffinity(0))
    self._worker = worker.Worker(self._threads)

  def describe(self):
    """Returns (`crew.Info`, versions of packages and program)."""
    import ray

    machine = ray.get_runtime_context().get_node_id()
    return crew.Info(self._threads, machine), environment.describe()

  def load(self, number, block):
    self._worker.load(number, block)

  def keys(self, block):
    return self._worker.keys(block)

  def train(self, block, rows):
    return self._worker.train(block, rows)


def _difference(here: dict, there: dict) -> str:
  """Says the first difference of two descriptions."""
  a = {**here['versions'], 'revision': here['git_revision']}
  b = {**there['versions'], 'revision': there['git_revision']}
  name = min(n for n in {*a, *b} if a.get(n) != b.get(n))
  return f'{name} {a.get(name)} here, {b.get(name)} there'
