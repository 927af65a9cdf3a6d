"""How many clients a worker gets at a time."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime.cluster import invoking
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import crew as crew_lib
from tff_xc.runtime.cluster import shares


def _taken(waiting, threads, most):
  found = []
  while waiting:
    share = waiting.next(threads, most)
    waiting.take(share)
    found.append(share)
  return found


@pytest.mark.parametrize('clients', [0, 1, 2, 31, 32, 33, 40, 500])
@pytest.mark.parametrize(('threads', 'most'), [(1, 8), (3, 8), (64, 8), (2, 1)])
def test_all_clients_are_taken_once_and_in_order(clients, threads, most):
  found = _taken(shares.Shares(clients), threads, most)
  assert [i for share in found for i in share] == list(range(clients))
  if clients <= 32:
    sizes = list(map(len, found))
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) <= most


def test_a_share_that_is_given_back_waits_one_by_one_and_first():
  waiting = shares.Shares(20)
  first = waiting.next(1, 8)
  waiting.take(first)
  waiting.take(waiting.next(1, 8))
  assert waiting.give_back([first]) == [range(i, i + 1) for i in first]
  assert waiting.next(1, 8) == range(1)
  assert waiting.times_lost(range(1)) == 1


def test_a_block_is_not_cut():
  waiting = shares.Shares(40)
  block = waiting.next(1, 8)
  waiting.take(block)
  assert not waiting.split(block)
  assert waiting.give_back([block]) == [block]
  assert waiting.next(1, 8) == block


def test_workers_get_fewer_clients_towards_the_end(crew, runtime):
  crew.reset(2)
  # Afterwards the size of their results is known.
  invoking.invoke(runtime, invoking.total, [1.0] * 2)
  crew.calls.clear()
  given = [float(i) for i in range(20)]
  assert invoking.invoke(runtime, invoking.total, given) == 190.0
  first = sorted(first for _, _, first in crew.calls)
  assert first == [0, 3, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19]


def test_clients_with_large_results_go_to_workers_one_by_one(crew, runtime):
  large = tff.TensorType(np.float32, [2**18 + 1])  # More than a MiB.

  @tff.tensorflow.computation(np.float32)
  def filled(x):
    return tf.fill(large.shape, x)

  @tff.federated_computation(invoking.FLOATS)
  def total(x):
    return tff.federated_sum(tff.federated_map(filled, x))

  crew.reset(1)
  for _ in range(2):
    crew.calls.clear()
    assert invoking.invoke(runtime, total, [1.0] * 9)[0] == 9.0
    assert len(crew.calls) - (crew.calls[0][1] == 'load') == 9


def test_clients_of_a_lost_worker_are_repeated_one_by_one(crew, runtime):
  def lost(_, called, block):
    if called == 'train' and block.first <= 3 < block.first + len(block.kept):
      raise crew_lib.LostError('it was killed')

  crew.reset(4, lost)
  with pytest.raises(
    client_error.ClientError,
    match=r'client 3 \(from 0\) of the 20 .* lost .* with it \(the last: it was',
  ):
    invoking.invoke(runtime, invoking.total, [1.0] * 20)
