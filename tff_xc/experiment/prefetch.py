"""Reads the clients that come next while others train, also those of the next round.

A cohort depends only on (seed, round), so the next one is known. What is read ahead is
bounded in clients and in bytes. A value is the same whoever reads it, so a run has
the same digits with and without.
"""

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf

from tff_xc.experiment import cohort as cohort_lib

# The most clients, and bytes of their examples, that are read ahead.
_CLIENTS, _BYTES = 4, 2**28


@contextlib.contextmanager
def ahead(
  cohorts: Callable[[int], cohort_lib.Cohort], rounds: int
) -> Iterator[Callable[[int], cohort_lib.Cohort]]:
  """Yields round -> the same cohort, whose values a thread reads ahead of their use.

  Args:
    cohorts: round (from 0) -> its cohort.
    rounds: of the whole run; nothing of later rounds is read.
  """
  reader = _Reader(cohorts, rounds)
  try:
    yield reader.cohort
  finally:
    reader.close()


class _Reader:
  """Reads values by (round, place in its cohort), in this order."""

  def __init__(self, cohorts: Callable[[int], cohort_lib.Cohort], rounds: int):
    self._cohorts, self._rounds = cohorts, rounds
    self._drawn = {}  # The cohorts of this round and the next.
    self._started = {}  # Futures by (round, place).
    self._last = (-1, 0)  # The value that was used last, in order.
    self._largest = 0  # Bytes of the largest value so far.
    self._lock = threading.Lock()
    self._thread = concurrent.futures.ThreadPoolExecutor(
      1, thread_name_prefix='tff_xc_prefetch'
    )

  def cohort(self, round_number: int) -> cohort_lib.Cohort:
    """Returns a cohort; rounds are asked for in ascending order."""
    with self._lock:
      found = self._draw(round_number)
      for old in [r for r in self._drawn if r < round_number]:
        del self._drawn[old]
      for key in [k for k in self._started if k[0] < round_number]:
        self._started.pop(key).cancel()
    value = lambda place: self._take(found, round_number, place)
    return found._replace(
      examples=cohort_lib.Values(value, range(len(found.examples)))
    )

  def close(self) -> None:
    """Cancels what has not begun, and ends the thread."""
    self._thread.shutdown(cancel_futures=True)

  def _draw(self, round_number: int) -> cohort_lib.Cohort:
    if round_number not in self._drawn:
      self._drawn[round_number] = self._cohorts(round_number)
    return self._drawn[round_number]

  def _take(self, cohort: cohort_lib.Cohort, round_number: int, place: int):
    with self._lock:
      started = self._started.pop((round_number, place), None)
    # If the thread has not begun to read it, the caller reads at once.
    if started is None or started.cancel():
      value = cohort.examples[place]
    else:
      value = started.result()
    with self._lock:
      self._largest = max(self._largest, _bytes(value))
      self._last = max(self._last, (round_number, place))
      self._start()
    return value

  def _start(self) -> None:
    """Starts to read what follows the last value that was used."""
    most = min(_CLIENTS, _BYTES // max(self._largest, 1))
    for key in self._following(most - len(self._started)):
      if key not in self._started:
        read = self._draw(key[0]).examples.__getitem__
        with contextlib.suppress(RuntimeError):  # It is closed.
          self._started[key] = self._thread.submit(read, key[1])

  def _following(self, count: int) -> Iterator[tuple[int, int]]:
    """Yields the next values that are not started, at most `count`."""
    round_number, place = self._last
    while count > 0 and round_number < self._rounds:
      place += 1
      if place >= len(self._draw(round_number).examples):
        round_number, place = round_number + 1, -1
        if round_number > self._last[0] + 1:
          return  # Only one round ahead.
      elif (round_number, place) not in self._started:
        count -= 1
        yield round_number, place


def _bytes(value) -> int:
  return sum(
    array.nbytes for array in tf.nest.flatten(value) if hasattr(array, 'nbytes')
  )
