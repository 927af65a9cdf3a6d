"""Handles Ctrl-C, SIGTERM and SIGHUP: no signal is lost, and a second one ends the process.

Python raises `KeyboardInterrupt` at any place in a program. TensorFlow and TFF often run
destructors and callbacks, and Python ignores exceptions in destructors and callbacks. This
module therefore raises an ignored `KeyboardInterrupt` again, and long loops call `check` at
places where they can stop. Only commands call `install`, so a program that imports this
library keeps its own signal handlers.
"""

import contextlib
import os
import signal
import sys
import threading
import time

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_USUAL = (signal.default_int_handler, signal.SIG_DFL)
# Signals within this time are one signal: some programs, such as `timeout`, pass one
# Ctrl-C on twice.
_SAME_SECONDS = 0.3
# The delay before an ignored exception is raised again.
_AGAIN_SECONDS = 0.02

# The number of the first signal that came within `raising`, or 0 before the first signal.
_received = 0


def install() -> None:
  """Makes signals end this process without a traceback, until `raising` is entered.

  Signals that the process already ignores stay ignored, such as Ctrl-C in a script's
  background job, or SIGHUP after `nohup`.
  """
  for number in _SIGNALS:
    if signal.getsignal(number) in _USUAL:
      signal.signal(number, _leave)


@contextlib.contextmanager
def raising():
  """Makes the first signal in the block raise `KeyboardInterrupt` in the main thread.

  A second signal ends the process, even while the main thread is inside a library.
  """
  global _received
  _received = 0
  hook = sys.unraisablehook

  def ignored(unraisable):
    if _received and unraisable.exc_type is KeyboardInterrupt:
      signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
      hook(unraisable)

  numbers = [n for n in _SIGNALS if signal.getsignal(n) is _leave]
  for number in numbers:
    signal.signal(number, _first)
  alarm = signal.signal(signal.SIGALRM, lambda number, frame: check())
  sys.unraisablehook = ignored
  for_signals, told = os.pipe()
  os.set_blocking(told, False)
  before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
  # Without this line, a forked child would write into the same pipe.
  os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
  threading.Thread(target=_end_at_the_second, args=[for_signals, numbers], daemon=True).start()
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.set_wakeup_fd(before)
    os.close(told)
    sys.unraisablehook = hook
    signal.signal(signal.SIGALRM, alarm)
    for number in numbers:
      signal.signal(number, _leave)


def check() -> None:
  """Raises `KeyboardInterrupt` if a signal has come since `raising` was entered."""
  if _received:
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt


def received() -> bool:
  """Whether a signal has come since `raising` was entered."""
  return bool(_received)


def status() -> int:
  """Returns the exit status of a process that a signal has ended: 130, 143 or 129."""
  return 128 + (_received or signal.SIGINT)


def _leave(number, frame) -> None:
  with contextlib.suppress(OSError):
    os.write(2, b'interrupted\n')
  os._exit(128 + number)


def _first(number, frame) -> None:
  global _received
  if not _received:
    _received = number
    raise KeyboardInterrupt


def _end_at_the_second(descriptor: int, numbers) -> None:
  """Ends the process at the second signal, even while the main thread runs no Python code.

  The pipe `descriptor` delivers the numbers of the signals.
  """
  first = None
  with os.fdopen(descriptor, 'rb', buffering=0) as pipe:
    while found := pipe.read(1):
      if found[0] not in numbers:
        continue
      now = time.monotonic()
      first = now if first is None else first
      if now - first > _SAME_SECONDS:
        _leave(found[0], None)
