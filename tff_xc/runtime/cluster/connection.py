"""Connects a driver to the user's Ray cluster, or starts Ray on this machine.

If the driver starts Ray, Ray listens only on 127.0.0.1, and requires a token that nobody else
knows. Ray then ends together with the driver, even if the driver is killed (see `guard`). The
user's cluster must also require a token, except with --cluster_without_token. Ray reads its
token, certificates and timeouts from its own environment variables.
"""

import atexit
import contextlib
import importlib.util
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping

import psutil

from tff_xc import errors
from tff_xc.lazy import ray
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import guard

# The longest time in seconds to wait for an answer of the cluster's head node.
_HEAD_SECONDS = 20.0
# The longest time in seconds to wait for Ray when the driver disconnects.
_LEAVE_SECONDS = 20.0
# Default values of variables that Ray reads in the driver. The user's values have priority.
_VARIABLES = {
  # By default, Ray ends the driver without a message, one minute after the head node is lost.
  'RAY_gcs_rpc_server_reconnect_timeout_s': str(10 * 24 * 3600),
  # By default, a driver that disconnects waits two minutes for an unreachable head node.
  'RAY_grpc_client_keepalive_timeout_ms': '20000',
  # By default, Ray prints messages on stderr, for example that nobody collects its metrics.
  'RAY_BACKEND_LOG_LEVEL': 'fatal',
  # Let workers that reserve no GPU see the machine's GPUs.
  'RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO': '0',
}
_CURE = 'start Ray again if you started it; the same command continues the run'

_is_connected = False
_guard: subprocess.Popen | None = None  # The guard of a Ray that this process started.
# The process of Ray on this machine to which this process is connected.
_nearest_raylet: psutil.Process | None = None
# Whether a thread of `disconnect` still waits for Ray.
left_behind = False


def connect(address: str = '', without_token: bool = False) -> None:
  """Connects this process to Ray until `disconnect`.

  Args:
    address: 'IP:PORT' of a running cluster's head node, or 'auto' for the cluster that runs
      on this machine. '': use $RAY_ADDRESS. If this variable is not set, start Ray here.
    without_token: whether to use a cluster that serves callers without a token.

  Raises:
    errors.InputError: no head node answers at the address, Ray cannot connect, or the head
      node serves callers without a token although `without_token` is false.
  """
  global _is_connected, _nearest_raylet
  if importlib.util.find_spec('ray') is None:
    raise errors.InputError('Ray is not installed: `make venv-cluster` adds it to .venv')
  address = address or os.environ.get('RAY_ADDRESS', '')
  _is_connected = True
  try:
    with _as_before(), _first_output_hidden():
      if address:
        _join(address, without_token)
      else:
        _start()
    _nearest_raylet = _find_raylet()
  except BaseException as e:
    disconnect()
    if isinstance(e, errors.InputError) or not isinstance(e, Exception):
      raise
    reason = str(e) or str(e.__context__ or '') or type(e).__name__
    if 'uthenticat' in reason:
      reason = 'the cluster refuses our token'
    raise errors.InputError(
      f'Ray cannot connect ({reason.splitlines()[0]}): see that its node runs on'
      ' this machine, and that the RAY_ variables are those of the cluster'
    ) from e


def _start() -> None:
  """Starts Ray on this machine for this process only."""
  global _guard
  from ray._private import ray_constants

  # Ray makes its folder accessible to all users, so put that folder into a private folder. The
  # path must be short, because the length of socket paths is limited.
  folder = tempfile.mkdtemp(prefix='tff_xc_', dir='/tmp')
  _guard = subprocess.Popen(
    [sys.executable, guard.__file__, folder],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,  # Ctrl-C must not end the guard.
  )
  root = str(pathlib.Path(__file__).parents[3])
  path = [root, os.environ.get('PYTHONPATH', '')]
  values = {
    'RAY_AUTH_MODE': 'token',
    'RAY_AUTH_TOKEN': secrets.token_hex(32),
    'PYTHONPATH': os.pathsep.join(filter(None, path)),
    guard.VARIABLE: folder,
  }
  enabled = ray_constants.ENABLE_RAY_CLUSTER
  # With True, Ray would replace 127.0.0.1 by the machine's external address.
  ray_constants.ENABLE_RAY_CLUSTER = False
  try:
    with _variables(values):
      _init(
        'local',
        num_gpus=0,
        include_dashboard=False,
        _node_ip_address='127.0.0.1',
        _temp_dir=f'{folder}/ray',
      )
  finally:
    ray_constants.ENABLE_RAY_CLUSTER = enabled


def _join(address: str, without_token: bool) -> None:
  """Connects to the user's cluster."""
  from ray._private import services

  address = services.canonicalize_bootstrap_address(address)
  is_open = _serves_anybody(address)
  if is_open and not without_token:
    raise errors.InputError(
      f'the cluster at {address} runs any program of anybody who can reach it: start'
      ' Ray with RAY_AUTH_MODE=token on all machines, or pass'
      ' --cluster_without_token'
    )
  with _variables({} if is_open else {'RAY_AUTH_MODE': 'token'}):
    _init(address)


def _init(address: str, **more) -> None:
  ray.init(address, log_to_driver=False, logging_level='ERROR', **more)
  atexit.register(disconnect)  # `disconnect` runs before Ray's exit function.


def _serves_anybody(address: str) -> bool:
  """Whether the head node of a cluster answers a call without a token."""
  import grpc
  from ray._private import tls_utils

  options = [('grpc.enable_http_proxy', 0)]  # Ray uses no proxy, either.
  if os.environ.get('RAY_USE_TLS', '').lower() in ('1', 'true'):
    certificate, key, authority = tls_utils.load_certs_from_env()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    channel = grpc.secure_channel(address, credentials, options)
  else:
    channel = grpc.insecure_channel(address, options)
  call = channel.unary_unary('/ray.rpc.NodeInfoGcsService/GetAllNodeInfo')
  try:
    call(b'', timeout=_HEAD_SECONDS)
    return True
  except grpc.RpcError as e:
    if e.code() == grpc.StatusCode.UNAUTHENTICATED:
      return False
    raise errors.InputError(
      f'no head of a Ray cluster answers at {address} ({e.code().name}): see that it'
      ' runs, and that RAY_USE_TLS and the RAY_TLS_ variables are those of the cluster'
    ) from e
  finally:
    channel.close()


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
  """Sets environment variables for Ray and its processes within the block."""
  import ray._raylet

  usual = {n: v for n, v in _VARIABLES.items() if n not in os.environ}
  values = {**usual, **values}
  before = {name: os.environ.get(name) for name in values}
  os.environ.update(values)
  # Ray may have read its variables earlier, when it was imported or connected. Let Ray read
  # them again.
  ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
  ray._raylet.Config.initialize('')
  try:
    yield
  finally:
    for name, value in before.items():
      if value is None:
        del os.environ[name]
      else:
        os.environ[name] = value


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
  """Restores this process's handlers of SIGTERM and of errors, which Ray replaces.

  Ray's handlers would print a C++ stack trace, or wait for the head node before they print an
  error. Ray's messages about lost workers are also dropped, because `dispatch` prints better
  messages.
  """
  hook, handler = sys.excepthook, signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    from ray._private import worker

    worker.print_to_stdstream = lambda *args, **more: None
    sys.excepthook = hook
    in_main = threading.current_thread() is threading.main_thread()
    # Python sets handlers only in the main thread. `handler` is None if Python did not set it.
    if in_main and handler is not None:
      signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _first_output_hidden() -> Iterator[None]:
  """Hides messages of Ray's C++ code about its variables. Errors are still raised."""
  sys.stderr.flush()
  kept = os.dup(2)
  try:
    with open(os.devnull, 'w') as file:
      os.dup2(file.fileno(), 2)
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def _find_raylet() -> psutil.Process | None:
  """Returns Ray's main process on this machine, or None if this user cannot see it."""
  from ray._private import worker

  socket = worker._global_node.raylet_socket_name
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error):  # The process may have ended.
      if process.name() == 'raylet' and socket in ' '.join(process.cmdline()):
        return process
  return None


def check_node() -> None:
  """Raises WorkersError if this machine's Ray node has ended. The check takes 0.1 ms.

  Without this check, Ray would end the driver without a message as soon as the driver uses the
  object store of the ended node.
  """
  ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
  with contextlib.suppress(psutil.NoSuchProcess):
    if _nearest_raylet is None or _nearest_raylet.status() not in ended:
      return
  raise client_error.WorkersError(f'the node of Ray on this machine has ended: {_CURE}')


def alive() -> dict[str, int]:
  """Returns the number of CPUs of each running node, by the node's id.

  Raises:
    client_error.WorkersError: the head node does not answer.
  """
  from ray._private import worker
  from ray.core.generated import gcs_pb2

  check_node()
  client = worker.global_worker.gcs_client
  try:
    found = client.get_all_node_info(timeout=_HEAD_SECONDS)
  except ray.exceptions.RayError as e:
    raise client_error.WorkersError(
      f'the head of the Ray cluster does not answer ({str(e).splitlines()[0]}): {_CURE}'
    ) from e
  return {
    node.hex(): int(info.resources_total.get('CPU', 0))
    for node, info in found.items()
    if info.state == gcs_pb2.GcsNodeInfo.ALIVE
  }


def disconnect() -> None:
  """Disconnects from Ray, and ends Ray if this process started it.

  If Ray does not answer, a thread of this process keeps running in Ray's code, and
  `left_behind` becomes true. In this case, the process may crash at its exit. `launch.app`
  avoids this crash by `os._exit`.
  """
  global _guard, _is_connected, _nearest_raylet, left_behind
  if not _is_connected:
    return
  _is_connected, _nearest_raylet = False, None
  atexit.unregister(disconnect)
  leaving = threading.Thread(target=ray.shutdown, daemon=True)
  leaving.start()
  try:
    leaving.join(_LEAVE_SECONDS)
  finally:
    if leaving.is_alive():
      atexit.unregister(ray.shutdown)  # `ray.shutdown` would also hang at the exit.
      left_behind = True
    if _guard is not None:
      _guard.stdin.close()
      with contextlib.suppress(subprocess.TimeoutExpired):
        _guard.wait(_LEAVE_SECONDS)
      _guard = None
