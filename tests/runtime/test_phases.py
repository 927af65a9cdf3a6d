"""Sums over clients have the same digits however they are folded."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_xc.runtime.in_process import context as context_lib
from tff_xc.runtime.in_process import phases

_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


@pytest.fixture(autouse=True)
def _usual_runtime(in_process):
  """Each test installs its own runtimes."""


@pytest.mark.parametrize('clients', [1, 32, 33, 100, 128, 129, 10_000])
def test_blocks_are_few_and_of_whole_groups(clients):
  size = phases.block_size(clients)
  assert -(-clients // size) <= 32
  assert size == clients or size % 4 == 0


def test_sums_are_folded_in_the_order_of_the_clients_block_by_block():
  values = np.random.default_rng(0).normal(size=200).astype(np.float32)

  @tff.federated_computation(_FLOATS)
  def total(x):
    return tff.federated_sum(x)

  def folded(numbers):
    found = np.float32(0.0)
    for number in numbers:
      found = np.float32(found + number)
    return found

  # 200 clients are 25 blocks of 8.
  expected = folded([folded(block) for block in values.reshape(25, 8)])
  for threads in (1, 2, 5):
    tff.framework.set_default_context(
      context_lib.create_context(client_threads=threads)
    )
    assert float(total(list(values))) == expected


def test_a_mean_does_not_depend_on_how_many_are_folded_at_a_time():
  """TensorFlow's optimizer would add up a call's terms in its own order."""
  vector = tff.TensorType(np.float32, [9216])
  pair = tff.to_type((vector, vector))

  @tff.federated_computation(tff.FederatedType(pair, tff.CLIENTS), _FLOATS)
  def mean(x, weights):
    return tff.federated_mean(x, weights)

  random = np.random.default_rng(0)
  x = [tuple(each) for each in random.normal(size=[31, 2, 9216]).astype('f')]
  weights = list(random.uniform(1, 5, 31).astype(np.float32))
  found = []
  for threads in (1, 2, 5):
    tff.framework.set_default_context(
      context_lib.create_context(client_threads=threads)
    )
    found.append(np.stack(mean(x, weights)))
  np.testing.assert_array_equal(found[0], found[1])
  np.testing.assert_array_equal(found[0], found[2])
