"""Contenders' processes: which program runs, and a handle that runs its rounds."""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tff_xc
from launch.benchmarks import cpu
from launch.benchmarks import spec
from launch.benchmarks.peers import protocol
from tff_xc import errors

STARTED_VARIABLE = 'BENCHMARK_STARTED'
_TAIL_BYTES = 1500
_GRACE_SECONDS = 10.0
_PEERS = pathlib.Path(__file__).parent / 'peers'
# These variables would make another interpreter find this one's packages.
_OURS = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')


@dataclasses.dataclass(frozen=True)
class Reply:
  """A contender's report of one round."""

  seconds: float  # Wall-clock time of the round.
  # Of the first round, numbers by name that contenders must agree on.
  check: Mapping[str, float] = dataclasses.field(default_factory=dict)
  # Seconds by name, a breakdown; may be empty.
  parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
  peak_bytes: int = 0  # Peak memory of its processes so far (`cpu.peak_bytes`).


class Contender:
  """A contender's process, which is started once and runs many rounds.

  A fresh one starts a process for every round, and ends it again.
  """

  def __init__(
    self,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float,
    is_fresh: bool = False,
  ):
    """Keeps the arguments; `start` starts the process."""
    self.name = name
    self._command = list(command)
    self._environment = dict(environment)
    self._timeout, self._is_fresh = timeout_seconds, is_fresh
    self._process: subprocess.Popen | None = None
    self._is_busy = False

  def start(self) -> None:
    """Starts the process and waits until it is built; not if it is fresh."""
    if not self._is_fresh:
      self._start()

  def _start(self) -> None:
    self._log = tempfile.TemporaryFile()  # noqa: SIM115 lives with the process
    reading, writing = os.pipe()
    self._replies = os.fdopen(reading, 'rb', buffering=0)
    self._unread = b''
    try:
      self._process = subprocess.Popen(
        self._command,
        stdin=subprocess.PIPE,
        stdout=self._log,
        stderr=self._log,
        pass_fds=(writing,),
        start_new_session=True,  # Only the parent handles Ctrl-C.
        env={
          **self._environment,
          protocol.FD_VARIABLE: str(writing),
          protocol.PARENT_VARIABLE: str(os.getpid()),
          STARTED_VARIABLE: repr(time.monotonic()),
        },
      )
    except OSError as e:
      raise errors.InputError(
        f'contender {self.name} does not start ({e.strerror}): '
        f'{self._command[0]}'
      ) from e
    finally:
      os.close(writing)
    self._answer('while starting')

  def round(self) -> Reply:
    """Runs one round."""
    if self._is_fresh:
      self._start()
    with contextlib.suppress(BrokenPipeError):  # `_answer` reports the cause.
      self._process.stdin.write(b'round\n')
      self._process.stdin.flush()
    answer = self._answer('during a round')
    reply = Reply(**answer, peak_bytes=cpu.peak_bytes(self._process.pid))
    if self._is_fresh:
      self.end()
    return reply

  def end(self) -> None:
    """Ends the process; does nothing if none runs."""
    process, self._process = self._process, None
    if process is None:
      return
    try:
      with contextlib.suppress(OSError):
        process.stdin.close()
      if not self._is_busy:
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(_GRACE_SECONDS)
    finally:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      self._replies.close()
      self._log.close()

  def _answer(self, when: str) -> dict[str, Any]:
    self._is_busy = True
    line = self._read_line(when)
    self._is_busy = False
    if not line:
      code = self._process.wait()
      how = f'exit status {code}'
      if code < 0:
        how = f'signal {-code}, {signal.strsignal(-code)}'
      raise self._failed(f'ended ({how}) {when}')
    answer = json.loads(line)
    if 'error' in answer:
      what = f'failed {when}: {answer["error"]}'
      raise self._failed(what, has_tail=not answer['input'])
    return answer

  def _read_line(self, when: str) -> bytes:
    """Returns a whole line, or b'' if the process has ended."""
    deadline = time.monotonic() + self._timeout
    poll = select.poll()
    poll.register(self._replies, select.POLLIN)
    while b'\n' not in self._unread:
      left = deadline - time.monotonic()
      if left <= 0 or not poll.poll(1000 * left):
        raise self._failed(
          f'did not answer within {self._timeout:g} seconds {when}'
        )
      read = os.read(self._replies.fileno(), 65536)
      if not read:
        return b''
      self._unread += read
    line, self._unread = self._unread.split(b'\n', 1)
    return line

  def _failed(self, what: str, has_tail: bool = True) -> errors.InputError:
    size = self._log.seek(0, os.SEEK_END)
    self._log.seek(max(0, size - _TAIL_BYTES))
    text = self._log.read().decode(errors='replace').strip()
    words = f'; its last words:\n{text}' if has_tail and text else ''
    return errors.InputError(f'contender {self.name} {what}{words}')


def check_names(
  benchmark: spec.Benchmark, settings: Any, names: Sequence[str]
) -> None:
  """Refuses contenders that the benchmark does not have, and repetitions."""
  known = [*benchmark.contenders(settings), *benchmark.optional(settings)]
  for name in names:
    if name not in known:
      raise errors.InputError(
        f'unknown contender {name!r}: those of {benchmark.name} are '
        + ', '.join(known)
      )
  if not names or len(set(names)) < len(names):
    raise errors.InputError(
      f'--contenders={",".join(names)}: name each contender once'
    )


def programs(benchmark: spec.Benchmark, settings: Any) -> list[str]:
  """Returns the names that `--peers` takes: programs in peers/."""
  named = map(spec.name_and_size, benchmark.peers(settings))
  return list(dict.fromkeys(program for program, _ in named))


def parse_peers(
  benchmark: spec.Benchmark, settings: Any, given: Sequence[str]
) -> dict[str, str]:
  """Parses NAME=INTERPRETER words."""
  known = programs(benchmark, settings)
  if given and not known:
    raise errors.InputError(f'{benchmark.name} has no peers; leave --peers out')
  peers = {}
  for word in given:
    name, _, interpreter = word.partition('=')
    if name not in known:
      raise errors.InputError(
        f'--peers={word}: expected NAME=INTERPRETER, the names of '
        f'{benchmark.name} are {", ".join(known)}'
      )
    interpreter = os.path.expanduser(interpreter)
    if not os.access(interpreter, os.X_OK) or os.path.isdir(interpreter):
      raise errors.InputError(
        f'--peers={word}: {interpreter or "nothing"} is no program that can be '
        f'run; give the python of an environment that has {name.split("_")[0]}'
      )
    peers[name] = interpreter
  return peers


def _given_environment() -> dict[str, str]:
  """Returns the environment without the setting that this package adds."""
  added = {tff_xc.ONEDNN} if tff_xc.ONEDNN_GIVEN is None else set()
  return {k: v for k, v in os.environ.items() if k not in added}


def our_contender(
  benchmark: spec.Benchmark, settings: Any, name: str, timeout_seconds: float
) -> Contender:
  """Returns the handle of a contender of this package."""
  command = [
    *(sys.executable, '-m', 'launch.benchmarks.child', benchmark.name, name),
    json.dumps(dataclasses.asdict(settings)),
  ]
  environment = _given_environment() | {
    'PYTHONPATH': os.pathsep.join(path or os.getcwd() for path in sys.path)
  }
  return Contender(name, command, environment, timeout_seconds, benchmark.fresh)


def peer_contenders(
  names: Sequence[str],
  interpreters: Mapping[str, str],
  arrays_path: str,
  timeout_seconds: float,
) -> dict[str, Contender]:
  """Returns the handles of the peers whose programs have an interpreter."""
  given = _given_environment()
  environment = {k: v for k, v in given.items() if k not in _OURS}
  contenders = {}
  for name in names:
    program, size = spec.name_and_size(name)
    if program in interpreters:
      path = str(_PEERS / f'{program}.py')
      command = [interpreters[program], path, arrays_path, size]
      contenders[name] = Contender(name, command, environment, timeout_seconds)
  return contenders
