"""Held-out examples of every client, and clients that never train."""

import dataclasses

import numpy as np
import pytest

from datasets.splits import hold_out
from tff_xc import errors
from tff_xc.data import client_data, partition, pool

SIZES = [1, 2, 3, 10, 40, 0, 4, 5]


def _set(sizes=SIZES, **more):
  size = sum(sizes)
  labels = np.arange(size) % 4
  owners = np.repeat(np.arange(len(sizes)), sizes)
  ids = [f'c{k}' for k in range(len(sizes))]
  return client_data.FederatedDataset(
    name='mine',
    num_classes=4,
    train=client_data.PartitionedClientData(
      pool.in_memory(np.arange(size, dtype=np.float32)[:, None], labels),
      partition.of_places(owners, ids),
    ),
    **more,
  )


def _owned(of):
  """Returns the set of example numbers by client id."""
  return {k: set(of.of_client(i)) for i, k in enumerate(of.client_ids)}


def test_every_example_trains_or_is_held_out():
  before = _set()
  after = hold_out.hold_out_parts(before, 0.25, 0.0, seed=3)
  whole, own = map(_owned, (before.train.partition, after.train.partition))
  held = _owned(after.held_out)
  assert list(own) == list(held) == before.train.client_ids
  for name, numbers in whole.items():
    assert own[name] | held[name] == numbers
    assert not own[name] & held[name]
    assert bool(own[name]) == bool(numbers)  # No client loses all its examples.
    if len(numbers) > 1:
      assert abs(len(held[name]) - 0.25 * len(numbers)) < 1
  # The data set had no test set before.
  assert sorted(after.test.read(np.arange(len(after.test)))[:, 0]) == sorted(after.held_out.numbers)
  again = hold_out.hold_out_parts(before, 0.25, 0.0, seed=3)
  other = hold_out.hold_out_parts(before, 0.25, 0.0, seed=4)
  assert _owned(again.held_out) == held != _owned(other.held_out)


@pytest.mark.parametrize('fraction', [0.0, 0.3])
def test_unseen_clients_are_whole_and_do_not_train(fraction):
  before = _set()
  found = hold_out.hold_out_parts(before, fraction, 0.25, seed=0)
  never = found.unseen
  assert never.train.client_ids == never.held_out.client_ids
  assert len(never.train) == 2
  trained = found.train.client_ids
  assert sorted([*never.train.client_ids, *trained]) == before.train.client_ids
  whole = _owned(before.train.partition)
  parts = _owned(never.train), _owned(never.held_out)
  for name in never.train.client_ids:
    assert parts[0][name] | parts[1][name] == whole[name]
    assert fraction or not parts[0][name]
  if fraction:  # The held-out examples do not depend on the unseen clients.
    alone = hold_out.hold_out_parts(before, fraction, 0.0, seed=0)
    held = _owned(alone.held_out)
    assert {**_owned(found.held_out), **parts[1]} == held
    assert found.held_out.client_ids == trained
  else:
    assert found.held_out is None


def test_without_own_tests_unseen_clients_are_scored_on_all_their_examples():
  empty = partition.of_clients({f'c{k}': [] for k in range(len(SIZES))})
  before = _set(held_out=empty)
  found = hold_out.hold_out_parts(before, 0.0, 0.25, seed=0)
  whole = _owned(before.train.partition)
  assert _owned(found.unseen.held_out) == {k: whole[k] for k in found.unseen.train.client_ids}
  assert found.held_out.client_ids == found.train.client_ids


@pytest.mark.parametrize(('fraction', 'unseen'), [(0.3, 0.0), (0.3, 0.4), (0.0, 0.4)])
def test_shared_examples_that_are_held_out_do_not_train(fraction, unseen):
  shared = partition.of_clients(
    {'a': range(20), 'b': range(10, 30), 'c': [*range(5), *range(25, 40)]}
  )
  before = _set([40])
  before = dataclasses.replace(
    before, train=client_data.PartitionedClientData(before.train.pool, shared)
  )
  found = hold_out.hold_out_parts(before, fraction, unseen, seed=0)
  parts = [found.held_out, *(found.unseen or ())]
  held = np.concatenate([part.numbers for part in parts if part is not None])
  assert len(held) and len(found.train.partition.numbers)
  assert not np.isin(found.train.partition.numbers, held).any()


def test_shared_examples_are_drawn_once():
  before = _set([40])
  alike = partition.of_clients({name: range(40) for name in 'abcd'})
  before = dataclasses.replace(
    before, train=client_data.PartitionedClientData(before.train.pool, alike)
  )
  found = hold_out.hold_out_parts(before, 0.25, 0.0, seed=0)
  assert len(found.test) == 10
  assert len(found.train.partition.numbers) == 4 * 30
  with pytest.raises(errors.InputError, match='nobody is left'):
    hold_out.hold_out_parts(before, 0.0, 0.25, seed=0)


def test_a_pooled_test_stays_when_clients_have_own_test_examples():
  own = partition.of_clients({f'c{k}': [0] for k in range(len(SIZES))})
  before = _set(test=pool.in_memory(np.zeros([2, 1], np.float32), np.array([0, 1])), held_out=own)
  found = hold_out.hold_out_parts(before, 0.3, 0.0, seed=0)
  assert found.test is before.test
  alone = hold_out.hold_out_parts(_set(), 0.3, 0.0, seed=0)
  assert _owned(found.held_out) == _owned(alone.held_out)


def test_what_cannot_be_is_told():
  own = partition.of_clients({f'c{k}': [0] for k in range(len(SIZES))})
  for dataset, values, word in (
    (_set(held_out=own), (0.1, 0.0), 'of their own'),
    (_set(), (0.0, 0.95), 'nobody to train'),
    (_set([1] * 4), (0.5, 0.0), 'no client has one'),
  ):
    with pytest.raises(errors.InputError, match=word):
      hold_out.hold_out_parts(dataset, *values, seed=0)
