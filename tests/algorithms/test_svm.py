"""Support vector machines for all pairs of classes, compared with scikit-learn's."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import sklearn_turbosvm as reference
from tff_xc.algorithms import svm, svm_kernel

KERNELS = tuple(reference.KERNELS)
MOST_KERNELS_SLOW = pytest.mark.parametrize(
  'kernel',
  [k if k in ('linear', 'rbf') else pytest.param(k, marks=pytest.mark.slow) for k in KERNELS],
)


def problem(name, classes=7, points=6, dim=5):
  """Returns points float32 [n, M, d] that are rows as clients may send them."""
  random = np.random.default_rng(3)
  center = random.normal(size=[classes, 1, dim])
  noise = random.normal(size=[classes, points, dim])
  apart = {'separable': (3, 0.1), 'overlapping': (0.3, 1), 'random': (0, 1)}
  if name == 'coincident':
    # All clients send the same rows, and two classes have the same row.
    center[1] = center[0]
    return np.float32(np.broadcast_to(center, noise.shape).copy())
  of_center, of_noise = apart[name]
  return np.float32(of_center * center + of_noise * noise)


def _everything(kernel, points, rows, bound, tolerance, steps):
  machines = svm.fit(points, kernel, bound, tolerance, steps)
  of_rows = svm.similarities(machines, rows, kernel)
  coefficients = machines.coefficients.stack()
  return machines.supports, coefficients, machines.stopped, *of_rows


@functools.cache
def traced(kernel):
  """Returns `_everything` for points and rows of any size. It is traced once."""
  numbers = [tf.TensorSpec([None] * rank) for rank in (3, 2, 0, 0)]
  signature = [*numbers, tf.TensorSpec([], tf.int32)]
  function = functools.partial(_everything, svm_kernel.Kernel(kernel, 3))
  return tf.function(function, input_signature=signature, autograph=False)


def fit(points, kernel, bound, tolerance=1e-3, steps=50):
  """Returns (supports, coefficients by pair, share of machines that stopped at the limit)."""
  found = traced(kernel)(points, points[:, 0], bound, tolerance, steps)
  supports, coefficients, stopped = (t.numpy() for t in found[:3])
  return supports, by_pair(np.float64(coefficients), len(points)), stopped


def by_pair(coefficients, classes):
  """Returns {(a, b): [2 M]} from tiles [T, k, k, 2 M]."""
  width = coefficients.shape[1]
  starts = range(0, classes, width)
  tiles = itertools.combinations_with_replacement(starts, 2)
  found = dict(zip(tiles, coefficients, strict=True))
  return {
    (a, b): found[a - a % width, b - b % width][a % width, b % width]
    for a, b in itertools.combinations(range(classes), 2)
  }


def similarities(points, rows, bound, kernel):
  rows = np.float32(rows)
  found = traced(kernel)(points, rows, bound, 1e-6, 10**6)
  return [t.numpy() for t in found[3:]]


def normals(points, coefficients):
  return np.array(
    [of_pair @ np.concatenate([points[a], points[b]]) for (a, b), of_pair in coefficients.items()]
  )


@pytest.mark.parametrize('bound', [1 / 201, 0.1, 1.0])
@pytest.mark.parametrize('name', ['random', 'separable', 'overlapping', 'coincident'])
def test_linear_machines_are_scikit_learns(name, bound):
  points = problem(name)
  supports, coefficients, stopped = fit(points, 'linear', bound, 1e-6, 10**6)
  expected, _, machine = reference.fit(points, 'linear', bound, 1e-6, -1)
  np.testing.assert_array_equal(supports, expected)
  found = normals(points, coefficients)
  scale = np.abs(machine.coef_).max()
  np.testing.assert_allclose(found, machine.coef_, atol=1e-3 * scale)
  assert not stopped
  for of_pair in coefficients.values():
    assert abs(of_pair.sum()) < 1e-6
    assert np.abs(of_pair).max() <= np.float32(bound)


@pytest.mark.parametrize(
  'bound', [0.3, *(pytest.param(c, marks=pytest.mark.slow) for c in (1 / 201, 1))]
)
@pytest.mark.parametrize(
  'kernel', ['rbf', *(pytest.param(k, marks=pytest.mark.slow) for k in KERNELS[2:])]
)
def test_kernel_machines_are_scikit_learns(kernel, bound):
  points = problem('overlapping') / 2
  supports, coefficients, _ = fit(points, kernel, bound, 1e-6, 10**6)
  expected, dual, _ = reference.fit(points, kernel, bound, 1e-6, -1)
  np.testing.assert_array_equal(supports, expected)
  # Compare the values of every machine at all points, without the intercept.
  k = reference.KERNELS[kernel]
  everywhere = points.reshape(-1, points.shape[-1])
  for (a, b), of_pair in coefficients.items():
    both = np.concatenate([points[a], points[b]])
    values, wanted = (c @ k(both, everywhere) for c in (of_pair, dual[a, b]))
    spread = np.ptp(wanted)
    # A constant difference does not matter, because the intercept includes it.
    moved = values - wanted
    assert np.ptp(moved) <= 1e-3 * spread, (a, b)


@pytest.mark.parametrize('points', [2, 40, 110])
def test_the_bound_on_steps_is_scikit_learns(points):
  """40 points per class need more than the published 50 steps.

  With 100 points or more, distances are computed on demand.
  """
  points = problem('overlapping', classes=3, points=points)
  supports, coefficients, stopped = fit(points, 'linear', 1.0)
  expected, dual, machine = reference.fit(points, 'linear', 1.0)
  assert stopped == np.float32(np.mean(machine.n_iter_ >= 50))
  np.testing.assert_array_equal(supports, expected)
  found, wanted = normals(points, coefficients), normals(points, dual)
  np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)


def test_steps_may_be_as_many_as_an_int32_has():
  points = problem('overlapping')
  unbounded, many = (fit(points, 'linear', 0.3, 1e-3, steps) for steps in (2**31 - 1, 10**4))
  np.testing.assert_array_equal(unbounded[0], many[0])
  np.testing.assert_equal(unbounded[1], many[1])


@MOST_KERNELS_SLOW
def test_distances_on_demand_are_those_computed_at_once(kernel):
  points = problem('separable', classes=5, points=24) / 4
  on_demand, at_once = (fit(points, kernel, 0.05, 1e-2, steps) for steps in (12, 13))
  # The machines that stop before the limit are equal. The others differ by one step.
  np.testing.assert_array_equal(on_demand[0].shape, at_once[0].shape)
  same = [np.allclose(on_demand[1][pair], at_once[1][pair], atol=1e-6) for pair in at_once[1]]
  expected, dual, _ = reference.fit(points, kernel, 0.05, 1e-2, 12)
  wanted = [np.allclose(on_demand[1][pair], dual[pair], atol=2e-3) for pair in dual]
  assert np.mean(wanted) >= 0.8
  assert np.mean(same) + on_demand[2] >= 1 - 1e-6
  assert np.mean(on_demand[0] != expected) < 0.05


@pytest.mark.slow
def test_distances_in_float32_do_not_change_supports(monkeypatch):
  """The rows of a class differ by only 1e-4, as if clients hardly trained.

  If a row is far away, rounding could exceed the tolerance, so this fit uses float64.
  """
  random = np.random.default_rng(5)
  center = 0.3 * random.normal(size=[3, 1, 16])
  near = np.float32(center + 1e-4 * random.normal(size=[3, 110, 16]))
  far = near.copy()
  far[1, 7] *= 100
  wide = 0.1 * problem('overlapping', classes=3, points=110, dim=16)
  rows = near, far, wide
  arguments = [(t, t[:, 0], 1 / 201, 1e-3, 50) for t in rows]
  found = [traced('linear')(*of) for of in arguments]
  for points, (supports, coefficients, *_) in zip(rows, found, strict=True):
    expected, dual, _ = reference.fit(points - points.mean((0, 1)), 'linear', 1 / 201)
    np.testing.assert_array_equal(supports, expected)
    for pair, of_pair in by_pair(coefficients.numpy(), 3).items():
      np.testing.assert_allclose(of_pair, dual[pair], atol=1e-6)
  monkeypatch.setattr(svm_kernel, '_SINGLE', float('inf'))
  double = traced.__wrapped__('linear')
  _, of_far, of_wide = (double(*of)[-1] for of in arguments)
  np.testing.assert_array_equal(found[1][-1], of_far)
  assert not np.array_equal(found[2][-1], of_wide)


def test_sums_that_lose_small_numbers_in_float32_are_in_float64():
  """Each of a row's many small numbers is smaller than the rounding error of the first number."""
  along = np.float32([[1, 1, 1, 1], [0.8, -1, -1, -1]])
  points = along[:, :, None] * np.float32([1.0] + [2.3e-4] * 1024)
  _, coefficients, stopped = fit(points, 'linear', 60.0, 1e-3, 2)
  exact = np.float64(points)
  _, dual, _ = reference.fit(exact - exact.mean((0, 1)), 'linear', 60.0, 1e-3, 2)
  np.testing.assert_allclose(coefficients[0, 1], dual[0, 1], rtol=1e-4)
  assert not stopped


def test_a_coefficient_at_the_bound_is_exactly_the_bound():
  _, coefficients, _ = fit(problem('overlapping'), 'linear', 0.3)
  values = np.abs(np.concatenate([*coefficients.values()]))
  near = values > 0.3 - 1e-4
  assert near.sum() > 20
  np.testing.assert_array_equal(values[near], np.float32(0.3))


def test_a_class_with_one_point_is_a_support_vector():
  supports, coefficients, _ = fit(problem('random', points=1), 'linear', 0.5)
  assert supports.all()
  for (a, b), of_pair in coefficients.items():
    assert of_pair[0] == -of_pair[1] > 0, (a, b)


@MOST_KERNELS_SLOW
def test_similarities_are_those_of_the_definition(kernel):
  points = problem('overlapping', classes=4, dim=3) / 2
  rows = np.random.default_rng(0).normal(size=[4, 3])
  total, gradient = similarities(points, rows, 0.3, kernel)
  _, dual, _ = reference.fit(points, kernel, 0.3, 1e-6, -1)
  wanted = reference.similarity(points, dual, kernel, rows)
  np.testing.assert_allclose(total, wanted, rtol=1e-3)
  wanted = reference.similarity_gradient(points, dual, kernel, rows)
  np.testing.assert_allclose(gradient, wanted, atol=2e-3)
  assert np.abs(gradient).max() > 0.01


@MOST_KERNELS_SLOW
def test_classes_that_coincide_do_not_move_apart(kernel):
  """The normal vector of the pair is zero. All other pairs count."""
  points = problem('coincident', classes=3)
  rows = points[:, 0]
  total, gradient = similarities(points, rows, 0.5, kernel)
  assert 0 <= total <= 2
  np.testing.assert_array_equal(gradient[0], gradient[1])
  total, gradient = similarities(points[:2], rows[:2], 0.5, kernel)
  assert total == 0
  np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize(
  ('kernel', 'far'), [('linear', 300), pytest.param('polynomial', 60, marks=pytest.mark.slow)]
)
def test_one_class_far_away_does_not_hide_the_others(kernel, far):
  """The length of a normal vector is compared with the points of its own pair, not of all pairs."""
  random = np.random.default_rng(0)
  gap = 1e-3 if kernel == 'linear' else 0.3
  points = gap * random.normal(size=[5, 1, 6])
  points = points + 0.1 * gap * random.normal(size=[5, 4, 6])
  points[4] *= far / np.linalg.norm(points[4, 0])
  points = np.float32(points)
  rows = np.float64(points.mean(1))
  _, coefficients, _ = fit(points, kernel, 1.0)
  total, _ = similarities(points, rows, 1.0, kernel)
  exact = np.float64(points - points.mean((0, 1)) * (kernel == 'linear'))
  shift = (points - exact)[0, 0]
  wanted = reference.similarity(exact, coefficients, kernel, rows - shift)
  assert wanted > 0.05
  np.testing.assert_allclose(total, wanted, rtol=0.02)


def test_rows_that_nearly_coincide_are_exact():
  """Classes are 1e-5 apart and 30 from the origin, where float32 products are too inexact."""
  points = problem('separable', classes=3, points=4)
  points = np.float32(np.round(points * 1e-5 + 30, 6))
  supports, coefficients, _ = fit(points, 'linear', 1.0, 1e-6, 10**6)
  expected, dual, _ = reference.fit(points - points.mean((0, 1)), 'linear', 1.0, 1e-6, -1)
  np.testing.assert_array_equal(supports, expected)
  for pair, of_pair in coefficients.items():
    np.testing.assert_allclose(of_pair, dual[pair], atol=1e-5)


@pytest.mark.slow
def test_tiles_do_not_change_the_result(monkeypatch):
  """The last tile may be incomplete."""
  points = problem('overlapping', classes=11)
  rows = np.random.default_rng(0).normal(size=[11, 5])
  arguments = (points, np.float32(rows), 0.3, 1e-3, 50)
  in_three = traced('linear')(*arguments)
  monkeypatch.setattr(svm, '_CLASSES', 4)
  in_six = traced.__wrapped__('linear')(*arguments)
  assert (len(in_three[1]), len(in_six[1])) == (3, 6)
  for place in (0, 2, 3, 4):
    a, b = np.float32(in_three[place]), np.float32(in_six[place])
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_two_classes_and_the_published_tolerance():
  points = problem('overlapping', classes=2, points=8)
  supports, coefficients, _ = fit(points, 'linear', 0.5)
  expected, dual, machine = reference.fit(points, 'linear', 0.5)
  np.testing.assert_array_equal(supports, expected)
  found = normals(points, coefficients)
  np.testing.assert_allclose(found, -machine.coef_, atol=1e-2)
  np.testing.assert_allclose(found, normals(points, dual), atol=1e-2)
