"""Workers that are actors of Ray."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from tff_xc import environment
from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import dispatch
from tff_xc.runtime.cluster import nodes
from tff_xc.runtime.cluster import state
from tff_xc.runtime.cluster import worker as worker_lib
from tff_xc.runtime.in_process import phases

# Seconds between looks at which machines there are.
_LOOK_SECONDS = 10.0
# The head's longest time for an answer.
_HEAD_SECONDS = 30.0
# What a worker raises where its machine has come to an end, and not our code.
_OF_MACHINES = (OSError, MemoryError)
# Calls that an actor takes at a time; `dispatch` gives it fewer.
_CALLS = 256


class RayCrew:
  """One worker (`worker.Worker`) for each unit of `state.RESOURCE` in the cluster."""

  def __init__(self, timeout_seconds: float, folder: str | None = None):
    """Connects to the cluster of this machine."""
    units = connection.connect(folder)
    if units > phases.MOST_BLOCKS:
      print(
        f'of {units} workers, at most {phases.MOST_BLOCKS} have something to do at'
        ' a time; fewer workers with more --threads would use as many cores',
        file=sys.stderr,
      )
    import ray

    self._ray = ray
    self._new_actor = ray.remote(
      num_cpus=0,
      resources={state.RESOURCE: 1},
      max_concurrency=_CALLS,
      max_restarts=0,
      max_task_retries=0,
    )(_Actor)
    self._actors: dict[str, Any] = {}
    self._infos: dict[str, dispatch.Info] = {}
    self._left_out: dict[str, dispatch.Info] = {}
    self._had_one = False  # Whether a worker was ready.
    self._program = describe_program()
    self._timeout = timeout_seconds
    self._start_seconds = dispatch.start_seconds(timeout_seconds)
    self._starting: dict[str, Any] = {}  # What a worker must answer first.
    # When it was first seen to work at that.
    self._since: dict[str, float] = {}
    self._count = 0
    self._looked = -_LOOK_SECONDS
    self._data = None
    self.workers()  # They start while the driver reads its data.

  def offer_data(self, source, fingerprint) -> None:
    """Lets workers read clients' values themselves; see `registry.offer_data`."""
    self._data = source, fingerprint
    self._had_one = False
    for name in self._infos:  # They may have those of another run.
      self._left_out.pop(name, None)
      self._open_data(name)

  def _open_data(self, name: str) -> None:
    if self._data and self._infos[name].reads_data:
      self._starting[name] = self.call(name, 'open_copy', *self._data)
      self._since[name] = time.monotonic()

  def workers(self) -> dict[str, dispatch.Info]:
    """Returns the workers that are ready, by names that are never reused.

    It begins to start workers where machines have joined or workers have ended.
    """
    now = time.monotonic()
    if now - self._looked >= _LOOK_SECONDS:
      self._looked = now
      alive = _alive()
      there = {node.ray_id for node in alive}
      for name, info in list(self._left_out.items()):
        if info.node not in there:
          self.dismiss(name)
      units = sum(node.workers for node in alive)
      for _ in range(units - len(self._actors)):
        self._start()
      self._see_processes(now)
    self._welcome()
    self._dismiss_late()
    busy = {*self._starting, *self._left_out}
    ready = {n: i for n, i in self._infos.items() if n not in busy}
    self._had_one |= bool(ready)
    return ready

  def _start(self) -> None:
    name = f'worker {self._count}'
    self._count += 1
    new = lambda: self._new_actor.remote(list(sys.path))
    self._actors[name] = _answered(new)
    self._starting[name] = self.call(name, 'describe')

  def _see_processes(self, now: float) -> None:
    """Notes which workers have begun to start; others wait for a free unit."""
    for name in self._starting.keys() - self._since.keys():
      if _answered(lambda n=name: connection.has_process(self._actors[n])):
        self._since[name] = now

  def _dismiss_late(self) -> None:
    """Ends workers that take too long to start; others are started anew."""
    now = time.monotonic()
    for name, since in list(self._since.items()):
      if now - since > self._start_seconds:
        what = 'open its data' if name in self._infos else 'start'
        print(
          f'\na worker did not {what} within {self._start_seconds:g} seconds'
          f' (more than twice this in place of --worker_timeout={self._timeout:g}'
          ' gives it more); another is started',
          file=sys.stderr,
        )
        self.dismiss(name)

  def _welcome(self) -> None:
    """Goes on with the workers that start."""
    waiting = list(self._starting.values())
    done = self.wait(waiting, 0, len(waiting)) if waiting else []
    for name in [n for n, ref in self._starting.items() if ref in done]:
      try:
        self._since.pop(name, None)
        found = self.result(self._starting.pop(name))
      except dispatch.LostError as e:
        # Its machine has left; others are started anew.
        print(f'\na worker could not start ({e})', file=sys.stderr)
        self.dismiss(name)
        continue
      if name in self._infos:
        info, wrong = self._infos[name], found
      else:
        info, wrong = found[0], difference(self._program, found[1])
      if wrong:
        self._leave_out(name, info, wrong)
      elif name not in self._infos:
        self._infos[name] = info
        self._open_data(name)

  def _leave_out(self, name: str, info: dispatch.Info, wrong: str) -> None:
    """Gives a worker nothing to do until its node ends.

    It holds its unit, which would start another one like it.
    """
    told = info in self._left_out.values()  # Of the same node.
    self._left_out[name] = info
    sentence = f'a worker on {info.machine} {wrong}'
    if not self._had_one and self._left_out.keys() == self._actors.keys():
      raise client_error.WorkersError(sentence)
    if not told:
      print(f'\n{sentence}; it is left out', file=sys.stderr)

  def call(self, worker: str, method: str, *args: Any) -> Any:
    """Calls a worker's method; returns a ticket at once."""
    method_of = getattr(self._actors[worker], method)
    return self._stored(lambda: method_of.remote(*args))

  def wait(self, tickets: Sequence, seconds: float, most: int = 1) -> list:
    """Returns the tickets that are done, when one is or the time is over."""
    every = list(tickets)
    done, _ = _answered(
      lambda: self._ray.wait(every, num_returns=most, timeout=seconds)
    )
    return done

  def result(self, ticket) -> Any:
    """Returns what the method returned."""
    try:
      return _answered(lambda: self._ray.get(ticket))
    except self._ray.exceptions.RayTaskError as e:  # Of our own code.
      if isinstance(e.cause, client_error.ChangedError):
        raise e.cause from e
      if isinstance(e.cause, errors.InputError):
        raise client_error.WorkersError(f'a worker: {e.cause}') from e
      if isinstance(e.cause, (*_OF_MACHINES, self._ray.exceptions.RayError)):
        why = f'{type(e.cause).__name__}: {e.cause}'
        raise dispatch.LostError(why.splitlines()[0]) from e
      raise
    except self._ray.exceptions.RayError as e:
      _alive()
      raise dispatch.LostError(_reason(e)) from e

  def dismiss(self, worker: str) -> None:
    """Ends a worker, which may not react."""
    for kept in (self._infos, self._left_out, self._starting, self._since):
      kept.pop(worker, None)
    actor = self._actors.pop(worker, None)
    if actor is not None:
      _answered(lambda: self._ray.kill(actor, no_restart=True))

  def share(self, value: Any) -> '_Shared':
    """Returns a value for several calls' arguments."""
    return _Shared(self._stored(lambda: self._ray.put(value)))

  def _stored(self, call):
    """Returns what a call returns that stores values on this machine."""
    try:
      return _answered(call)
    except self._ray.exceptions.RayError as e:
      _alive()
      raise client_error.WorkersError(
        f'Ray cannot store here what workers need ({_reason(e)}): make room in the'
        ' memory and on the disk of this machine, or start the head anew'
      ) from e

  def close(self) -> None:
    """Ends the workers."""
    connection.disconnect()


def _alive() -> list:
  """Returns the living nodes; see `connection.check`."""
  with _of_workers():
    return connection.check(_HEAD_SECONDS)


def _answered(call):
  """Returns what a call of Ray returns."""
  with _of_workers():
    connection.check_node()

  def check():
    with _of_workers():
      connection.check_answers(_HEAD_SECONDS)

  return connection.answered(call, check)


@contextlib.contextmanager
def _of_workers() -> Iterator[None]:
  try:
    yield
  except errors.InputError as e:
    raise client_error.WorkersError(str(e)) from e


def _reason(error) -> str:
  """Returns an error of Ray as one line."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  first = lines[0] if lines else type(error).__name__
  if 'creation task' in first:  # The error itself is at the end of its trace.
    return lines[-1]
  return first


class _Shared:
  """A value in Ray's store: a machine fetches it once."""

  def __init__(self, ref):
    self._ref = ref

  def get(self) -> Any:
    import ray

    return ray.get(self._ref)


class _Actor(worker_lib.Worker):
  """A worker in a process of Ray."""

  def __init__(self, path: Sequence[str]):
    sys.path.extend(p for p in path if p not in sys.path)
    threads = int(os.environ.get(nodes.THREADS_VARIABLE, 0) or 0)
    self._threads = threads or len(os.sched_getaffinity(0))
    self._data_dir = os.environ.get(nodes.DATA_VARIABLE, '')
    super().__init__(self._threads)

  def describe(self):
    """Returns (`dispatch.Info`, `describe_program`)."""
    import ray

    machine = ray.util.get_node_ip_address()
    node = ray.get_runtime_context().get_node_id()
    machine = f'{machine} ({node[:8]})'
    info = dispatch.Info(self._threads, machine, bool(self._data_dir), node)
    return info, describe_program()

  def open_copy(self, source, fingerprint) -> str:
    """Opens this machine's copy of the data; returns what is wrong, or ''."""
    try:
      found, values_of, check = source(self._data_dir)
    except errors.InputError as e:
      return f'cannot read its data: {e}'
    if found != fingerprint:
      return (
        f'finds other data in {self._data_dir} than those of the run: put the same'
        ' there, or start its workers without --data_dir'
      )
    self.open_data(values_of, check)
    return ''


def describe_program() -> dict:
  """Returns what a worker's numbers depend on, by what it is called."""
  return {
    **{
      f'source files of {name} with the checksum': checksum
      for name, checksum in environment.sources().items()
    },
    **environment.describe()['versions'],
  }


def difference(here: dict, there: dict) -> str:
  """Returns how a worker's program differs from this driver's, or ''."""
  for name in {**here, **there}:
    if here.get(name) != there.get(name):
      return (
        f'has {name} {there.get(name)}, and this driver {here.get(name)}: install'
        ' the same there, and start its workers again'
      )
  return ''
