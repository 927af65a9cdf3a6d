"""Prefetches the clients' examples in a separate thread."""

import concurrent.futures
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator

import tensorflow as tf

from tff_xc.round import cohort as cohort_lib

# The thread prefetches at most this many clients, and this many bytes of their examples.
_AHEAD_CLIENTS, _AHEAD_BYTES = 4, 2**28


class Ahead(contextlib.AbstractContextManager):
  """Maps a round (counted from 0) to its cohort, and prefetches the values of its clients.

  The value of a client is its `ClientExamples`. A thread reads the values of a cohort in order,
  and then the values of the next cohort. It reads only a few clients ahead, and stops after the
  run's last round. Prefetching does not change values.
  """

  def __init__(self, cohorts: Callable[[int], cohort_lib.Cohort], rounds: int):
    self._cohorts, self._rounds = cohorts, rounds
    self._drawn = {}  # Cohorts of the current round and the next round, by round.
    self._started = {}  # Futures of values, by (round, place in the cohort).
    self._last = (-1, 0)  # (round, place) of the last value that a caller used.
    self._largest = 0  # Bytes of the largest value that a caller used.
    self._lock = threading.Lock()
    self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='tff_xc_prefetch')

  def __exit__(self, *error) -> None:
    self._thread.shutdown(cancel_futures=True)

  def __call__(self, round_number: int) -> cohort_lib.Cohort:
    """Returns the cohort of a round. Callers must ask for rounds in ascending order."""
    with self._lock:
      found = self._draw(round_number)
      self._drawn = {r: of for r, of in self._drawn.items() if r >= round_number}
      for key in [k for k in self._started if k[0] < round_number]:
        self._started.pop(key).cancel()
    values = cohort_lib.Values(
      lambda place: self._take(found, round_number, place), range(len(found.examples))
    )
    return dataclasses.replace(found, examples=values)

  def _draw(self, round_number: int) -> cohort_lib.Cohort:
    if round_number not in self._drawn:
      self._drawn[round_number] = self._cohorts(round_number)
    return self._drawn[round_number]

  def _take(self, cohort: cohort_lib.Cohort, round_number: int, place: int):
    with self._lock:
      started = self._started.pop((round_number, place), None)
    # If the thread has not begun to read this value, read the value here.
    value = cohort.examples[place] if started is None or started.cancel() else started.result()
    arrays = [t for t in tf.nest.flatten(value) if hasattr(t, 'nbytes')]
    with self._lock:
      self._largest = max(self._largest, sum(t.nbytes for t in arrays))
      self._last = max(self._last, (round_number, place))
      self._start()
    return value

  def _start(self) -> None:
    """Lets the thread read the values after the last value that a caller used."""
    most = min(_AHEAD_CLIENTS, _AHEAD_BYTES // max(self._largest, 1))
    for key in self._following(most - len(self._started)):
      read = self._draw(key[0]).examples.__getitem__
      with contextlib.suppress(RuntimeError):  # Raised if the thread pool is closed.
        self._started[key] = self._thread.submit(read, key[1])

  def _following(self, count: int) -> Iterator[tuple[int, int]]:
    """Yields (round, place) of the next values to read, at most `count`."""
    round_number, place = self._last
    while count > 0 and round_number < self._rounds:
      place += 1
      if place >= len(self._draw(round_number).examples):
        round_number, place = round_number + 1, -1
        if round_number > self._last[0] + 1:
          return  # Read only one round ahead.
      elif (round_number, place) not in self._started:
        count -= 1
        yield round_number, place
