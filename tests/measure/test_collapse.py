"""Compares distances between class rows with a naive loop."""

import itertools
import math

import numpy as np
import pytest

from tff_xc.measure import ranking


def naive(rows):
  rows = rows.astype(np.float64)
  unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
  return [math.dist(a, b) for a, b in itertools.combinations(unit, 2)]


def test_equal_the_naive_loop():
  rows = np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32) * 5
  smallest, mean = ranking.class_distances(rows)
  assert smallest == pytest.approx(min(naive(rows)), rel=1e-7)
  assert mean == pytest.approx(np.mean(naive(rows)), rel=1e-7)


@pytest.mark.parametrize('spread', [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize('clusters', [1, 3])
def test_nearly_equal_rows_keep_their_digits(spread, clusters):
  random = np.random.default_rng(1)
  centres = random.normal(size=(clusters, 20))
  rows = np.repeat(centres, 30, axis=0)
  rows += spread * random.normal(size=rows.shape)
  expected = naive(rows)
  smallest, mean = ranking.class_distances(rows)
  # The rows are accurate to 1e-16, which is 1e-7 of the least spread.
  assert smallest == pytest.approx(min(expected), rel=1e-5)
  assert mean == pytest.approx(np.mean(expected), rel=1e-6)
  assert smallest < 10 * spread


def test_collapsed_rows_are_at_distance_zero():
  rows = np.repeat(np.random.default_rng(2).normal(size=(1, 9)), 50, axis=0)
  assert ranking.class_distances(rows) == (0.0, 0.0)
  rows[7] *= -1
  smallest, mean = ranking.class_distances(rows)
  assert smallest == 0.0
  assert mean == pytest.approx(2 * 49 / (50 * 49 / 2))
  rows[:30] = rows[7]
  mean = ranking.class_distances(rows)[1]
  assert mean == pytest.approx(2 * 30 * 20 / (50 * 49 / 2))


def test_only_the_classes_named_count():
  rows = np.random.default_rng(3).normal(size=(30, 4))
  rows[5] = rows[6]
  ids = np.array([6, 1, 20, 6, 1])
  expected = naive(rows[[1, 6, 20]])
  smallest, mean = ranking.class_distances(rows, ids)
  assert smallest == pytest.approx(min(expected))
  assert mean == pytest.approx(np.mean(expected))


def test_a_sample_is_fixed_and_without_replacement():
  rows = np.random.default_rng(4).normal(size=(300, 8))
  first = ranking.class_distances(rows, sample=50)
  assert first == ranking.class_distances(rows, sample=50)
  assert first != ranking.class_distances(rows, sample=50, seed=1)
  assert first[0] > 0  # A class drawn twice would be at distance 0.
  assert first[1] == pytest.approx(np.mean(naive(rows)), rel=0.05)


def test_undefined_without_two_finite_rows():
  rows = np.eye(3)
  assert np.isnan(ranking.class_distances(rows[:1])).all()
  assert np.isnan(ranking.class_distances(rows, np.array([2, 2]))).all()
  assert np.isnan(ranking.class_distances(rows, np.zeros(0, int))).all()
  rows[1] = np.nan
  assert np.isnan(ranking.class_distances(rows)).all()
  assert ranking.class_distances(rows, [0, 2])[0] == pytest.approx(2**0.5)
