"""Posteriors, compared with brute force over all sets of ten classes."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.measure import leakage
from tff_xc.round import randomized, randomness, request

N, M, ROUNDS = 10, 3, (0, 1, 3)
OWN = [2, 7]
SETS = [*itertools.combinations(range(N), len(OWN))]


def requests_of(made, rounds=ROUNDS, seed=5):
  """Returns the requests of a client with the classes `OWN`, bool [r, N]."""
  found = np.zeros([len(rounds), N], bool)
  for i, number in enumerate(rounds):
    of_round = randomness.round_seed(tf.constant([seed, 0]), number)
    who = 3, randomness.Purpose.NEGATIVES
    held = made.held_rows(
      tf.constant(OWN),
      randomness.client_seed(of_round, *who),
      lasting=randomness.lasting(of_round, *who),
    )
    found[i, held.ids.numpy()[held.mask.numpy()]] = True
  return found


def bits(requests):
  return [int(sum(1 << c for c in np.flatnonzero(r))) for r in requests]


def likelihood(schedule, own, seen) -> float:
  """Returns the probability of the requests `seen`, over all possible samples of negatives."""
  others = np.array([c for c in range(N) if c not in own])
  mine = sum(1 << c for c in own)
  draws = list(itertools.combinations(others, M))

  def matches(draw, s):
    return sum(1 << int(c) for c in draw) | mine == s

  if schedule == 'fresh':
    each = [np.mean([matches(d, s) for d in draws]) for s in seen]
    return math.prod(each)
  if schedule == 'sticky':
    return np.mean([all(matches(d, s) for s in seen) for d in draws])
  # Try all orders of the other classes. The window moves by one class per round.
  orders = np.array([*itertools.permutations(others)])
  masks = 1 << orders
  fits = np.ones(len(orders), bool)
  for moved, s in zip(ROUNDS, seen, strict=False):
    places = (moved + np.arange(M)) % len(others)
    fits &= masks[:, places].sum(axis=1) + mine == s
  return fits.mean()


@pytest.mark.slow
@pytest.mark.parametrize('schedule', ['fresh', 'sticky', 'partial'])
def test_the_posterior_of_sampled_negatives_is_bayes_rule(schedule):
  made = request.OwnAndSampled(N, 2, M, schedule=schedule, renewed=1 / M)
  requests = requests_of(made)
  found = leakage.of_sampled(requests, len(OWN))
  for r in range(1, len(ROUNDS) + 1):
    seen = bits(requests[:r])
    weights = np.array([likelihood(schedule, own, seen) for own in SETS])
    weights /= weights.sum()
    expected = np.zeros(N)
    for own, weight in zip(SETS, weights, strict=True):
      expected[[*own]] += weight
    np.testing.assert_allclose(found[r - 1], expected, atol=1e-12)
  first, last = found[0][OWN], found[-1][OWN]
  np.testing.assert_allclose(first, 2 / 5)
  assert (last > first).all() == (schedule != 'sticky')


def test_the_posterior_of_randomized_requests_is_bayes_rule():
  """Tries all sets of own classes, and all permanent bits."""
  made = randomized.Randomized(N, 2, M, epsilon=2.0, renewed=0.3)
  p, prior, rounds = made.response, 0.2, range(4)
  requests = requests_of(made, rounds)
  found = leakage.of_randomized(requests, p.log_likelihoods, prior)
  every = np.array([*itertools.product([0, 1], repeat=N)])  # All sets of own classes, [2^N, N].

  def of(one, probability):
    return np.where(one, probability, 1 - probability)

  of_own = of(every, prior).prod(axis=1)
  # The shape is [sets, permanent bits].
  permanent = np.ones([len(every)] * 2)
  for c in range(N):
    chance = np.where(every[:, c], p.own, p.other)
    permanent *= of(every[None, :, c], chance[:, None])
  for r in range(1, len(rounds) + 1):
    chance = np.where(every, p.stays, p.appears)
    of_requests = np.prod([of(s[None], chance).prod(axis=1) for s in requests[:r]], axis=0)
    weights = of_own * (permanent @ of_requests)
    expected = (weights[:, None] * every).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(found[r - 1], expected, atol=1e-12)


def test_epsilon_bounds_what_any_requests_tell():
  p = randomized.response(2.0, M, N, 0.3)
  one = p.in_request(p.own), p.in_request(p.other)
  largest = max(abs(math.log(one[0] / one[1])), abs(math.log((1 - one[0]) / (1 - one[1]))))
  assert p.epsilon() == pytest.approx(largest)
  several = [p.epsilon(r) for r in (1, 2, 5, 50)]
  assert several == sorted(several)
  assert several[-1] == pytest.approx(2.0)
  # The requests contain as many other classes as asked for. If all bits are renewed, requests
  # reveal nothing.
  assert p.in_request(p.other) == pytest.approx(M / N)
  assert randomized.response(2.0, M, N, 1.0).epsilon() == pytest.approx(0)


def test_auc_counts_ties_half():
  scores, own = np.array([3, 1, 1, 0]), np.array([1, 1, 0, 0], bool)
  pairs = [(a > b) + 0.5 * (a == b) for a in scores[own] for b in scores[~own]]
  assert leakage.auc(scores, own) == pytest.approx(np.mean(pairs))
  assert np.isnan(leakage.auc(scores, np.ones(4, bool)))


def test_buckets_of_several_tables_narrow_the_candidates():
  rows_of = np.array([[0, 4], [0, 5], [1, 4], [1, 6], [2, 5]])
  seen = np.zeros(7, bool)
  seen[[0, 1, 4]] = True
  # Each of these two labels is the only candidate for one of the buckets 0 and 1.
  np.testing.assert_array_equal(leakage.of_buckets(rows_of, seen), [1, 0, 1, 0, 0])
  every = leakage.of_buckets(rows_of, np.ones(7, bool))
  assert every[3] == every[4] == 1
  assert 0 <= every[0] <= 1
  assert not leakage.of_buckets(rows_of, np.zeros(7, bool)).any()


def test_own_rows_move_against_the_others():
  random = np.random.default_rng(0)
  common = random.normal(size=8)
  moved = common + 0.3 * random.normal(size=[30, 8])
  moved[:3] = -4 * common
  own = np.arange(30) < 3
  assert leakage.auc(leakage.by_direction(moved), own) == 1
  assert leakage.auc(leakage.by_size(moved), own) == 1
  # The AUC is also 1 if most rows are the client's own rows.
  moved[:20] = -4 * common + 0.1 * random.normal(size=[20, 8])
  own = np.arange(30) < 20
  assert leakage.auc(leakage.by_direction(moved), own) == 1
  [a, b] = leakage.clipped([moved, common], 1.0)
  assert np.sqrt((a**2).sum() + (b**2).sum()) == pytest.approx(1.0)
  np.testing.assert_array_equal(leakage.clipped([common], 1e9)[0], common)
