"""Starts workers as Ray actors on all machines of a cluster."""

import os
import pickle
import sys
import time
from collections.abc import Sequence
from typing import Any

from tff_xc import environment, errors
from tff_xc.lazy import ray
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import connection, dispatch, worker as worker_lib
from tff_xc.runtime.in_process import phases

# If a machine has a copy of the data, this variable in Ray's environment on the machine is the
# directory of the copy.
DATA_VARIABLE = 'TFF_XC_WORKER_DATA_DIR'
# The number of seconds between checks for new machines.
_LOOK_SECONDS = 10.0
# A worker raises these exceptions if its machine fails. Other exceptions come from our code.
_OF_MACHINES = (OSError, MemoryError)
# The most simultaneous calls of a Ray actor. `dispatch` makes fewer calls at once.
_CALLS = 256


class RayCrew:
  """The workers (`worker.Worker`) of a run.

  Each node of the cluster has as many workers as its CPUs allow. A worker trains `threads`
  clients in parallel, and reserves a CPU for each of them. If `threads` is 0, each node has one
  worker, which reserves all CPUs.
  """

  def __init__(self, threads: int = 0, device: str = ''):
    self._threads, self._device = threads, device
    self._actors: dict[str, Any] = {}
    self._nodes: dict[str, str] = {}  # The node of each worker.
    self._infos: dict[str, dispatch.Info] = {}  # Descriptions of the workers that are ready.
    # The pending `prepare` call (a Ray object reference) of each worker that is starting.
    self._starting: dict[str, Any] = {}
    self._refused: set[str] = set()  # Nodes with different data or a different program.
    self._told: set[str] = set()  # Nodes about which a warning was printed.
    self._had_one = False  # Whether any worker of this run was ready.
    self._count = 0
    self._looked = -_LOOK_SECONDS
    self._data = b''
    self.workers()  # Start workers now, while the driver reads its data.
    if len(self._actors) > phases.MOST_BLOCKS:
      print(
        f'at most {phases.MOST_BLOCKS} of {len(self._actors)} workers have something'
        ' to do at a time; fewer workers with more --client_threads would use as'
        ' many cores',
        file=sys.stderr,
      )

  def offer_data(self, source, fingerprint) -> None:
    """Lets workers read clients' values themselves; see `registry.offer_data`."""
    self._data = pickle.dumps((source, fingerprint))
    self._had_one = False
    self._refused.clear()
    for name in self._actors:  # The workers may have opened the data of another run.
      self._infos.pop(name, None)
      self._prepare(name)

  def workers(self) -> dict[str, dispatch.Info]:
    """Returns the workers that are ready, by name. Names are never reused.

    The method also starts workers on nodes that have joined the cluster, and on nodes with
    workers that have ended.
    """
    now = time.monotonic()
    if now - self._looked >= _LOOK_SECONDS:
      self._looked = now
      for node, cpus in connection.alive().items():
        if cpus and node not in self._refused:
          self._fill(node, cpus)
    self._welcome()
    self._had_one |= bool(self._infos)
    return dict(self._infos)

  def _fill(self, node: str, cpus: int) -> None:
    """Starts workers on a node until its CPUs are used."""
    from ray.util import scheduling_strategies

    threads = min(self._threads or cpus, cpus)
    has = list(self._nodes.values()).count(node)
    for _ in range(cpus // threads - has):
      name = f'worker {self._count}'
      self._count += 1
      new_actor = ray.remote(
        num_cpus=threads,
        max_concurrency=_CALLS,
        max_restarts=0,
        max_task_retries=0,
        enable_task_events=False,  # Otherwise Ray's head node would store every task.
        scheduling_strategy=scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False),
      )(_Actor)
      self._nodes[name] = node
      self._actors[name] = new_actor.remote(threads, list(sys.path), self._device)
      self._prepare(name)

  def _prepare(self, name: str) -> None:
    program = describe_program()
    self._starting[name] = self.call(name, 'prepare', program, self._data)

  def _welcome(self) -> None:
    """Accepts or refuses the workers that have started."""
    waiting = list(self._starting.values())
    done = self.wait(waiting, 0, len(waiting)) if waiting else []
    for name, ticket in list(self._starting.items()):
      if ticket not in done or name not in self._actors:
        continue
      try:
        info, wrong = self.result(ticket)
      except dispatch.LostError as e:  # `workers` will start another worker.
        self._tell(self._nodes[name], f'a worker could not start ({e})')
        self.dismiss(name)
        continue
      del self._starting[name]
      if wrong:
        self._refuse(self._nodes[name], f'a worker on {info.machine} {wrong}')
      else:
        self._infos[name] = info

  def _refuse(self, node: str, why: str) -> None:
    """Excludes a node from the run. A restart of Ray on its machine creates a new node."""
    self._refused.add(node)
    for name in [n for n, of in self._nodes.items() if of == node]:
      self.dismiss(name)
    if not self._had_one and not self._actors:
      raise client_error.WorkersError(why)
    self._tell(node, f'{why}; it is left out')

  def _tell(self, node: str, what: str) -> None:
    """Prints a warning about a node, at most once for each node."""
    if node not in self._told:
      self._told.add(node)
      print(f'\n{what}', file=sys.stderr)

  def call(self, worker: str, method: str, *args: Any) -> Any:
    """Starts a call of a worker's method. Returns a ticket, which is a Ray object reference."""
    return self._here(getattr(self._actors[worker], method).remote, *args)

  def wait(self, tickets: Sequence, seconds: float, most: int = 1) -> list:
    """Waits until `most` calls are done, or `seconds` have passed. Returns the done tickets."""
    done, _ = self._here(ray.wait, list(tickets), num_returns=most, timeout=seconds)
    return done

  def result(self, ticket) -> Any:
    """Returns the result of the call with this ticket."""
    exceptions = ray.exceptions
    while True:
      connection.check_node()
      try:
        return ray.get(ticket, timeout=_LOOK_SECONDS)
      except exceptions.GetTimeoutError:
        connection.alive()  # This call raises WorkersError if the cluster is gone.
      except exceptions.RayTaskError as e:  # Our code in the worker raised an error.
        raise _of_worker(e, exceptions.RayError) from e
      except (exceptions.RayError, OSError) as e:
        connection.alive()
        raise dispatch.LostError(_reason(e)) from e

  def dismiss(self, worker: str) -> None:
    """Ends a worker, even if the worker does not respond."""
    for kept in (self._infos, self._starting, self._nodes):
      kept.pop(worker, None)
    actor = self._actors.pop(worker, None)
    if actor is not None:
      connection.alive()  # Without this check, Ray would wait for a lost head node.
      ray.kill(actor, no_restart=True)

  def share(self, value: Any) -> '_Shared':
    """Stores a value in Ray, so that several calls can have it as an argument."""
    return _Shared(self._here(ray.put, value))

  def _here(self, call, *args, **more):
    """Runs a call that needs Ray on this machine. Raises WorkersError if Ray fails."""
    connection.check_node()
    try:
      return call(*args, **more)
    except (ray.exceptions.RayError, OSError) as e:
      connection.alive()
      raise client_error.WorkersError(
        f'Ray fails on this machine ({_reason(e)}): make room in its memory and on'
        ' its disk, or start Ray again; the same command continues the run'
      ) from e

  def close(self) -> None:
    """Disconnects from Ray, which ends the workers."""
    connection.disconnect()


def _of_worker(error, ray_error: type[Exception]) -> Exception:
  """Returns the exception that the driver raises for an error of a worker's code."""
  cause = error.cause
  if isinstance(cause, client_error.ChangedError):
    return cause
  if isinstance(cause, errors.InputError):
    return client_error.WorkersError(f'a worker: {cause}')
  if isinstance(cause, (*_OF_MACHINES, ray_error)):
    why = f'{type(cause).__name__}: {cause}'
    return dispatch.LostError(why.splitlines()[0])
  return error


def _reason(error) -> str:
  """Describes an error of Ray in one line."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  first = lines[0] if lines else type(error).__name__
  if 'creation task' in first:  # The actual error is at the end of the trace.
    return lines[-1]
  return first


class _Shared:
  """A value in Ray's object store. Each machine fetches the value once."""

  def __init__(self, ref):
    self._ref = ref

  def get(self) -> Any:
    return ray.get(self._ref)


class _Actor(worker_lib.Worker):
  """A worker in one of Ray's processes."""

  def __init__(self, threads: int, path: Sequence[str], device: str = ''):
    sys.path.extend(p for p in path if p not in sys.path)
    self._threads, self._wrong = threads, ''
    try:
      super().__init__(threads, device)
    except errors.InputError as e:
      self._wrong = f'cannot train clients: {e}'

  def prepare(self, program: dict, data: bytes) -> tuple[dispatch.Info, str]:
    """Opens this machine's copy of the data, if there is a copy.

    Returns the worker's description, and a phrase that says why the driver cannot use this
    worker, or ''.
    """
    wrong = difference(program, describe_program()) or self._wrong
    folder = os.environ.get(DATA_VARIABLE, '')
    if folder and data and not wrong:
      wrong = self._open(folder, *pickle.loads(data))
    node = ray.get_runtime_context().get_node_id()
    machine = f'{ray.util.get_node_ip_address()} ({node[:8]})'
    return dispatch.Info(self._threads, machine, bool(folder)), wrong

  def _open(self, folder: str, source, fingerprint) -> str:
    try:
      found, values_of, check = source(folder)
    except errors.InputError as e:
      return f'cannot read its data: {e}'
    if found != fingerprint:
      return (
        f'finds other data in {folder} than those of the run: put the same there, or'
        f' start Ray there without {DATA_VARIABLE}'
      )
    self.open_data(values_of, check)
    return ''


def describe_program() -> dict:
  """Returns by name the checksums and versions that affect a worker's results."""
  return {
    **{
      f'source files of {name} with the checksum': checksum
      for name, checksum in environment.sources().items()
    },
    **environment.describe()['versions'],
  }


def difference(here: dict, there: dict) -> str:
  """Describes the first difference between the programs of driver and worker; '' if none."""
  for name in {**here, **there}:
    if here.get(name) != there.get(name):
      return (
        f'has {name} {there.get(name)}, and this driver {here.get(name)}: install'
        ' the same there, and start Ray there again'
      )
  return ''
