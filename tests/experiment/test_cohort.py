"""Cohorts are functions of (seed, round), also with empty or broken clients."""

import numpy as np
import pytest
import tensorflow as tf

from datasets.procedural import words as sparse_words
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import sparse
from tff_xc.experiment import cohort

LABELS = {'a': [0, 1, 1], 'b': [], 'c': [2], 'd': [3, 3, 3, 3], 'e': [0, 4]}


class Clients(client_data.LabelledClientData):
  """Example k of client i is the number 10 i + k."""

  def __init__(self, labels):
    super().__init__(list(labels), tf.TensorSpec([], tf.int32))
    self._labels = labels
    self.decoded = []

  def labels(self, client_id):
    return np.array(self._labels[client_id], np.int32)

  def examples(self, client_id):
    self.decoded.append(client_id)
    y = self.labels(client_id)
    first = 10 * self.client_ids.index(client_id)
    x = np.arange(first, first + len(y), dtype=np.int32)
    return client_data.Examples(x, y)


def dataset(labels=None, num_classes=5):
  return client_data.FederatedDataset(
    'letters', num_classes, Clients(labels or LABELS)
  )


def test_uniform_cohorts_depend_on_seed_and_round_alone():
  one, two = (cohort.uniform(dataset(), 3, seed=7) for _ in range(2))
  ids = lambda c: [int(e.client_id) for e in c.examples]
  assert ids(one(5)) == ids(two(5))
  assert ids(one(4)) == ids(two(4))
  assert len({tuple(ids(one(r))) for r in range(20)}) > 3


def test_every_client_takes_part_about_equally():
  draw = cohort.uniform(dataset(), 2, seed=0)
  seen = np.zeros(5)
  for round_number in range(500):
    for value in draw(round_number).examples:
      seen[int(value.client_id)] += 1
  assert seen[1] == 0  # It has no examples and is never drawn.
  assert np.abs(seen[[0, 2, 3, 4]] - 200).max() < 45


class Bags(Clients):
  """Example k of client i has the features i and 10 i + k."""

  def feature_counts(self, client_id):
    return np.full(len(self.labels(client_id)), 2)

  def examples(self, client_id):
    x, y = super().examples(client_id)
    ids = np.stack([np.full_like(x, x[0] // 10 if len(x) else 0), x + 100], 1)
    splits = np.arange(0, 2 * len(x) + 1, 2, dtype=np.int32)
    values = np.ones(2 * len(x), np.float32)
    return client_data.Examples(
      sparse.SparseFeatures(splits, ids.ravel(), values), y
    )


def bags(labels=None):
  return client_data.FederatedDataset('bags', 5, Bags(labels or LABELS))


def test_pooled_sparse_examples_are_those_that_dense_ones_would_be():
  draw, dense = (cohort.pooled(d, 6, seed=3) for d in (bags(), dataset()))
  for round_number in range(4):
    [found], [expected] = (d(round_number).examples for d in (draw, dense))
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.x.ids[1::2] - 100, expected.x)
    np.testing.assert_array_equal(found.x.row_splits, np.arange(0, 13, 2))


def test_nobody_has_no_sparse_examples():
  [nobody] = cohort.uniform(bags({'b': [], 'c': [2]}), 1, seed=1)(0).examples
  if len(nobody.y):  # This was the draw of the client with examples.
    [nobody] = cohort.uniform(bags({'b': []}), 1, seed=1)(0).examples
  np.testing.assert_array_equal(nobody.x.row_splits, [0])
  assert not len(nobody.x.ids)


def test_the_largest_set_of_features_is_that_of_one_client():
  assert cohort.largest_feature_set(bags()) == 5
  assert cohort.largest_feature_set(bags({'b': []})) == 1


def test_a_client_may_draw_some_of_its_examples_for_a_round():
  draw = cohort.uniform(dataset({'d': [3, 3, 4, 4], 'e': [0, 4]}), 2, 5, 3)
  seen = set()
  for round_number in range(30):
    few, many = sorted(draw(round_number).examples, key=lambda e: len(e.y))
    np.testing.assert_array_equal(few.x, [10, 11])
    assert len(set(many.x)) == 3
    np.testing.assert_array_equal(many.y, np.where(many.x < 2, 3, 4))
    seen.add(tuple(sorted(many.x)))
  assert len(seen) == 4
  again = cohort.uniform(dataset({'d': [3, 3, 4, 4], 'e': [0, 4]}), 2, 5, 3)
  for a, b in zip(again(7).examples, draw(7).examples, strict=True):
    np.testing.assert_array_equal(a.x, b.x)


@pytest.mark.parametrize('drawn', [1, 3, 100])
def test_no_draw_of_examples_uses_more_features_than_foreseen(drawn):
  words = sparse_words.load(num_classes=30, num_features=500, test_examples=1)
  most = cohort.largest_feature_set(words, drawn)
  draw = cohort.uniform(words, len(words.train.client_ids), 0, drawn)
  used = [len(np.unique(e.x.ids)) for e in draw(0).examples]
  assert max(used) <= most
  assert most <= drawn * 61


def test_clients_without_examples_are_skipped_and_counted():
  everyone = cohort.uniform(dataset(), 5, seed=0)(0)
  assert everyone.skipped == 1
  assert len(everyone.examples) == 4


def test_a_cohort_of_nobody_is_one_empty_client():
  nobody = cohort.uniform(dataset({'a': [], 'b': []}), 2, seed=0)(0)
  assert nobody.skipped == 2
  assert len(nobody.examples) == 1
  assert len(nobody.examples[0].y) == 0


def test_more_clients_than_there_are_is_refused():
  with pytest.raises(errors.InputError, match=r'--clients_per_round=6.*5'):
    cohort.uniform(dataset(), 6, seed=0)


def test_a_label_out_of_range_names_the_client():
  with pytest.raises(errors.InputError, match=r'client e.*label 4'):
    cohort.largest_label_set(dataset(num_classes=4))
  draw = cohort.uniform(dataset(num_classes=4), 5, seed=0)
  with pytest.raises(errors.InputError, match=r'client e.*label 4'):
    list(draw(0).examples)


def test_the_largest_label_set_and_the_mean_are_found_without_decoding():
  data = dataset()
  assert cohort.largest_label_set(data) == 2
  assert cohort.mean_examples(data) == 2.0
  assert data.train.decoded == []


def test_no_examples_at_all_is_refused():
  with pytest.raises(errors.InputError, match='no client has any examples'):
    cohort.largest_label_set(dataset({'a': []}))


def test_pooled_rounds_walk_through_shuffled_passes():
  draw = cohort.pooled(dataset(), 4, seed=3)
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
  value = cohort.pooled(dataset(), 25, seed=3)(1).examples[0]
  counts = np.bincount(value.x)
  assert counts[counts > 0].sum() == 25
  assert set(counts[counts > 0]) <= {2, 3}


def test_the_cache_forgets_the_client_used_longest_ago():
  clients = Clients(LABELS)
  cache = cohort.ExampleCache(clients, 5, max_bytes=4 * 6)
  for client_id in 'acadcea':
    cache(client_id)
  # 'd' (16 bytes) drops 'c'; then 'c' and 'e' drop 'a'.
  assert ''.join(clients.decoded) == 'acdcea'


def test_a_draw_of_examples_keeps_the_labels_of_all_of_them():
  draw = cohort.uniform(dataset(), 5, seed=1, examples_per_round=1)
  for value in draw(0).examples:
    held = LABELS['abcde'[int(value.client_id)]]
    np.testing.assert_array_equal(value.all_y, held)
    assert len(value.y) == 1
    assert value.y[0] in held


def test_examples_are_decoded_when_they_are_asked_for():
  data = dataset()
  drawn = cohort.uniform(data, 5, seed=0)(0)
  assert data.train.decoded == []
  assert len(drawn.examples) == 4
  third = drawn.examples[2]
  assert data.train.decoded == [drawn.client_ids[2]]
  assert data.train.client_ids[int(third.client_id)] == drawn.client_ids[2]


def test_a_pooled_pass_is_shuffled_once(monkeypatch):
  shuffled, shuffle = [], np.random.default_rng

  def counted(seed):
    shuffled.append(seed[1])
    return shuffle(seed)

  monkeypatch.setattr(np.random, 'default_rng', counted)
  draw = cohort.pooled(dataset(), 4, seed=3)  # Of ten examples.
  for round_number in range(6):
    draw(round_number)
  assert shuffled == [0, 1, 2]
