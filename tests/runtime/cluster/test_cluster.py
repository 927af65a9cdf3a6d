"""Rounds on several workers are the rounds of one process, whatever happens."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tests.runtime.cluster import threads_crew
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import context
from tff_xc.runtime.cluster import crew
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.cluster import roster

_FEW, _MANY = 9, 41  # Alone in their blocks; eleven blocks.


def _cohort(clients, round_number=0):
  labels = np.random.default_rng(round_number).integers(0, 12, [clients, 6])
  return tiny.cohort(labels, seed=round_number)


def _process(algorithm):
  more = {}
  if algorithm == 'fedss':
    more = {'max_positives': 6, 'negatives': 3}
  return tiny.process(algorithm, **more)


def _after(runtime, algorithm, clients, rounds=2):
  """Returns the state after some rounds, and the last metrics, as arrays."""
  with tff.framework.get_context_stack().install(runtime):
    process = _process(algorithm)
    state, metrics = tiny.run(process, rounds, lambda r: _cohort(clients, r))
    weights = process.get_model_weights(state)
    return [np.asarray(x) for x in tf.nest.flatten((weights, metrics))]


@pytest.fixture(scope='module')
def expected(in_process_context):
  """Returns (algorithm, clients) -> what one process computes."""
  found = {}

  def of(algorithm, clients):
    if (algorithm, clients) not in found:
      found[algorithm, clients] = _after(in_process_context, algorithm, clients)
    return found[algorithm, clients]

  return of


@pytest.fixture(scope='module')
def _together():
  """Returns a crew and its context: a worker compiles a program once."""
  made = threads_crew.ThreadsCrew()
  yield made, context.ClusterContext(made)
  made.close()


@pytest.fixture
def on_workers(_together):
  """Returns a function that begins anew with some workers."""
  made, runtime = _together

  def begin(workers, faults=None, timeout=60.0):
    made.reset(workers, faults)
    runtime._roster.members.clear()
    runtime._roster.timeout = timeout
    return made, runtime

  return begin


def _assert_same(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('clients', [_FEW, _MANY])
@pytest.mark.parametrize(
  'algorithm', ['fedss', pytest.param('turbosvm', marks=pytest.mark.slow)]
)
def test_any_number_of_workers_gives_the_numbers_of_one_process(
  algorithm, clients, expected, on_workers
):
  for workers in (1, 2, 3):
    _, runtime = on_workers(workers)
    _assert_same(
      _after(runtime, algorithm, clients), expected(algorithm, clients)
    )


@pytest.mark.parametrize('method', ['keys', 'train'])
@pytest.mark.parametrize('clients', [_FEW, _MANY])
def test_a_lost_workers_clients_are_done_by_others(
  method, clients, expected, on_workers, capsys
):
  lost = []

  def faults(worker, called, block):
    if worker == 0 and called == method and block.first >= 2:
      lost.append(block.first)
      raise crew.LostError('it was killed')

  made, runtime = on_workers(2, faults)
  _assert_same(_after(runtime, 'fedss', clients), expected('fedss', clients))
  assert lost
  assert made.dismissed == [0]
  assert 'a worker on here was lost (it was killed)' in capsys.readouterr().err


def test_a_worker_that_hangs_is_given_up(expected, on_workers):
  hangs = threading.Event()

  def faults(worker, called, block):
    if worker == 1 and called == 'train':
      hangs.wait(20)

  made, runtime = on_workers(2, faults, timeout=6.0)
  _assert_same(_after(runtime, 'fedss', _FEW), expected('fedss', _FEW))
  hangs.set()
  assert made.dismissed == [1]


def test_a_worker_that_joins_takes_part(expected, on_workers):
  joined = []

  def faults(worker, called, block):
    if not joined:
      joined.append(True)
      made.join()
    time.sleep(0.05)

  made, runtime = on_workers(1, faults)
  _assert_same(_after(runtime, 'fedss', _MANY), expected('fedss', _MANY))
  assert {worker for worker, *_ in made.calls} == {0, 1}


def test_without_workers_it_waits_and_then_says_so(on_workers, monkeypatch):
  monkeypatch.setattr(crew, '_START_SECONDS', 0.15)
  _, runtime = on_workers(0, timeout=0.3)
  with pytest.raises(client_error.WorkersError, match=r'timeout=0\.3 lets'):
    _after(runtime, 'fedss', _FEW)


def test_clients_that_end_worker_after_worker_are_named(
  on_workers, monkeypatch
):
  # Once all are lost, it waits no longer than this.
  monkeypatch.setattr(crew, 'start_seconds', lambda timeout: 2.0)

  def faults(worker, called, block):
    if called == 'train' and block.first == 4:
      raise crew.LostError('out of memory')

  _, runtime = on_workers(4, faults)
  with pytest.raises(
    client_error.ClientError, match=r'3 workers.*want of'
  ) as error:
    _after(runtime, 'fedss', _FEW)
  assert error.value.client_index == 4


def test_a_client_that_fails_is_named(on_workers):
  @tff.tensorflow.computation(np.float32)
  def checked(x):
    with tf.control_dependencies([tf.debugging.Assert(x < 7.0, ['too large'])]):
      return x + 0.0

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def run(x):
    return tff.federated_sum(tff.federated_map(checked, x))

  _, runtime = on_workers(2)
  with tff.framework.get_context_stack().install(runtime):
    assert run([1.0] * 9) == 9.0
    with pytest.raises(client_error.ClientError, match='too large') as error:
      run([1.0] * 40 + [8.0])
    assert error.value.client_index == 40
    assert run([2.0] * 9) == 18.0


def test_values_at_clients_go_through_phases_and_come_back(
  in_process_context, on_workers
):
  @tff.tensorflow.computation(np.float32, np.float32)
  def less(x, mean):
    return x - mean

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def run(x):
    mean = tff.federated_broadcast(tff.federated_mean(x))
    rest = tff.federated_map(less, (x, mean))
    return rest, tff.federated_sum(rest)

  given = [float(i) for i in range(40)]
  _, runtime = on_workers(2)
  found = []
  for each in (in_process_context, runtime):
    with tff.framework.get_context_stack().install(each):
      rest, total = run(given)
      found.append([*rest, total])
  assert found[0] == found[1]
  assert found[0][0] == -19.5


def test_bytes_to_workers_do_not_grow_with_the_classes(on_workers):
  """Only the requested rows go there; the whole table of 12 or 1,200 does not."""
  sent = []
  for classes in (12, 1200):
    process = tiny.process(
      'fedss', model=tiny.model(classes), max_positives=6, negatives=3
    )
    _, runtime = on_workers(2)
    with tff.framework.get_context_stack().install(runtime):
      tiny.run(process, 1, lambda r: _cohort(_FEW, r))
    sent.append(runtime.measured.bytes_down)
  # With more classes, fewer clients of a block ask for the same row.
  assert sent[1] <= 1.5 * sent[0]


def test_workers_read_the_values_of_which_they_have_a_copy(
  expected, on_workers
):
  class Unread(messages.Referenced):
    def __getitem__(self, place):
      raise AssertionError('the driver reads no value')

  _, runtime = on_workers(2)
  marks = {'clients': _FEW}
  runtime.offer_data(
    lambda folder: (marks, lambda number: _cohort(_FEW, number), lambda: None),
    marks,
  )
  with tff.framework.get_context_stack().install(runtime):
    process = _process('fedss')
    state, metrics = tiny.run(
      process, 2, lambda number: Unread(_cohort(_FEW, number), number)
    )
    weights = process.get_model_weights(state)
    found = [np.asarray(x) for x in tf.nest.flatten((weights, metrics))]
  _assert_same(found, expected('fedss', _FEW))


def test_a_round_given_up_leaves_nothing_behind(expected, on_workers):
  """After an interrupt, the same context runs the next round right."""
  interrupted = []

  def faults(worker, called, block):
    if called == 'train' and not interrupted:
      interrupted.append(True)
      raise KeyboardInterrupt

  _, runtime = on_workers(2, faults)
  with pytest.raises(KeyboardInterrupt):
    _after(runtime, 'fedss', _FEW)
  _assert_same(_after(runtime, 'fedss', _FEW), expected('fedss', _FEW))


def test_what_is_measured_begins_anew_in_each_round(on_workers):
  _, runtime = on_workers(2)
  with tff.framework.get_context_stack().install(runtime):
    process = _process('fedss')
    bytes_of = []
    for _ in range(2):
      tiny.run(process, 1, _cohort_of_few)
      bytes_of.append(runtime.measured.bytes_down)
  assert bytes_of[0] == bytes_of[1] > 0
  assert isinstance(runtime.measured, roster.Measured)


def _cohort_of_few(round_number):
  return _cohort(_FEW, round_number)
