"""Corners of handing blocks to workers: what is late, lost early or given up."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime.cluster import invoking
from tff_xc import errors
from tff_xc.experiment import cohort
from tff_xc.runtime import client_error
from tff_xc.runtime import registry
from tff_xc.runtime.cluster import crew as crew_lib
from tff_xc.runtime.cluster import dispatch
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.cluster import worker


def _offer(to, values, check=lambda: None):
  to.offer_data(lambda folder: ({}, lambda number: values, check), {})


@tff.tensorflow.computation
def _ten():
  return 10


@tff.tensorflow.computation(np.int32)
def _one_key(key):
  return tf.reshape(key, [1])


@tff.tensorflow.computation(tff.SequenceType(np.float32))
def _sum_of(slices):
  return slices.reduce(0.0, lambda a, b: a + b)


def _selected():
  rows = tff.tensorflow.computation(lambda: tf.range(10.0))
  row = tff.tensorflow.computation(
    lambda table, key: tf.gather(table, key),
    tff.types.to_type((tff.TensorType(np.float32, [10]), np.int32)),
  )

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def selected(key):
    keys = tff.federated_map(_one_key, key)
    table = tff.federated_eval(rows, tff.SERVER)
    most = tff.federated_eval(_ten, tff.SERVER)
    found = tff.federated_select(keys, most, table, row)
    return tff.federated_sum(tff.federated_map(_sum_of, found))

  return selected


def test_threads_may_invoke_at_once(crew, runtime):
  crew.reset(2, lambda *_: time.sleep(0.01))
  given = [[float(i + 100 * j) for i in range(40)] for j in range(4)]
  invoking.invoke(runtime, invoking.total, given[0])
  found = {}

  def invoke(place):
    found[place] = float(invoking.invoke(runtime, invoking.total, given[place]))

  threads = [
    threading.Thread(target=invoke, args=[i], daemon=True) for i in range(4)
  ]
  for thread in threads:
    thread.start()
  deadline = time.monotonic() + 20
  for thread in threads:
    thread.join(max(deadline - time.monotonic(), 0))
  assert found == {i: sum(x) for i, x in enumerate(given)}


def test_a_late_call_of_a_round_given_up_harms_no_newer_one(crew, runtime):
  selected, late, newer = _selected(), threading.Event(), []

  def given_up(_, called, block):
    if called == 'keys' and block.first == 0:
      late.wait(20)
    if called == 'train':
      raise KeyboardInterrupt

  crew.reset(1, given_up)
  with pytest.raises(KeyboardInterrupt):
    invoking.invoke(runtime, selected, [1, 2, 3])

  def release(_, called, block):
    if called == 'train' and not newer:
      newer.append(block)
      late.set()
      time.sleep(0.5)  # Now the late call goes on.

  crew._faults = release
  assert invoking.invoke(runtime, selected, [1, 2, 3]) == 6.0
  assert newer


def test_a_key_out_of_range_is_a_clients_error(crew, runtime):
  crew.reset(2)
  selected = _selected()
  assert invoking.invoke(runtime, selected, [9] * 3) == 27.0
  with pytest.raises(client_error.ClientError, match='outside') as error:
    invoking.invoke(runtime, selected, [1, 10, 2])
  assert error.value.client_index == 1


def test_the_client_of_a_share_whose_key_is_out_of_range_is_found(
  crew, runtime
):
  crew.reset(1)
  selected = _selected()
  assert invoking.invoke(runtime, selected, [1] * 32) == 32.0
  crew.calls.clear()
  with pytest.raises(
    client_error.ClientError, match=r'^client 3 \(from 0\) .* outside'
  ):
    invoking.invoke(runtime, selected, [1, 2, 3, 10, *[1] * 28])
  assert (0, 'keys', 3) in crew.calls


def test_the_clients_of_a_block_with_a_key_out_of_range_are_named(
  crew, runtime
):
  crew.reset(1)
  with pytest.raises(
    client_error.ClientError,
    match=r'^one of the clients 4 to 7 \(from 0\) of the 40 in the cohort failed',
  ) as error:
    invoking.invoke(runtime, _selected(), [1, 2, 3, 4, 5, 10, *[1] * 34])
  assert (error.value.client_index, error.value.last_index) == (4, 7)


def test_an_answer_that_is_taken_late_loses_no_worker(crew, runtime):
  """The driver may be slow: it reads data, or has been stopped."""
  crew.reset(2)
  invoking.invoke(runtime, invoking.total, [1.0] * 9)
  runtime._roster.timeout = 0.4
  take = dispatch.Dispatch._take

  def slowly(self, *ticket):
    time.sleep(0.6)
    take(self, *ticket)

  wait = crew.wait
  crew.wait = lambda tickets, seconds: wait(tickets, seconds)[:1]  # As Ray.
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dispatch.Dispatch, '_take', slowly)
    assert invoking.invoke(runtime, invoking.total, [1.0] * 6) == 6.0
  assert not crew.dismissed


def test_a_program_that_does_not_load_harms_no_other(
  crew, runtime, monkeypatch
):
  crew.reset(1)
  selected = _selected()
  load = worker.Worker.load

  def fails(*_):
    raise ValueError('no')

  monkeypatch.setattr(worker.Worker, 'load', fails)
  with pytest.raises(ValueError, match='no'):
    invoking.invoke(runtime, invoking.total, [1.0])
  monkeypatch.setattr(worker.Worker, 'load', load)
  assert invoking.invoke(runtime, selected, [1]) == 1.0
  assert invoking.invoke(runtime, invoking.total, [1.0]) == 1.0


def test_workers_that_are_lost_before_they_begin_end_the_round(
  crew, runtime, monkeypatch
):
  monkeypatch.setattr(dispatch, '_MOST_LOST_EARLY', 4)
  crew.reset(1)
  workers = crew.workers

  def again():
    if not workers():
      assert len(crew.dismissed) < 9
      crew.join()
    return workers()

  def lost(*_):
    raise crew_lib.LostError('it was killed')

  monkeypatch.setattr(crew, 'workers', again)
  monkeypatch.setattr(worker.Worker, 'load', lost)
  with pytest.raises(
    client_error.WorkersError,
    match=r'4 workers.*it was kill.*--worker_timeout=60 be',
  ):
    invoking.invoke(runtime, invoking.total, [1.0])
  assert len(crew.dismissed) == 4


def test_the_next_block_is_read_while_one_trains(crew, runtime):
  read = threading.Event()

  def value(place):
    if place >= 4:  # Of the second block.
      read.set()
    return 1.0

  def trains(_, called, block):
    if block.first == 0:
      assert read.wait(10)

  crew.reset(1, trains)
  values = cohort.Values(value, range(40))
  _offer(runtime, values)
  given = messages.Referenced([2.0] * 40, 0)
  assert invoking.invoke(runtime, invoking.total, given) == 40.0


def test_nothing_is_read_from_the_data_of_a_run_before(crew, runtime):
  crew.reset(1)
  with tff.framework.get_context_stack().install(runtime):
    crew._reads_data = True  # Its workers have data, and nobody opened them.
    given = registry.referenced([1.0] * 9, 0)
    assert invoking.invoke(runtime, invoking.total, given) == 9.0
    _offer(registry, [7.0] * 9)
    given = registry.referenced([1.0] * 9, 0)
    assert invoking.invoke(runtime, invoking.total, given) == 63.0
    registry.offer_data(None, {})
    given = registry.referenced([1.0] * 9, 0)
    assert invoking.invoke(runtime, invoking.total, given) == 9.0


def test_data_of_a_worker_that_change_end_the_run(crew, runtime):
  changed = []

  def check():
    if changed:
      raise errors.InputError('a.png has changed')

  crew.reset(2)
  _offer(runtime, [2.0] * 40, check)
  given = messages.Referenced([1.0] * 40, 0)
  assert invoking.invoke(runtime, invoking.total, given) == 80.0
  changed.append(True)
  with pytest.raises(errors.InputError) as error:
    invoking.invoke(runtime, invoking.total, given)
  assert str(error.value) == 'a worker on here: a.png has changed'
  # After that the rounds since the last checkpoint would be saved.
  assert not isinstance(error.value, client_error.WorkersError)
  # What the driver sends is not of the worker's disk.
  assert invoking.invoke(runtime, invoking.total, [1.0] * 40) == 40.0


def test_a_change_explains_what_a_worker_cannot_read(crew, runtime):
  def fails(*_):
    raise errors.InputError('a.png cannot be read')

  crew.reset(1)
  given = messages.Referenced([1.0] * 4, 0)
  _offer(runtime, cohort.Values(fails, range(4)))
  with pytest.raises(errors.InputError, match='cannot be read'):
    invoking.invoke(runtime, invoking.total, given)
  _offer(runtime, cohort.Values(fails, range(4)), fails)
  with pytest.raises(errors.InputError, match='a worker on here: a'):
    invoking.invoke(runtime, invoking.total, given)


def test_lost_workers_are_counted(crew, runtime):
  def lost(place, *_):
    if place < 2:
      raise crew_lib.LostError('it was killed')

  crew.reset(3, lost)
  assert invoking.invoke(runtime, invoking.total, [1.0] * 9) == 9.0
  assert sorted(crew.dismissed) == [0, 1]
  assert runtime.metrics()['workers_lost'] == 2.0
  assert invoking.invoke(runtime, invoking.total, [1.0] * 9) == 9.0
  assert runtime.metrics()['workers_lost'] == 0.0


def test_a_worker_that_is_not_ready_is_given_nothing(crew, runtime):
  crew.reset(2)
  invoking.invoke(runtime, invoking.total, [1.0] * 9)
  crew.calls.clear()
  workers = crew.workers
  crew.workers = lambda: dict(list(workers().items())[1:])
  assert invoking.invoke(runtime, invoking.total, [1.0] * 9) == 9.0
  assert {place for place, *_ in crew.calls} == {1}


def test_what_is_measured_is_of_all_phases(crew, runtime):
  vector = tff.TensorType(np.float32, [1000])

  @tff.tensorflow.computation(vector)
  def first(x):
    return x[0]

  @tff.tensorflow.computation(np.float32, np.float32)
  def less(x, mean):
    return x - mean

  @tff.federated_computation(tff.FederatedType(vector, tff.CLIENTS))
  def run(x):
    small = tff.federated_map(first, x)
    mean = tff.federated_broadcast(tff.federated_mean(small))
    return tff.federated_sum(tff.federated_map(less, (small, mean)))

  crew.reset(1)
  given = [np.full(1000, i, np.float32) for i in range(5)]
  assert invoking.invoke(runtime, run, given) == 0.0
  # Their values go there once; the second phase sends a few numbers.
  assert 20_000 <= runtime.measured.bytes_down < 21_000
  assert runtime.measured.workers == 1
