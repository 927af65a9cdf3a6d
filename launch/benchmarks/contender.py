"""The parent's handle of a contender, a process that runs rounds on command."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import cpu
from launch.benchmarks.peers import protocol
from tff_xc import errors

STARTED_VARIABLE = 'BENCHMARK_STARTED'
_TAIL_BYTES = 1500
_GRACE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Reply:
  """A contender's report of one round.

  Attributes:
    seconds: wall-clock time of the round.
    check: numbers by name that contenders must agree on; may be empty.
    parts: seconds by name, a breakdown; may be empty.
    peak_bytes: peak memory of its processes so far (`cpu.peak_bytes`).
  """

  seconds: float
  check: Mapping[str, float] = dataclasses.field(default_factory=dict)
  parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
  peak_bytes: int = 0


class Contender:
  """A contender's process, which is started once and runs many rounds."""

  def __init__(
    self,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float,
  ):
    """Keeps the arguments; `start` starts the process.

    Args:
      name: the contender's name in messages.
      command: the program and its arguments; it must follow `protocol`.
      environment: the program's whole environment.
      timeout_seconds: the longest time for one answer.
    """
    self.name = name
    self._command = list(command)
    self._environment = dict(environment)
    self._timeout = timeout_seconds
    self._process: subprocess.Popen | None = None
    self._is_busy = False

  def start(self) -> None:
    """Starts the process and waits until it is built."""
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
    with contextlib.suppress(BrokenPipeError):  # `_answer` reports the cause.
      self._process.stdin.write(b'round\n')
      self._process.stdin.flush()
    answer = self._answer('during a round')
    return Reply(
      seconds=answer['seconds'],
      check=answer.get('check', {}),
      parts=answer.get('parts', {}),
      peak_bytes=cpu.peak_bytes(self._process.pid),
    )

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
      raise self._failed(f'ended ({how}) {when}', tail=True)
    answer = json.loads(line)
    if 'error' in answer:
      raise self._failed(
        f'failed {when}: {answer["error"]}', tail=not answer['input']
      )
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
          f'did not answer within {self._timeout:g} seconds {when}', tail=True
        )
      read = os.read(self._replies.fileno(), 65536)
      if not read:
        return b''
      self._unread += read
    line, self._unread = self._unread.split(b'\n', 1)
    return line

  def _failed(self, what: str, tail: bool) -> errors.InputError:
    size = self._log.seek(0, os.SEEK_END)
    self._log.seek(max(0, size - _TAIL_BYTES))
    text = self._log.read().decode(errors='replace').strip()
    words = f'; its last words:\n{text}' if tail and text else ''
    return errors.InputError(f'contender {self.name} {what}{words}')


class FreshContender:
  """A contender that starts a process for every round and ends it again."""

  def __init__(self, make: Callable[[], Contender]):
    self._make = make
    self._running: Contender | None = None

  def start(self) -> None:
    """Does nothing, since every round starts its own process."""

  def round(self) -> Reply:
    """Starts a process, returns its report of one round, and ends it."""
    self._running = self._make()
    try:
      self._running.start()
      return self._running.round()
    finally:
      self.end()

  def end(self) -> None:
    """Ends the process if one runs."""
    running, self._running = self._running, None
    if running is not None:
      running.end()
