"""Chunks, shards and users, on examples that one can follow."""

import dataclasses
import random

import numpy as np
import pytest

from datasets.splits import by_user
from datasets.splits import listing as listing_lib
from datasets.splits import rules
from datasets.splits import sorted_cuts
from tff_xc import errors

LABELS = np.array([3, 1, 1, -1, 0, 3, 1, 0])


def clients_of(found):
  return {
    name: found.of_client(k).tolist() for k, name in enumerate(found.client_ids)
  }


def test_chunks_cut_the_examples_sorted_by_class():
  assert clients_of(sorted_cuts.chunks(LABELS, examples_per_client=3)) == {
    '0': [1, 4, 7],
    '1': [0, 2, 6],
    '2': [5],
  }


def test_stanford_online_products_gives_596_clients_of_twenty_classes():
  sizes = np.full(11_318, 5)
  sizes[: 59_551 - sizes.sum()] += 1
  labels = np.random.default_rng(0).permutation(
    np.repeat(np.arange(11_318), sizes)
  )
  found = sorted_cuts.chunks(labels)
  assert len(found) == 596
  assert found.sizes[-1] == 51
  classes = [len(set(labels[found.of_client(k)])) for k in range(595)]
  assert 19 < np.mean(classes) < 21


def test_shards_are_cut_evenly_and_dealt_at_random():
  labels = np.random.default_rng(0).permutation(np.arange(603) % 10)
  found = sorted_cuts.shards(
    labels, num_clients=10, shards_per_client=3, seed=1
  )
  assert sorted(found.numbers) == list(range(603))
  assert set(found.sizes) <= {60, 61, 62, 63}
  ranks = np.empty(603, int)
  ranks[np.argsort(labels, kind='stable')] = np.arange(603)
  for k in range(10):
    mine = np.sort(ranks[found.of_client(k)])
    assert np.count_nonzero(np.diff(mine) > 1) <= 2  # Three runs at most.
  other = sorted_cuts.shards(
    labels, num_clients=10, shards_per_client=3, seed=2
  )
  assert (found.numbers != other.numbers).any()


def test_too_few_examples_are_refused():
  with pytest.raises(
    errors.InputError,
    match='7 training examples cannot make 4 clients of 2 shards',
  ):
    sorted_cuts.shards(LABELS, num_clients=4, shards_per_client=2)
  with pytest.raises(errors.InputError, match='no example has a label'):
    sorted_cuts.chunks(np.array([-1]))


def test_users_in_the_order_of_their_names():
  users = np.array([2, 0, 2, -1, 1, 0, 2])
  names = ['10', '9', '2']
  assert clients_of(by_user.partition(users, names)) == {
    '2': [0, 2, 6],
    '9': [4],
    '10': [1, 5],
  }
  found = by_user.partition(users, names, min_examples=2, kept=np.array([1, 2]))
  assert clients_of(found) == {'2': [0, 2, 6]}
  with pytest.raises(errors.InputError, match='no user of 3 remains'):
    by_user.partition(users, names, min_examples=4)


def test_leafs_draw_of_users():
  train, test = by_user.leaf_parts(np.full(3_550, 7))
  assert (len(train), len(test)) == (3_195, 355)
  drawn = random.Random(0).sample(range(3_550), int(0.9 * 3_550))
  assert sorted(drawn) == train.tolist()
  sizes = np.array([5, 0, 5, 5])
  train, test = by_user.leaf_parts(sizes, min_examples=1, train_share=0.5)
  assert sorted([*train, *test]) == [0, 2, 3]
  assert len(train) == 1


def test_too_few_users_are_told_as_such():
  nobody = listing_lib.Listing(
    LABELS, [], range(8), np.full(8, -1, np.int32), []
  )
  for name in ('users', 'leaf_users'):
    rule = rules.get(name)
    given = {flag: known.default for flag, known in rule.flags.items()}
    with pytest.raises(errors.InputError, match='of user NA, who is nobody'):
      rule.split(nobody, 0, **given)
  one = dataclasses.replace(
    nobody, users=np.zeros(8, np.int32), user_names=['ann']
  )
  with pytest.raises(errors.InputError, match=r'1 of 1 users .* 0\.9 of them'):
    rule.split(one, 0, **given)
