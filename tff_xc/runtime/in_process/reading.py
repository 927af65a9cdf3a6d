"""Reads clients' values, optionally ahead of their use in a thread."""

import concurrent.futures
from collections.abc import Callable
from typing import Any


class Reader:
  """Provides clients' values, with one read per call of `take`."""

  def __init__(self, read: Callable[[int], Any], ahead: bool):
    """Starts no thread yet.

    Args:
      read: client's index -> the client's value.
      ahead: whether a thread reads, because reading takes time.
    """
    self._read = read
    self._started = {}
    self._thread = None
    if ahead:
      self._thread = concurrent.futures.ThreadPoolExecutor(
        1, thread_name_prefix='tff_xc_reader'
      )

  def start(self, index: int) -> None:
    """Starts to read a value that `take` will return."""
    if self._thread:
      self._started[index] = self._thread.submit(self._read, index)

  def take(self, index: int) -> Any:
    """Returns a value, or raises the error of reading it."""
    started = self._started.pop(index, None)
    # If the thread has not started this read, the caller reads at once.
    if started is None or started.cancel():
      return self._read(index)
    return started.result()

  def close(self) -> None:
    """Cancels reads that have not begun, and ends the thread."""
    if self._thread:
      self._thread.shutdown(cancel_futures=True)
