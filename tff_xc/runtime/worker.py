"""Runs computations in TFF's own worker, and ends the worker together with this process.

TFF's default context starts the same `worker_binary`, but leaves the worker running after the
interpreter has exited. The worker then keeps an inherited terminal or pipe open. A context of
this module owns its worker process, and the worker inherits no stream. The worker ends when
the context is closed or garbage-collected, or when the interpreter exits. If this process is
killed, the kernel ends the worker.

Importing this module imports TFF, which takes seconds.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence

import grpc
import tensorflow_federated as tff

from tff_xc import errors

# TFF's own limit for one message, in bytes.
_MAX_MESSAGE_BYTES = 2 * 1000 * 1000 * 1000
_CHANNEL_OPTIONS = (
  ('grpc.max_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
  # The worker runs on this machine, and a proxy could not connect to it.
  ('grpc.enable_http_proxy', 0),
  # The worker needs a moment before it listens. Retry sooner than after gRPC's one second.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
)
_POLL_SECONDS = 0.1
_LOG_TAIL_BYTES = 2000

_NO_LAZY_SEQUENCES = (list, tuple, str, bytes, range)

# A separate small interpreter runs this code, and then becomes the worker. A `preexec_fn` would
# be unsafe, because it runs Python between fork and exec, and this process has threads of
# TensorFlow and gRPC. The 1 is PR_SET_PDEATHSIG of <sys/prctl.h>: when the parent process ends,
# the kernel kills the worker. The parent may end before this call, so the code then compares
# the parent's id.
_BECOME_WORKER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
  os.execv(sys.argv[2], sys.argv[2:])
"""


class _Stub(tff.framework.RemoteExecutorGrpcStub):
  """Releases no values after the worker has ended, because a release would print a traceback."""

  ended = False

  def dispose(self, request):
    return None if self.ended else super().dispose(request)

  def dispose_executor(self, request):
    return None if self.ended else super().dispose_executor(request)


class _Process:
  """A running `worker_binary`, and the connection to it."""

  def __init__(self, max_concurrent_calls: int, timeout_seconds: float):
    binary = _find_binary()
    self._owner_pid = os.getpid()
    self._log = tempfile.TemporaryFile()  # noqa: SIM115 lives with the process
    # With gRPC, several workers can listen on the same port without an error. Therefore a
    # socket that never listens reserves the port for this worker.
    self._reservation = socket.socket()
    self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    self._reservation.bind(('', 0))
    port = self._reservation.getsockname()[1]
    self._process = subprocess.Popen(
      [
        sys.executable,
        '-I',
        '-S',
        '-c',
        _BECOME_WORKER,
        str(self._owner_pid),
        binary,
        f'--port={port}',
        f'--max_concurrent_computation_calls={max_concurrent_calls}',
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=self._log,
      start_new_session=True,
    )
    self.pid = self._process.pid
    self._channel = grpc.insecure_channel(f'127.0.0.1:{port}', _CHANNEL_OPTIONS)
    self.stub = _Stub(self._channel)
    try:
      self._wait_until_ready(timeout_seconds)
    except BaseException:
      self.end()
      raise

  def _wait_until_ready(self, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    ready = grpc.channel_ready_future(self._channel)
    while True:
      try:
        ready.result(timeout=_POLL_SECONDS)
        return
      except grpc.FutureTimeoutError:
        pass
      if self._process.poll() is not None:
        raise errors.InputError(
          f"TFF's worker ended ({self._how_it_ended()}) while starting: run "
          f'`python -m launch.plan` and mend what it names{self._log_tail()}'
        )
      if time.monotonic() > deadline:
        raise errors.InputError(
          f"TFF's worker did not answer within {timeout_seconds:g} seconds: "
          f'free the machine of other work and start again{self._log_tail()}'
        )

  def _how_it_ended(self) -> str:
    code = self._process.poll()
    if code < 0:
      return f'signal {-code}, {signal.strsignal(-code)}'
    return f'exit status {code}'

  def _log_tail(self) -> str:
    size = self._log.seek(0, os.SEEK_END)
    self._log.seek(max(0, size - _LOG_TAIL_BYTES))
    text = self._log.read().decode(errors='replace').strip()
    return f'; its last words:\n{text}' if text else ''

  def check_running(self) -> None:
    """Raises `InputError` if the process has ended."""
    if self._process.poll() is not None:
      raise errors.InputError(
        f"TFF's worker ended ({self._how_it_ended()}) during a computation, "
        'most often because memory ran out: free memory, or take fewer clients '
        'a round'
      )

  def end(self) -> None:
    """Ends the process and waits until it has ended."""
    if os.getpid() != self._owner_pid:
      return  # A forked child has a copy of this object but does not own the worker.
    self.stub.ended = True
    self._channel.close()
    self._process.kill()
    self._process.wait()
    self._reservation.close()
    self._log.close()


class WorkerContext(tff.framework.SyncExecutionContext):
  """A synchronous execution context with a worker process of its own."""

  def __init__(self, process: _Process):
    self.pid = process.pid
    # `finalize` also calls `end` when the context is collected or the interpreter exits.
    self.close = end = weakref.finalize(self, process.end)

    def executor_stack(cardinalities):
      if not end.alive:
        raise RuntimeError('this worker context has been closed')
      # TFF would retry forever after a broken connection. Report the cause instead.
      process.check_running()
      cardinalities.setdefault(tff.CLIENTS, 0)
      executor = tff.framework.RemoteExecutor(process.stub)
      executor.set_cardinalities(cardinalities)
      return executor

    super().__init__(
      executor_fn=tff.framework.ResourceManagingExecutorFactory(executor_stack),
      compiler_fn=tff.backends.native.desugar_and_transform_to_native,
      transform_args=tff.tensorflow.transform_args,
      transform_result=tff.tensorflow.transform_result,
    )

  def invoke(self, comp, arg):
    """Runs `comp` like TFF's `invoke`, and also accepts sequences that create values on access."""
    return super().invoke(comp, _listed(arg, comp.type_signature.parameter))


def _listed(arg, type_spec: tff.Type | None):
  """Returns the argument with a list in place of each lazy sequence of clients' values."""
  if isinstance(arg, tff.structure.Struct):
    types = [part for _, part in tff.structure.iter_elements(type_spec)]
    parts = tff.structure.to_elements(arg)
    return tff.structure.Struct(
      [(name, _listed(value, part)) for (name, value), part in zip(parts, types, strict=True)]
    )
  of_clients = isinstance(type_spec, tff.FederatedType)
  of_clients = of_clients and not type_spec.all_equal
  # Leave all other values unchanged, because TFF checks them.
  if of_clients and isinstance(arg, Sequence):
    return arg if isinstance(arg, _NO_LAZY_SEQUENCES) else list(arg)
  return arg


def create_context(
  *, max_concurrent_calls: int = -1, start_timeout_seconds: float = 60.0
) -> WorkerContext:
  """Starts TFF's worker and returns a context that computes in it.

  Call this function from the main thread, because the kernel ends the worker when the thread
  that started the worker ends.

  Args:
    max_concurrent_calls: the most clients that train in parallel; 0 or less: no limit.
    start_timeout_seconds: the longest time to wait for the worker's first answer.

  Returns:
    A context. The worker ends when the context is closed or collected.

  Raises:
    errors.InputError: if the worker does not start in time.
    RuntimeError: if the calling thread is not the main thread.
  """
  if threading.current_thread() is not threading.main_thread():
    raise RuntimeError('a worker context is created in the main thread only')
  process = _Process(max_concurrent_calls, start_timeout_seconds)
  return WorkerContext(process)


def _find_binary() -> str:
  path = os.path.join(os.path.dirname(tff.__file__), 'data', 'worker_binary')
  if not os.access(path, os.X_OK):
    raise errors.InputError(
      f"TFF's worker is not there or not executable ({path}): install the "
      'pinned tensorflow-federated again, with `make clean venv`'
    )
  return path
