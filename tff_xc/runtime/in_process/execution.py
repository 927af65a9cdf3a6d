"""Runs a program, with several clients in parallel.

The clients' results are added to accumulators (folded) in the order of the clients.
"""

import collections
import concurrent.futures
import contextlib
import math
import queue
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import cancellation

from tff_xc.runtime import client_error
from tff_xc.runtime.in_process import (
  graph_call,
  imported,
  phases as phases_lib,
  program as program_lib,
)


class _Reader:
  """Reads clients' values. If `ahead` is true, a thread reads values before they are needed."""

  def __init__(self, read: Callable[[int], Any], ahead: bool):
    self._read = read
    self._started = {}
    self._thread = None
    if ahead:
      self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='tff_xc_reader')

  def start(self, index: int) -> None:
    """Lets the thread read the value of a client, which `take` will return."""
    if self._thread:
      self._started[index] = self._thread.submit(self._read, index)

  def take(self, index: int) -> Any:
    """Returns the value of a client, or raises the error that the read caused."""
    started = self._started.pop(index, None)
    # If the thread has not started this read, read the value here.
    if started is None or started.cancel():
      return self._read(index)
    return started.result()

  def close(self) -> None:
    """Cancels the reads that have not started, and ends the thread."""
    if self._thread:
      self._thread.shutdown(cancel_futures=True)


class Clients:
  """Threads that run clients, with an `imported.Place` for each thread.

  A task of a thread is one client, or several clients if their results are small. The number
  of tasks that run, or have results that are not folded yet, is at most the number of threads
  plus one. Therefore memory does not grow with the cohort. If clients' values are read ahead,
  at most two values for each thread, plus one value, are in memory.
  """

  def __init__(self, devices: Sequence[str], threads: int, number: int = 0):
    """Assigns devices to threads in turn. `number` distinguishes simultaneous invocations."""
    self._devices = devices
    self._threads = threads
    self._number = number
    self._free = {}  # Queues of unused places, for stateless and for stateful graphs.
    for stateful in (False, True):
      self._free[stateful] = queue.SimpleQueue()
      for place in self.places(stateful):
        self._free[stateful].put(place)
    # The main thread receives interrupts, and a TensorFlow call would delay an interrupt.
    # Therefore clients run only in other threads.
    self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix='tff_xc_client')

  def home(self, stateful: bool) -> imported.Place:
    """Returns the place where the server's steps run."""
    slot = -1 - (self._number if stateful else 0)
    return imported.Place(slot, self._devices[0], self._devices[0])

  def places(self, stateful: bool) -> list[imported.Place]:
    """Returns a place for each thread. Stateless graphs share a slot."""
    first = self._number * self._threads
    return [
      imported.Place(
        first + i if stateful else 0, self._devices[i % len(self._devices)], self._devices[0]
      )
      for i in range(self._threads)
    ]

  def run(
    self,
    num_clients: int,
    stateful: bool,
    read: Callable[[int], Any],
    work: Callable[[int, Any, imported.Place], Any],
    fold: Callable[[list], None],
    at_once: Callable[[Any], int] = lambda found: 1,
    ahead: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
  ) -> None:
    """Calls `read` and `work` for every client, and folds the results in order.

    `fold` gets a list of results of consecutive clients, in the caller's thread. `at_once`
    gets a result, and returns how many clients may form a task. `ahead` lets a thread read
    values before they are needed. `meanwhile` is called once, while the first clients run.
    Errors of `read` are raised unchanged.
    """
    free, reader = self._free[stateful], _Reader(read, ahead)
    manager = cancellation.CancellationManager()
    pending = collections.deque()
    first, most = 0, 1  # The next client to start, and the most clients in one task.

    def run_one(index: int, indices: range):
      value = reader.take(index)
      if index + 1 in indices:
        reader.start(index + 1)
      place = free.get()
      try:
        return work(index, value, place)
      except Exception as e:
        raise client_error.ClientError(index, num_clients, e) from e
      finally:
        free.put(place)

    def run_some(indices: range) -> list:
      with graph_call.cancelled_by(manager):
        return [run_one(index, indices) for index in indices]

    def refill() -> None:
      nonlocal first
      while first < num_clients and len(pending) <= self._threads:
        # Make tasks smaller towards the end, so that all threads end at about the same time.
        fair = math.ceil((num_clients - first) / (2 * self._threads))
        stop = first + min(most, fair)
        if (whole := stop - stop % phases_lib.GROUP) > first:
          stop = whole  # A task has whole groups, because a group is folded in one call.
        indices = range(first, stop)
        reader.start(first)
        pending.append(self._pool.submit(run_some, indices))
        first = indices.stop

    try:
      refill()
      meanwhile()
      while pending:
        # Pop the task only after `result`. After an interrupt, the code below then waits for
        # all tasks.
        found = pending[0].result()
        pending.popleft()
        most = at_once(found[0])
        refill()
        fold(found)
        del found
    except BaseException as e:
      for future in pending:
        future.cancel()
      manager.start_cancel()
      reader.close()
      concurrent.futures.wait(pending)
      raise _first_error(e, pending) from e.__cause__
    finally:
      reader.close()


def _first_error(error: BaseException, pending) -> BaseException:
  """Returns the error to report.

  When one call fails, TensorFlow cancels all other calls. If `error` comes from a cancelled
  call, this function returns the error of the call that failed.
  """
  stopped = isinstance(error, tf.errors.CancelledError)
  if not (stopped or getattr(error, 'cancelled', False)):
    return error
  for future in pending:
    found = None if future.cancelled() else future.exception()
    if isinstance(found, client_error.ClientError) and not found.cancelled:
      return found
  return error


def on_threads(
  program: program_lib.Program,
  argument: Callable[[int], Any],
  clients: Clients,
  ahead: bool,
  phase: phases_lib.Phase,
  following: phases_lib.Phase | None,
  server: dict,
  kept: list[dict],
) -> dict:
  """Runs a phase's clients on threads of this process; see `run`.

  `argument` maps a client's index to the client's view of the parameter. `ahead` lets a thread
  create clients' values before they are needed.
  """
  parameter, stateful = program.parameter, program.stateful
  home, num_clients = clients.home(stateful), len(kept)
  size = phases_lib.block_size(num_clients)
  sums = phases_lib.Sums(phase, server, home, size)
  indices = iter(range(num_clients))
  reads_argument = parameter in phase.client.inputs

  def work(index, value, place):
    return phase.client({**server, **kept[index], parameter: value}, place)

  def fold(group):
    for found, index in zip(group, indices, strict=False):
      kept[index].update({name: found[name] for name in phase.kept})
    sums.add(group)

  def trace():
    # Only one graph is traced at a time. Trace the clients' graph first, because the clients
    # wait for it. Ignore an error of this trace, because a client reports the same error.
    with contextlib.suppress(Exception):
      phase.client.traced(clients.places(stateful)[0])
    sums.trace(num_clients)
    if following:
      following.server.traced(home)

  clients.run(
    num_clients,
    stateful,
    argument if reads_argument else lambda index: (),
    work,
    fold,
    phase.at_once,
    ahead and reads_argument,
    trace,
  )
  return sums.totals()


def run(
  program: program_lib.Program,
  phases: list[phases_lib.Phase],
  server_argument,
  num_clients: int,
  home: imported.Place,
  run_clients: Callable,
):
  """Runs a program, and returns its values by name. A value at clients is a list.

  `run_clients` takes (phase, following phase or None, the server's values, each client's
  kept values). The function updates the kept values and returns the phase's accumulators.
  """
  server = {program.parameter: server_argument}
  kept = [{} for _ in range(num_clients)]
  for phase, following in zip(phases, [*phases[1:], None], strict=True):
    server.update(phase.server(server, home))
    if phase.kept or phase.totals:
      server.update(run_clients(phase, following, server, kept))
  for name in {name for phase in phases for name in phase.kept}:
    server[name] = [values[name] for values in kept]
  return server
