"""Clients' values that a sequence makes on the runtime's demand."""

import collections.abc
import os
import signal
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.in_process import context as context_lib

_CLIENTS, _THREADS = 40, 2


class _Lazy(collections.abc.Sequence):
  """A sequence that makes new values and counts those still referenced."""

  def __init__(self, values, fail_at=None):
    self._values, self._fail_at = values, fail_at
    self._lock, self._held = threading.Lock(), 0
    self.asked, self.most_held, self.threads = [], 0, set()

  def __len__(self):
    return len(self._values)

  def __getitem__(self, index):
    if index == self._fail_at:
      raise errors.InputError(f'file {index} is damaged')
    value = self._values[index]
    # A tensor, since the runtime copies arrays and passes tensors on.
    value = value._replace(x=tf.constant(value.x))
    weakref.finalize(value.x, self._count, -1)
    self._count(1)
    self.asked.append(index)
    self.threads.add(threading.current_thread().name)
    return value

  def _count(self, change):
    with self._lock:
      self._held += change
      self.most_held = max(self.most_held, self._held)


def _values(count: int = _CLIENTS) -> list:
  return tiny.cohort([[i % 12] * (1 + i % 3) for i in range(count)])


def _readers() -> list:
  names = [thread.name for thread in threading.enumerate()]
  return [name for name in names if name.startswith('tff_xc_reader')]


@pytest.fixture(scope='module')
def process():
  return tiny.process('fedss', max_positives=4, negatives=3)


@pytest.fixture(scope='module')
def context_of_two():
  """A runtime with two client threads; it compiles the process once."""
  return context_lib.create_context(client_threads=_THREADS)


@pytest.fixture
def two_threads(context_of_two, tff_worker):
  """Installs the runtime with two client threads for one test."""
  tff.framework.set_default_context(context_of_two)
  yield context_of_two
  tff.framework.set_default_context(tff_worker)


@pytest.mark.usefixtures('two_threads')
def test_few_values_are_held_at_a_time_and_each_is_read_once(process):
  lazy = _Lazy(_values())
  state = process.initialize()
  output = process.next(state, lazy)
  assert sorted(lazy.asked) == list(range(_CLIENTS))
  assert 1 < lazy.most_held <= 2 * _THREADS + 1
  assert all(name.startswith('tff_xc_') for name in lazy.threads)
  assert not _readers()
  expected = process.next(state, _values())
  tiny.assert_same_weights(output.state, expected.state, tolerance=0)


def test_the_worker_takes_them_as_a_list(tff_worker, process):
  lazy = _Lazy(_values(3))
  state = process.initialize()
  output = process.next(state, lazy)
  assert lazy.asked == [0, 1, 2]
  expected = process.next(state, _values(3))
  tiny.assert_same_weights(output.state, expected.state, tolerance=0)


@pytest.mark.usefixtures('two_threads')
@pytest.mark.parametrize('fail_at', [0, 1, 13, 39])
def test_an_error_of_reading_is_raised_as_it_is(process, fail_at):
  with pytest.raises(errors.InputError, match=f'^file {fail_at} is damaged$'):
    process.next(process.initialize(), _Lazy(_values(), fail_at))
  assert not _readers()


@pytest.mark.usefixtures('two_threads')
def test_a_client_that_fails_leaves_no_thread():
  @tff.tensorflow.computation(np.float32)
  def picky(x):
    fits = tf.debugging.Assert(tf.not_equal(x, 5), ['five', x])
    with tf.control_dependencies([fits]):
      return tf.identity(x)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def run(x):
    return tff.federated_sum(tff.federated_map(picky, x))

  class Numbers(_Lazy):
    def __getitem__(self, index):
      return float(index)

  with pytest.raises(client_error.ClientError, match='client 5'):
    run(Numbers(range(_CLIENTS)))
  assert not _readers()


@pytest.mark.usefixtures('two_threads')
def test_an_interrupt_leaves_no_thread(process):
  class Interrupting(_Lazy):
    def __getitem__(self, index):
      if index == 7:
        os.kill(os.getpid(), signal.SIGINT)
      return super().__getitem__(index)

  state = process.initialize()
  lazy = Interrupting(_values())
  with pytest.raises(KeyboardInterrupt):
    process.next(state, lazy)
  assert not _readers()
  assert len(lazy.asked) < _CLIENTS
  process.next(state, _Lazy(_values()))


@pytest.mark.usefixtures('two_threads')
def test_a_value_of_another_type_names_its_client(process):
  values = _values(3)
  values[2] = values[2]._replace(y=np.array([1.5]))
  with pytest.raises(TypeError, match=r'^client 2 .*int32.*float64'):
    process.next(process.initialize(), _Lazy(values))
