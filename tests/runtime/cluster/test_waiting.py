"""Waits for what may never answer."""

import threading
import time
import weakref

import numpy as np
import pytest

from tff_xc.runtime.cluster import waiting


class SilentError(Exception):
  """Nobody answers."""


def silent():
  raise SilentError


@pytest.fixture(name='never')
def _never():
  """A call that does not end before the test does."""
  end = threading.Event()
  yield end.wait
  end.set()


def fail():
  raise KeyError('a')


def test_a_call_returns_its_value_or_raises_its_error():
  assert waiting.answered(lambda: 7, silent) == 7
  with pytest.raises(KeyError, match='a'):
    waiting.answered(fail, silent)


def test_a_slow_call_is_waited_for_while_the_others_live(monkeypatch):
  monkeypatch.setattr(waiting, '_LOOK_SECONDS', 0.05)
  looks = []

  def slow():
    time.sleep(0.2)
    return 7

  assert waiting.answered(slow, lambda: looks.append(1)) == 7
  assert looks


def test_a_call_is_given_up_when_nobody_answers(never, monkeypatch):
  monkeypatch.setattr(waiting, '_LOOK_SECONDS', 0.01)
  with pytest.raises(SilentError):
    waiting.answered(never, silent)


def test_calls_share_a_thread_unless_one_is_left_behind(never, monkeypatch):
  monkeypatch.setattr(waiting, '_LOOK_SECONDS', 0.01)
  ask = lambda: waiting.answered(threading.get_ident, silent)
  before = ask()
  assert {ask() for _ in range(5)} == {before}
  with pytest.raises(SilentError):
    waiting.answered(never, silent)
  after = ask()
  assert after != before
  assert {ask() for _ in range(5)} == {after}


def test_a_value_is_held_no_longer_than_by_the_caller():
  value = waiting.answered(lambda: np.zeros(3), silent)
  held = weakref.ref(value)
  del value
  deadline = time.monotonic() + 5
  while held() is not None and time.monotonic() < deadline:
    time.sleep(0.01)
  assert held() is None


def test_whether_a_call_ends_in_time(never):
  assert waiting.ends(lambda: None, 10.0)
  assert not waiting.ends(never, 0.01)
  with pytest.raises(KeyError, match='a'):
    waiting.ends(fail, 10.0)
