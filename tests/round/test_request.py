"""Seeds and requests: random samples, padding, and the places of labels."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.round import randomized, randomness, request

SEED = tf.constant([3, 4])


def many(draw, times, spec):
  """Returns draw(0), ..., draw(times - 1), stacked."""
  run = tf.function(lambda: tf.map_fn(draw, tf.range(times), fn_output_signature=spec))
  return run().numpy()


def real_ids(held):
  return held.ids.numpy()[held.mask.numpy()]


def test_every_seed_round_client_purpose_and_step_has_a_stream_of_its_own():
  def seeds():
    purposes = randomness.Purpose
    for case in itertools.product(range(3), range(4), range(4), purposes):
      seed, round_number, client, purpose = case
      in_round = randomness.round_seed(tf.constant([seed, 0]), round_number)
      found = randomness.client_seed(in_round, client, purpose)
      yield tuple(found.numpy().tolist())
    for step in range(5):
      yield tuple(randomness.step_seed(SEED, step).numpy().tolist())

  found = list(seeds())
  assert len({*found}) == len(found)
  assert found == list(seeds())


@pytest.mark.parametrize(
  ('count', 'population', 'most'),
  # The last case draws all 6 values from a stream that is bounded by 6.
  [(5, 5, 5), (5, 4, 4), (3, 100, 100), (50, 10**7, 10**7), (6, 6, 10**6)],
)
def test_a_sample_is_distinct_and_within_bounds(count, population, most):
  drawn = request.sample_distinct(SEED, count, population, most).numpy()
  assert len(drawn) == min(count, population) == len(set(drawn))
  assert drawn.min() >= 0
  assert drawn.max() < population


@pytest.mark.parametrize('max_population', [30, 10**6])
def test_samples_are_uniform_without_replacement(max_population):
  """Tests both algorithms: a permutation, and rejection of repeated values."""

  def draw(i):
    return request.sample_distinct(tf.stack([i, 0]), 3, tf.constant(30), max_population)

  rounds = 4000
  drawn = many(draw, rounds, tf.TensorSpec([3], tf.int32))
  counts = np.bincount(drawn.ravel(), minlength=30)
  expected = rounds * 3 / 30
  # Allow four standard deviations. First, each count has probability 3/30. Then, test ordered
  # pairs.
  assert np.abs(counts - expected).max() < 4 * np.sqrt(expected * 27 / 30)
  firsts = np.bincount(drawn[:, 0], minlength=30)
  assert np.abs(firsts - rounds / 30).max() < 4 * np.sqrt(rounds / 30)


@pytest.mark.parametrize('num_classes', [60, 10**6])
def test_own_and_sampled_holds_all_own_and_m_others(num_classes):
  labels = tf.constant([7, 2, 7, 59, 2, 7])
  chosen = request.OwnAndSampled(num_classes, max_positives=5, negatives=9)
  held = chosen.held_rows(labels, SEED)
  ids = real_ids(held)
  assert chosen.slots == 14 == held.ids.shape[0]
  assert len(ids) == len(set(ids)) == 3 + 9
  counts = collections.Counter(dict(zip(ids, held.counts.numpy()[: len(ids)], strict=True)))
  assert {k: v for k, v in counts.items() if v} == {7: 3, 2: 2, 59: 1}
  assert ids.min() >= 0
  assert ids.max() < num_classes
  # Padding repeats the first id and is masked.
  mask = held.mask.numpy()
  np.testing.assert_array_equal(mask, [True] * 12 + [False] * 2)
  assert set(held.ids.numpy()[~mask]) == {ids[0]}
  assert not held.counts.numpy()[~mask].any()
  # The places of labels are never padding.
  slots = chosen.positions(held, labels).numpy()
  np.testing.assert_array_equal(held.ids.numpy()[slots], labels)
  assert mask[slots].all()
  # Negatives depend on the seed, and are equal for equal seeds.
  again = chosen.held_rows(labels, SEED)
  np.testing.assert_array_equal(held.ids, again.ids)
  assert {*ids} != {*real_ids(chosen.held_rows(labels, SEED + 1))}


def test_more_negatives_than_other_classes_takes_all_of_them():
  held = request.OwnAndSampled(10, max_positives=4, negatives=8).held_rows(
    tf.constant([1, 2, 3, 4]), SEED
  )
  np.testing.assert_array_equal(sorted(real_ids(held)), range(10))


@pytest.mark.parametrize('num_classes', [60, 10**6])
def test_equal_negatives_grow_with_a_clients_own_classes(num_classes):
  chosen = request.OwnAndSampled(num_classes, 5, 9, equal_negatives=True)
  assert chosen.slots == 5 + 9 + 4
  for own in (1, 3, 5):
    held = chosen.held_rows(tf.range(7, 7 + own), SEED)
    ids = real_ids(held)
    assert len(set(ids)) == len(ids) == own + 9 + own - 1
    assert (held.counts.numpy() > 0).sum() == own


def test_order_does_not_tell_own_classes_from_negatives():
  """The first id is one of the client's own classes in proportion to their share."""
  chosen = request.OwnAndSampled(1000, max_positives=5, negatives=15)
  labels = tf.constant([1, 2, 3, 4, 5])

  def draw(i):
    return chosen.held_rows(labels, tf.stack([i, 1])).counts[0]

  first_is_own = (many(draw, 2000, tf.TensorSpec([], tf.int32)) > 0).mean()
  assert abs(first_is_own - 0.25) < 0.04


def test_all_classes_counts_every_class():
  held = request.AllRows(4).held_rows(tf.constant([2, 2, 0]), SEED)
  np.testing.assert_array_equal(held.counts, [1, 0, 2, 0])
  np.testing.assert_array_equal(held.ids, range(4))


def test_mean_rows_are_those_that_are_held():
  everything = request.AllRows(10)
  some = request.OwnAndSampled(10, 9, 3)
  equal = request.OwnAndSampled(30, 9, 3, equal_negatives=True)
  own = np.array([0, 2, 9])
  for asked in (everything, some, equal):
    rows = [asked.held_rows(tf.range(k, dtype=tf.int32), SEED).mask.numpy().sum() for k in own]
    assert asked.mean_rows(own).tolist() == rows
  drawn = randomized.Randomized(1000, 9, 50, renewed=0.1, epsilon=8.0)
  found = drawn.mean_rows(own)
  assert found[0] == 0 and 50 < found[1] < 53
