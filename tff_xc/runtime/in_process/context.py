"""The execution context that runs TFF computations in this process.

The context runs the same computations as TFF's worker, without serialization. Values stay
tensors between calls. Clients run in parallel on threads. Sums add clients' values in the
order of the clients, so that equal seeds give equal results.
"""

import collections
import contextlib
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_xc import errors
from tff_xc.runtime.in_process import (
  arguments,
  execution,
  graph_call,
  imported,
  phases as phases_lib,
  program as program_lib,
  updates,
  values,
)


class InProcessContext(tff.framework.SyncContext):
  """A synchronous context that needs no other process.

  Several threads may invoke computations at once, even the same computation.
  Each invocation has its own client threads.
  """

  def __init__(self, new_clients: Callable[[int], execution.Clients]):
    self._new_clients = new_clients
    self._numbers = itertools.count()
    self._idle = []
    self._compiled = {}
    self._in_place = updates.InPlace()
    self._lock = threading.Lock()

  _phase = phases_lib.Phase
  donate = staticmethod(updates.donate)
  keep = staticmethod(updates.keep)

  def invoke(self, comp: tff.Computation, arg: Any):
    """Runs `comp` on `arg`; see `tff.framework.SyncContext`.

    The clients' values are a list, or a sequence that creates values on access. With such a
    sequence, a thread accesses a client's value shortly before the client starts. Raises
    `expressions.UnsupportedError` before any step has run if this runtime cannot run a part
    of `comp`. Raises `client_error.ClientError` if a client fails.
    """
    program, phases = self._compile(comp)
    argument = arguments.Argument(arg, program.parameter_type)
    with self._clients() as clients:
      found = execution.run(
        program,
        phases,
        argument.of_server(),
        argument.num_clients or 0,
        clients.home(program.stateful),
        self._run_clients(program, argument, clients),
      )
    if program.parameter in program.result_reads:
      found[program.parameter] = argument.whole()
    result_type = comp.type_signature.result
    result = program.result(found, imported.Place())
    result = self._finish(result, result_type)
    argument.release()
    return tff.types.type_to_py_container(values.to_python(result, result_type), result_type)

  def _run_clients(self, program, argument: arguments.Argument, clients):
    """Returns the function that runs the clients of a phase; see `execution.run`."""
    return functools.partial(
      execution.on_threads, program, argument.of_client, clients, argument.is_lazy
    )

  @contextlib.contextmanager
  def _clients(self):
    """Yields client threads that no other invocation uses within the block."""
    try:
      clients = self._idle.pop()
    except IndexError:
      clients = self._new_clients(next(self._numbers))
    try:
      yield clients
    finally:
      self._idle.append(clients)

  def _compile(self, comp):
    with self._lock:
      if id(comp) not in self._compiled:
        program = program_lib.Program(comp)
        phases = [self._phase(program, i) for i in range(program.phases)]
        self._compiled[id(comp)] = program, phases
        # Remove the entry with `comp`, because Python reuses the ids of freed objects.
        weakref.finalize(comp, self._compiled.pop, id(comp), None)
      return self._compiled[id(comp)]

  def _finish(self, result, type_spec: tff.Type):
    """Converts row updates and donated tensors to tensors."""
    uses = collections.Counter()

    def count(leaf, _):
      base = leaf.base if isinstance(leaf, updates.RowUpdate) else leaf
      uses[id(base)] += 1

    def finish(leaf, _):
      if isinstance(leaf, updates.RowUpdate):
        given_up = isinstance(leaf.base, updates.GivenUp)
        if given_up and uses[id(leaf.base)] == 1:
          return self._in_place(leaf.base, leaf.ids, leaf.rows)
      return graph_call.readable(leaf)

    def on_leaves(function):
      def of_one(value, kind):
        return values.map_leaves(function, value, kind)

      def of_clients(each, kind):
        return [of_one(value, kind) for value in each]

      return values.map_placed(result, type_spec, of_one, of_clients)

    on_leaves(count)
    return on_leaves(finish)


def visible_devices(wanted: str = '') -> list[str]:
  """Returns TensorFlow's names of the devices that run clients.

  `wanted` is, for example, 'cpu', 'gpu', or 'gpu:0,gpu:1'. With '', the function returns the
  GPUs that TensorFlow sees. If TensorFlow sees no GPU, it returns [''], which lets TensorFlow
  choose.
  """
  found = [d.name for kind in ('CPU', 'GPU') for d in tf.config.list_logical_devices(kind)]
  if not wanted:
    return [name for name in found if 'GPU' in name] or ['']
  known = {name: name.removeprefix('/device:').lower() for name in found}  # Such as 'cpu:0'.
  chosen = []
  for each in wanted.lower().split(','):
    matching = [n for n, short in known.items() if each in (short, short.partition(':')[0])]
    if not matching:
      raise errors.InputError(
        f'--device={wanted}: TensorFlow sees no {each!r}; it sees {", ".join(known.values())}'
      )
    chosen += matching
  return chosen


def create_context(*, client_threads: int = 0, device: str = '') -> InProcessContext:
  """Returns a context that runs computations in this process.

  Create the context before TensorFlow has run any op. The context limits every op to one
  thread, and TensorFlow cannot change this limit later.

  Args:
    client_threads: the number of clients that an invocation runs in parallel. 0: the number
      of cores that this process may use.
    device: see `visible_devices`.

  Raises:
    errors.InputError: for a device that TensorFlow does not see.
  """
  return InProcessContext(new_clients(client_threads, device))


def new_clients(client_threads: int, device: str) -> Callable[[int], execution.Clients]:
  """Returns a function that creates an invocation's client threads; see `create_context`."""
  threads = client_threads or len(os.sched_getaffinity(0))
  _use_one_thread_for_an_op()
  tf.config.set_soft_device_placement(True)
  # Runs can share a GPU if TensorFlow allocates its memory on demand.
  for gpu in tf.config.list_physical_devices('GPU'):
    with contextlib.suppress(RuntimeError):  # Raised if TensorFlow uses the GPU.
      tf.config.experimental.set_memory_growth(gpu, True)
  devices = visible_devices(device)
  if any('GPU' in name for name in devices):
    # By default, convolutions on GPUs sum in any order, and matrix products use TensorFloat-32,
    # which has a mantissa of 10 bits. Two runs with the same seed would differ after a round.
    tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(False)
  return functools.partial(execution.Clients, devices, threads)


def _use_one_thread_for_an_op() -> None:
  """Limits ops to one thread each, so that clients share the cores.

  The limit is also needed if only one client runs at a time. An op on several threads sums in
  a different order. A run that resumes with a different number of client threads would then not
  reproduce the same digits.
  """
  try:
    tf.config.threading.set_intra_op_parallelism_threads(1)
  except RuntimeError:
    logging.warning(
      'TensorFlow has run an op before the in-process runtime was installed, and'
      ' its ops keep several threads: this run will differ in the last digits'
      ' from one that installs the runtime first'
    )
