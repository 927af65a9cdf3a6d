"""Cohorts are functions of (seed, round), also with empty clients."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from datasets.procedural import words as sparse_words
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.data import sparse
from tff_xc.experiment import cohort

LABELS = {'a': [0, 1, 1], 'b': [], 'c': [2], 'd': [3, 3, 3, 3], 'e': [0, 4]}


def dataset(labels=None, bags=False):
  """Example k of client i is the number 10 i + k, or a bag of i and this."""
  labels = labels or LABELS
  x = [10 * i + k for i, y in enumerate(labels.values()) for k in range(len(y))]
  x = np.array(x, np.int32)
  y = np.concatenate([np.zeros(0, int), *labels.values()]).astype(int)
  owners = np.repeat(np.arange(len(labels)), [len(y) for y in labels.values()])
  clients = {name: np.flatnonzero(owners == i) for i, name in enumerate(labels)}
  if bags:
    ids = np.stack([x // 10, x + 100], 1).ravel()
    splits = np.arange(0, 2 * len(x) + 1, 2)
    x = scipy.sparse.csr_matrix(
      (np.ones(len(ids), np.float32), ids, splits), (len(x), 200)
    )
  train = client_data.PartitionedClientData(
    pool.in_memory(x, y), partition.of_clients(clients)
  )
  return client_data.FederatedDataset('letters', 5, train)


def uniform(data, clients, seed, examples=0):
  return cohort.UniformClients(clients, examples).cohorts(data, seed)


def pooled(data, examples, seed):
  return cohort.IidBatches(examples, steps=1).cohorts(data, seed)


def test_uniform_cohorts_depend_on_seed_and_round_alone():
  one, two = (uniform(dataset(), 3, seed=7) for _ in range(2))
  ids = lambda c: [int(e.client_id) for e in c.examples]
  assert ids(one(5)) == ids(two(5))
  assert ids(one(4)) == ids(two(4))
  assert len({tuple(ids(one(r))) for r in range(20)}) > 3


def test_every_client_takes_part_about_equally():
  draw = uniform(dataset(), 2, seed=0)
  seen = np.zeros(5)
  for round_number in range(500):
    for value in draw(round_number).examples:
      seen[int(value.client_id)] += 1
  assert seen[1] == 0  # It has no examples and is never drawn.
  assert np.abs(seen[[0, 2, 3, 4]] - 200).max() < 45


def test_pooled_sparse_examples_are_those_that_dense_ones_would_be():
  draw, dense = (pooled(d, 6, seed=3) for d in (dataset(bags=True), dataset()))
  for round_number in range(4):
    [found], [expected] = (d(round_number).examples for d in (draw, dense))
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.x.ids[1::2] - 100, expected.x)
    np.testing.assert_array_equal(found.x.row_splits, np.arange(0, 13, 2))


def test_nobody_has_no_sparse_examples():
  [nobody] = uniform(dataset({'b': []}, bags=True), 1, 1)(0).examples
  np.testing.assert_array_equal(nobody.x.row_splits, [0])
  assert not len(nobody.x.ids)


def test_a_client_may_draw_some_of_its_examples_for_a_round():
  draw = uniform(dataset({'d': [3, 3, 4, 4], 'e': [0, 4]}), 2, 5, 3)
  seen = set()
  for round_number in range(30):
    few, many = sorted(draw(round_number).examples, key=lambda e: len(e.y))
    np.testing.assert_array_equal(few.x, [10, 11])
    assert len(set(many.x)) == 3
    np.testing.assert_array_equal(many.y, np.where(many.x < 2, 3, 4))
    seen.add(tuple(sorted(many.x)))
  assert len(seen) == 4
  again = uniform(dataset({'d': [3, 3, 4, 4], 'e': [0, 4]}), 2, 5, 3)
  for a, b in zip(again(7).examples, draw(7).examples, strict=True):
    np.testing.assert_array_equal(a.x, b.x)


@pytest.mark.parametrize('drawn', [1, 3, 100])
def test_no_draw_of_examples_uses_more_features_than_foreseen(drawn):
  words = sparse_words.load(num_classes=30, num_features=500, test_examples=1)
  most = words.train.largest_feature_set(drawn)
  draw = uniform(words, len(words.train.client_ids), 0, drawn)
  used = [len(np.unique(e.x.ids)) for e in draw(0).examples]
  assert max(used) <= most
  assert most <= drawn * 61


def test_clients_without_examples_are_skipped_and_counted():
  everyone = uniform(dataset(), 5, seed=0)(0)
  assert everyone.skipped == 1
  assert len(everyone.examples) == 4


def test_a_cohort_of_nobody_is_one_empty_client():
  nobody = uniform(dataset({'a': [], 'b': []}), 2, seed=0)(0)
  assert nobody.skipped == 2
  assert len(nobody.examples) == 1
  assert len(nobody.examples[0].y) == 0


def test_more_clients_than_there_are_is_refused():
  message = 'the data have 5 clients; give --clients_per_round=5 or fewer'
  with pytest.raises(errors.InputError, match=message):
    uniform(dataset(), 6, seed=0)


def test_pooled_rounds_walk_through_shuffled_passes():
  draw = pooled(dataset(), 4, seed=3)
  everything = sorted([0, 1, 2, 20, 30, 31, 32, 33, 40, 41])
  seen = np.concatenate([draw(r).examples[0].x for r in range(5)])
  assert sorted(seen[:10]) == everything
  assert sorted(seen[10:]) == everything
  assert list(seen[:10]) != list(seen[10:])
  labels = np.concatenate([draw(r).examples[0].y for r in range(5)])
  by_example = dict(zip(seen, labels, strict=True))
  assert by_example[0] == 0
  assert by_example[2] == 1
  assert by_example[33] == 3
  assert by_example[41] == 4


def test_a_pooled_round_longer_than_a_pass():
  value = pooled(dataset(), 25, seed=3)(1).examples[0]
  counts = np.bincount(value.x)
  assert counts[counts > 0].sum() == 25
  assert set(counts[counts > 0]) <= {2, 3}


def test_a_draw_of_examples_keeps_the_labels_of_all_of_them():
  draw = uniform(dataset(), 5, seed=1, examples=1)
  for value in draw(0).examples:
    held = LABELS['abcde'[int(value.client_id)]]
    np.testing.assert_array_equal(value.all_y, held)
    assert len(value.y) == 1
    assert value.y[0] in held


def counted(data):
  """Returns the data set, and a list of the numbers that are read of it."""
  read, train = [], data.train

  def reading(numbers):
    read.append(numbers.tolist())
    return train.pool.read(numbers)

  counting = dataclasses.replace(train.pool, read=reading)
  counted_train = client_data.PartitionedClientData(counting, train.partition)
  return dataclasses.replace(data, train=counted_train), read


@pytest.mark.parametrize(
  'sampling', [cohort.UniformClients(5), cohort.IidBatches(4, 2)]
)
def test_examples_are_read_when_they_are_asked_for(sampling):
  data, read = counted(dataset())
  drawn = sampling.cohorts(data, 0)(0)
  assert read == []
  last = drawn.examples[len(drawn.examples) - 1]
  assert len(read) == 1
  assert len(read[0]) == len(last.y)
  if drawn.client_ids:
    name = data.train.client_ids[int(last.client_id)]
    assert name == drawn.client_ids[-1]
    assert read[0] == data.train.numbers(name).tolist()


def test_without_a_number_of_steps_a_round_is_the_average_client():
  draw = cohort.IidBatches(3).cohorts(dataset(), 0)
  assert len(draw(0).examples[0].y) == 3  # Of 10 / 5 examples, rounded up.
  with pytest.raises(errors.InputError, match='10,000,000'):
    cohort.IidBatches(10**6, 11).cohorts(dataset(), 0)


def test_sets_of_labels():
  data = dataset()
  sets = scipy.sparse.csr_matrix(np.random.default_rng(0).random((10, 5)) < 0.4)
  train = client_data.PartitionedClientData(
    pool.in_memory(np.arange(10), sets), data.train.partition
  )
  data = dataclasses.replace(data, train=train)
  for value in uniform(data, 5, 0, examples=2)(0).examples:
    numbers = train.partition.of_client(int(value.client_id))
    np.testing.assert_array_equal(value.all_y, sets[numbers].indices)
    assert isinstance(value.y, sparse.LabelSets)
    np.testing.assert_array_equal(value.y.ids, sets[value.x].indices)
    assert len(value.y.row_splits) == min(len(numbers), 2) + 1


def test_a_pooled_pass_is_shuffled_once(monkeypatch):
  shuffled, shuffle = [], np.random.default_rng

  def counted(seed):
    shuffled.append(seed[1])
    return shuffle(seed)

  monkeypatch.setattr(np.random, 'default_rng', counted)
  draw = pooled(dataset(), 4, seed=3)  # Of ten examples.
  for round_number in range(6):
    draw(round_number)
  assert shuffled == [0, 1, 2]


@pytest.mark.parametrize('clients', [{}, {'a': [], 'b': []}])
@pytest.mark.parametrize('steps', [0, 1])
def test_batches_of_no_examples_are_refused(clients, steps):
  train = dataset().train
  train = client_data.PartitionedClientData(
    train.pool, partition.of_clients(clients)
  )
  data = client_data.FederatedDataset('none', 5, train)
  with pytest.raises(errors.InputError, match='any examples'):
    cohort.IidBatches(2, steps).cohorts(data, 0)
