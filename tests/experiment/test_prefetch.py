"""Reading ahead: the same values, no more than the bound, errors where they belong."""

import threading
import time

import numpy as np
import pytest

from tff_xc import errors
from tff_xc.experiment import cohort as cohort_lib

CLIENTS = 6


class Source:
  """Cohorts of `CLIENTS` values, which notes what is read, and by whom."""

  def __init__(self, size=10, bad=None):
    self.read, self.threads, self._size, self._bad = [], set(), size, bad
    self._changed = threading.Condition()

  def cohort(self, round_number):
    def value(place):
      with self._changed:
        self.read.append((round_number, place))
        self.threads.add(threading.current_thread().name.rpartition('_')[0])
        self._changed.notify_all()
      if (round_number, place) == self._bad:
        raise errors.InputError('a.jpg is damaged')
      return np.full(self._size, 100 * round_number + place, np.uint8)

    values = cohort_lib.Values(value, range(CLIENTS))
    return cohort_lib.Cohort(values, round_number, ('a',))

  def wait(self, count):
    """Waits until so many values are read, and a moment longer."""
    with self._changed:
      assert self._changed.wait_for(lambda: len(self.read) >= count, 10)
    time.sleep(0.02)
    assert len(self.read) == count


def test_values_are_those_of_the_cohort_and_the_next_round_is_read():
  source = Source()
  with cohort_lib.ahead(source.cohort, 3) as cohorts:
    for number in range(3):
      cohort = cohorts(number)
      assert (cohort.skipped, cohort.client_ids) == (number, ('a',))
      assert len(cohort.examples) == CLIENTS
      for place in range(CLIENTS):
        value = cohort.examples[place]
        assert (value == 100 * number + place).all()
        left = 3 * CLIENTS - (number * CLIENTS + place + 1)
        source.wait(3 * CLIENTS - max(left - cohort_lib._AHEAD_CLIENTS, 0))
  assert sorted(source.read) == sorted(set(source.read))  # Each once.
  assert 'tff_xc_prefetch' in source.threads
  assert not any(
    t.name.startswith('tff_xc_prefetch') for t in threading.enumerate()
  )


def test_the_bound_in_bytes_holds(monkeypatch):
  monkeypatch.setattr(cohort_lib, '_AHEAD_BYTES', 250)
  source = Source(size=100)
  with cohort_lib.ahead(source.cohort, 3) as cohorts:
    cohorts(0).examples[0]
    source.wait(3)
  monkeypatch.setattr(cohort_lib, '_AHEAD_BYTES', 99)
  source = Source(size=100)
  with cohort_lib.ahead(source.cohort, 3) as cohorts:
    cohorts(0).examples[0]
    source.wait(1)


def test_any_order_and_a_second_time():
  source = Source()
  with cohort_lib.ahead(source.cohort, 1) as cohorts:
    examples = cohorts(0).examples
    for place in (3, 1, 5, 1, 0, 2, 4):
      assert examples[place][0] == place


def test_an_error_is_raised_where_the_value_is_used():
  source = Source(bad=(1, 1))
  with cohort_lib.ahead(source.cohort, 3) as cohorts:
    for place in range(CLIENTS):
      cohorts(0).examples[place]
    source.wait(CLIENTS + cohort_lib._AHEAD_CLIENTS)
    examples = cohorts(1).examples
    assert examples[0][0] == 100
    with pytest.raises(errors.InputError, match='is damaged'):
      examples[1]
