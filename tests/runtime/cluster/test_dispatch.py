"""Rounds on several workers equal the rounds of one process, also if workers fail."""

import functools
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tests.runtime import computations
from tests.runtime.cluster import threads_crew
from tff_xc import errors
from tff_xc.round import cohort
from tff_xc.runtime import client_error, registry
from tff_xc.runtime.cluster import context, dispatch, messages, worker

_FEW, _MANY = 9, 41  # 9 clients have blocks of one client. 41 clients form eleven blocks.


def _cohort(clients, round_number=0):
  labels = np.random.default_rng(round_number).integers(0, 12, [clients, 6])
  return tiny.cohort(labels, seed=round_number)


def _after(runtime, clients, cohort_of=None, algorithm='posonly'):
  """Returns the state after some rounds, and the last metrics, as arrays."""
  cohort_of = cohort_of or (lambda r: _cohort(clients, r))
  more = {'posonly': {'max_positives': 6}, 'fedss': {'max_positives': 6, 'negatives': 3}}
  with tff.framework.get_context_stack().install(runtime):
    process = tiny.process(algorithm, **more.get(algorithm, {}))
    state, metrics = tiny.run(process, 2, cohort_of)
    weights = process.get_model_weights(state)
    return [np.asarray(x) for x in tf.nest.flatten((weights, metrics))]


@pytest.fixture(scope='module')
def expected(in_process_context):
  """Returns a function (clients, algorithm) -> the result of one process."""

  @functools.cache
  def of(clients, algorithm='posonly'):
    return _after(in_process_context, clients, algorithm=algorithm)

  return of


@pytest.fixture(scope='module')
def _together():
  """Returns a crew and its context. A worker compiles a program once for all tests."""
  made = threads_crew.ThreadsCrew()
  yield made, context.ClusterContext(made, 600)
  made.close()


@pytest.fixture
def on_workers(_together):
  """Returns a function that starts again with some workers."""
  made, runtime = _together

  def begin(workers, faults=None, timeout=60.0):
    made.reset(workers, faults)
    runtime._roster.members.clear()
    runtime._roster.timeout = timeout
    return made, runtime

  return begin


@pytest.fixture
def crew():
  made = threads_crew.ThreadsCrew()
  yield made
  made.close()


@pytest.fixture
def runtime(crew):
  return context.ClusterContext(crew, 60.0)


def _total(runtime, given):
  return computations.invoke(runtime, computations.total, given)


def _killed(*_):
  raise dispatch.LostError('it was killed')


def _assert_same(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('clients', [_FEW, pytest.param(_MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
  'algorithm',
  ['posonly', *(pytest.param(name, marks=pytest.mark.slow) for name in ('fedss', 'turbosvm'))],
)
def test_any_number_of_workers_gives_the_numbers_of_one_process(
  algorithm, clients, expected, on_workers
):
  quick = (algorithm, clients) == ('posonly', _FEW)
  for workers in (1, 2) if quick else (1, 2, 3):
    _, runtime = on_workers(workers)
    found = _after(runtime, clients, algorithm=algorithm)
    _assert_same(found, expected(clients, algorithm))


@pytest.mark.parametrize(
  ('clients', 'method'),
  [
    (_FEW, 'keys'),
    (_FEW, 'train'),
    pytest.param(_MANY, 'keys', marks=pytest.mark.slow),
    pytest.param(_MANY, 'train', marks=pytest.mark.slow),
  ],
)
def test_a_lost_workers_clients_are_done_by_others(method, clients, expected, on_workers, capsys):
  lost = []

  def faults(worker, called, block):
    if worker == 0 and called == method and block.first >= 2:
      lost.append(block.first)
      _killed()

  made, runtime = on_workers(2, faults)
  _assert_same(_after(runtime, clients), expected(clients))
  assert lost
  assert made.dismissed == [0]
  assert 'a worker on here was lost (it was killed)' in capsys.readouterr().err


def test_a_worker_that_joins_takes_part(crew, runtime):
  joined = []

  def faults(worker, called, block):
    if not joined:
      joined.append(True)
      crew.join()
    time.sleep(0.05)

  crew.reset(1, faults)
  given = [float(i) for i in range(_MANY)]
  assert _total(runtime, given) == sum(given)
  assert {worker for worker, *_ in crew.calls} == {0, 1}


def test_without_workers_it_waits_and_then_says_so(on_workers, monkeypatch):
  monkeypatch.setattr(dispatch, '_START_SECONDS', 0.3)
  _, runtime = on_workers(0, timeout=0.3)
  with pytest.raises(client_error.WorkersError, match='no worker'):
    _after(runtime, _FEW)


def test_a_client_that_fails_is_named(on_workers):
  run = computations.total_of(computations.positive)
  _, runtime = on_workers(2)
  assert computations.invoke(runtime, run, [1.0] * 9) == 9.0
  with pytest.raises(client_error.ClientError, match='not positive') as error:
    computations.invoke(runtime, run, [1.0] * 40 + [0.0])
  assert error.value.client_index == 40
  assert computations.invoke(runtime, run, [2.0] * 9) == 18.0


def test_values_at_clients_go_through_phases_and_come_back(in_process_context, on_workers):
  vector = tff.TensorType(np.float32, [1000])
  first = tff.tensorflow.computation(lambda x: x[0], vector)
  less = tff.tensorflow.computation(lambda x, mean: x - mean, [np.float32, np.float32])

  @tff.federated_computation(tff.FederatedType(vector, tff.CLIENTS))
  def run(x):
    small = tff.federated_map(first, x)
    mean = tff.federated_broadcast(tff.federated_mean(small))
    rest = tff.federated_map(less, (small, mean))
    return rest, tff.federated_sum(rest)

  given = [np.full(1000, i, np.float32) for i in range(40)]
  _, runtime = on_workers(1)
  found = []
  for each in (in_process_context, runtime):
    rest, total = computations.invoke(each, run, given)
    found.append([*rest, total])
  assert found[0] == found[1]
  assert found[0][0] == -19.5
  # The clients' values are sent once. The second phase sends only a few numbers.
  measured = runtime.metrics()
  assert 160_000 <= measured['worker_bytes_down'] < 165_000
  assert measured['workers'] == 1


@pytest.mark.slow
def test_bytes_to_workers_do_not_grow_with_the_classes(on_workers):
  """Workers receive only requested rows, and not the whole table of 12 or 1,200 rows."""
  sent = []
  for classes in (12, 1200):
    process = tiny.process('fedss', model=tiny.model(classes), max_positives=6, negatives=3)
    _, runtime = on_workers(2)
    with tff.framework.get_context_stack().install(runtime):
      tiny.run(process, 1, lambda r: _cohort(_FEW, r))
    sent.append(runtime.metrics()['worker_bytes_down'])
  # With more classes, fewer clients of a block request the same row.
  assert sent[1] <= 1.5 * sent[0]


def test_workers_read_the_values_of_which_they_have_a_copy(expected, on_workers):
  class Unread(messages.Referenced):
    def __getitem__(self, place):
      raise AssertionError('the driver reads no value')

  _, runtime = on_workers(2)
  marks = {'clients': _FEW}
  runtime.offer_data(
    lambda folder: (marks, lambda number: _cohort(_FEW, number), lambda: None), marks
  )
  found = _after(runtime, _FEW, lambda r: Unread(_cohort(_FEW, r), r))
  _assert_same(found, expected(_FEW))


def _offer(to, values, check=lambda: None):
  to.offer_data(lambda folder: ({}, lambda number: values, check), {})


def _selected():
  """Returns the sum of row K of a table 0, 1, ..., 9 for each client's key K."""
  graph = tff.tensorflow.computation
  table_type = tff.TensorType(np.float32, [10])
  row = graph(lambda table, key: table[key], [table_type, np.int32])
  add_up = graph(
    lambda slices: slices.reduce(0.0, lambda a, b: a + b), tff.SequenceType(np.float32)
  )

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def selected(key):
    keys = tff.federated_map(graph(lambda k: k[None], np.int32), key)
    table = tff.federated_eval(graph(lambda: tf.range(10.0)), tff.SERVER)
    most = tff.federated_eval(graph(lambda: 10), tff.SERVER)
    found = tff.federated_select(keys, most, table, row)
    return tff.federated_sum(tff.federated_map(add_up, found))

  return selected


def test_threads_may_invoke_at_once(crew, runtime, in_threads):
  crew.reset(2, lambda *_: time.sleep(0.01))
  given = [[float(i + 100 * j) for i in range(40)] for j in range(4)]
  _total(runtime, given[0])
  found = in_threads(runtime, lambda i: computations.total(given[i]))
  assert found == list(map(sum, given))


def test_a_late_call_of_a_round_given_up_harms_no_newer_one(crew, runtime):
  selected, late, newer = _selected(), threading.Event(), []

  def given_up(_, called, block):
    if called == 'keys' and block.first == 0:
      late.wait(20)
    if called == 'train':
      raise KeyboardInterrupt

  crew.reset(1, given_up)
  with pytest.raises(KeyboardInterrupt):
    computations.invoke(runtime, selected, [1, 2, 3])

  def release(_, called, block):
    if called == 'train' and not newer:
      newer.append(block)
      late.set()
      time.sleep(0.5)  # Now the late call continues.

  crew._faults = release
  assert computations.invoke(runtime, selected, [1, 2, 3]) == 6.0
  assert newer


def test_an_answer_that_is_taken_late_loses_no_worker(crew, runtime):
  """The driver may be slow because it reads data or was paused."""
  crew.reset(2)
  _total(runtime, [1.0] * 9)
  runtime._roster.timeout = 0.4
  take = dispatch.Dispatch._take

  def slowly(self, *ticket):
    time.sleep(0.6)
    take(self, *ticket)

  wait = crew.wait
  # Like Ray, return one result at a time.
  crew.wait = lambda tickets, seconds: wait(tickets, seconds)[:1]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dispatch.Dispatch, '_take', slowly)
    assert _total(runtime, [1.0] * 6) == 6.0
  assert not crew.dismissed


def test_the_next_block_is_read_while_one_trains(crew, runtime):
  read = threading.Event()

  def value(place):
    if place >= 4:  # The client is in the second block.
      read.set()
    return 1.0

  def trains(_, called, block):
    if block.first == 0:
      assert read.wait(10)

  crew.reset(1, trains)
  values = cohort.Values(value, range(40))
  _offer(runtime, values)
  given = messages.Referenced([2.0] * 40, 0)
  assert _total(runtime, given) == 40.0


def test_nothing_is_read_from_the_data_of_a_run_before(crew, runtime):
  crew.reset(1)
  with tff.framework.get_context_stack().install(runtime):
    crew._reads_data = True  # The workers have data that nobody opened yet.
    given = registry.referenced([1.0] * 9, 0)
    assert _total(runtime, given) == 9.0
    _offer(registry, [7.0] * 9)
    given = registry.referenced([1.0] * 9, 0)
    assert _total(runtime, given) == 63.0
    registry.offer_data(None, {})
    given = registry.referenced([1.0] * 9, 0)
    assert _total(runtime, given) == 9.0


def test_data_of_a_worker_that_change_end_the_run(crew, runtime):
  changed = []

  def check():
    if changed:
      raise errors.InputError('a.png has changed')

  crew.reset(2)
  _offer(runtime, [2.0] * 40, check)
  given = messages.Referenced([1.0] * 40, 0)
  assert _total(runtime, given) == 80.0
  changed.append(True)
  with pytest.raises(errors.InputError) as error:
    _total(runtime, given)
  assert 'a.png' in str(error.value)
  # Otherwise, the run would save the rounds since the last checkpoint.
  assert not isinstance(error.value, client_error.WorkersError)
  # Values that the driver sends do not come from the worker's disk.
  assert _total(runtime, [1.0] * 40) == 40.0


def test_lost_workers_are_counted_and_others_get_nothing(crew, runtime):
  crew.reset(3, lambda place, *_: place >= 2 or _killed())
  assert _total(runtime, [1.0] * 9) == 9.0
  assert sorted(crew.dismissed) == [0, 1]
  assert runtime.metrics()['workers_lost'] == 2.0
  assert _total(runtime, [1.0] * 9) == 9.0
  assert runtime.metrics()['workers_lost'] == 0.0
  # A worker that is not ready gets no clients.
  crew.reset(2)
  _total(runtime, [1.0] * 9)
  crew.calls.clear()
  workers = crew.workers
  crew.workers = lambda: dict(list(workers().items())[1:])
  assert _total(runtime, [1.0] * 9) == 9.0
  assert {place for place, *_ in crew.calls} == {1}


def test_a_client_with_which_three_workers_are_lost_is_named(crew, runtime):
  def lost(_, called, block):
    if called == 'train' and block.first == 3:
      _killed()

  crew.reset(4, lost)
  with pytest.raises(client_error.ClientError, match=r'client 3 .*the last: it was killed.*memory'):
    _total(runtime, [1.0] * 20)


@tff.tensorflow.computation(np.float32)
def _slowly(x):
  end = tf.timestamp() + 0.25
  wait = tf.while_loop(lambda i: tf.timestamp() < end, lambda i: i + 1, [0])
  with tf.control_dependencies(wait):
    return x + 0.0


@pytest.mark.parametrize('trains_slowly', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_slow_worker_whose_clients_go_on_is_kept(trains_slowly, crew, runtime, monkeypatch):
  """A block takes longer than a worker may work without progress."""
  computation = computations.total
  if trains_slowly:
    computation = computations.total_of(_slowly)

  def value(place):
    time.sleep(0.0 if trains_slowly else 0.25)
    return 1.0

  crew.reset(1)
  values = cohort.Values(value, range(6))
  runtime.offer_data(lambda folder: ({}, lambda r: values, lambda: None), {})
  assert computations.invoke(runtime, computation, [1.0]) == 1.0
  monkeypatch.setattr(dispatch, '_POLL_SECONDS', 0.1)
  # After the worker is lost, the round ends soon.
  monkeypatch.setattr(dispatch, '_START_SECONDS', 1.0)
  monkeypatch.setattr(dispatch.phases_lib, 'block_size', lambda clients: 5)
  runtime._roster.timeout = 0.75
  given = messages.Referenced([2.0] * 6, 0)
  assert computations.invoke(runtime, computation, given) == 6.0
  assert not crew.dismissed


@pytest.mark.parametrize('answers', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_worker_without_progress_is_lost_and_the_flag_is_named(
  answers, crew, runtime, monkeypatch, capsys
):
  end = threading.Event()

  def hangs(worker, method, block):
    end.wait(60)

  def asked(self):
    if not answers:
      end.wait(60)
    return 2.0

  monkeypatch.setattr(worker.Worker, 'idle_seconds', asked)
  monkeypatch.setattr(dispatch, '_ANSWER_SECONDS', 0.2)
  crew.reset(3)
  _total(runtime, [])
  crew._faults = hangs
  runtime._roster.timeout = 0.5
  with pytest.raises(client_error.ClientError) as error:
    _total(runtime, [1.0])
  end.set()
  assert '--worker_timeout=0.5' in error.value.reason
  assert '--worker_timeout=0.5' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('workers', 'keys', 'client', 'last'),
  [
    (2, [1, 10, 2], 1, 1),
    (1, [1, 2, 3, 4, 5, 10, *[1] * 34], 4, 7),  # One client is in a block of many.
  ],
)
def test_a_key_out_of_range_is_a_clients_error(workers, keys, client, last, crew, runtime):
  crew.reset(workers)
  selected = _selected()
  for_all = [9] * len(keys)
  assert computations.invoke(runtime, selected, for_all) == sum(for_all)
  with pytest.raises(client_error.ClientError, match='outside') as error:
    computations.invoke(runtime, selected, keys)
  assert (error.value.client_index, error.value.last_index) == (client, last)


@pytest.mark.parametrize('read_only', [False, True])
@pytest.mark.parametrize('borrowed', [False, True])
def test_only_what_is_borrowed_and_never_written_is_shared(borrowed, read_only):
  whole = np.arange(1040, dtype=np.float32)
  # The array is aligned as TensorFlow needs it, like arrays from Ray.
  first = -whole.ctypes.data // whole.itemsize % 16
  given = whole[first : first + 1024]
  given.flags.writeable = not read_only
  tensor = messages.unpack({'x': [given]}, {'x': tff.TensorType(np.float32, [1024])}, borrowed)['x']
  np.testing.assert_array_equal(tensor, given)
  assert np.shares_memory(np.asarray(tensor), given) == (borrowed and read_only)


@pytest.mark.parametrize(
  'value', [np.float32(3.0), np.array([b'ab', b'c'], object), np.zeros([0, 2])]
)
def test_any_leaf_can_be_borrowed(value):
  array = np.asarray(value)
  array.flags.writeable = False
  (tensor,) = messages.tensors([array], borrowed=True)
  np.testing.assert_array_equal(tensor.numpy(), value)
  assert tensor.dtype == tf.as_dtype(array.dtype)
