"""Reads clients' values, in a thread before they are asked for if that helps."""

import concurrent.futures
from collections.abc import Callable
from typing import Any


class Reader:
  """Gives clients' values, one read for each call of `take`."""

  def __init__(self, read: Callable[[int], Any], ahead: bool):
    """Starts no thread yet.

    Args:
      read: client's index -> the client's value.
      ahead: whether reading takes time, so that a thread does it.
    """
    self._read = read
    self._started = {}
    self._thread = None
    if ahead:
      self._thread = concurrent.futures.ThreadPoolExecutor(
        1, thread_name_prefix='tff_xc_reader'
      )

  def start(self, index: int) -> None:
    """Starts to read a value that will be taken."""
    if self._thread:
      self._started[index] = self._thread.submit(self._read, index)

  def take(self, index: int) -> Any:
    """Returns a value, and raises what reading it raised."""
    started = self._started.pop(index, None)
    # Where the thread has not come to it, the caller need not wait for it.
    if started is None or started.cancel():
      return self._read(index)
    return started.result()

  def close(self) -> None:
    """Gives up what has been started but not read, and ends the thread."""
    if self._thread:
      self._thread.shutdown(cancel_futures=True)
