"""Compares the spreadout step with NumPy, and tests the cost of its graph."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import numpy_fedaws
from tff_xc.algorithms import spreadout
from tff_xc.round import nearest


@pytest.mark.parametrize('distance', spreadout.DISTANCES)
@pytest.mark.parametrize('k', [0, 1, 4, 40])
def test_the_gradient_of_eq_8(small_blocks, distance, k):
  rows = numpy_fedaws.unit_rows(33)
  step = spreadout.Spreadout(1.0, k, distance)
  expected = numpy_fedaws.spread_gradient(rows.astype(np.float64), k, distance)
  np.testing.assert_allclose(step.gradient(rows), expected, atol=1e-4)


@pytest.mark.parametrize(
  ('count', 'distance', 'tangent'),
  [
    (0, 'sq_euclidean', False),
    (1, 'cosine', True),
    (64, 'sq_euclidean', False),
    pytest.param(150, 'sq_euclidean', False, marks=pytest.mark.slow),
    pytest.param(150, 'cosine', True, marks=pytest.mark.slow),
  ],
)
def test_many_neighbours_are_those_of_the_search(count, distance, tangent):
  """Some of the random rows are equal, and some are opposite to other rows."""
  rows = numpy_fedaws.unit_rows(count, dim=24)
  if count == 150:
    rows[10:20] = rows[:10]
    rows[40:60] = rows[40]
    rows[60:70] = -rows[:10]
  step = spreadout.Spreadout(1.0, spreadout._MANY, distance, tangent=tangent)
  found = tf.function(step.gradient, autograph=False)(rows)
  with mock.patch.object(spreadout, '_MANY', 1000):
    expected = tf.function(step.gradient, autograph=False)(rows)
  np.testing.assert_allclose(found, expected, atol=1e-4)


def test_many_neighbours_are_found_without_a_search(monkeypatch):
  searched = []
  search = nearest.nearest

  def spy(queries, *rest):
    searched.append(queries.shape[0])
    return search(queries, *rest)

  monkeypatch.setattr(nearest, 'nearest', spy)
  monkeypatch.setattr(spreadout, '_MANY', 4)
  rows = tf.constant(numpy_fedaws.unit_rows(40))
  spreadout.Spreadout(1.0, 4).gradient(rows)
  assert searched == [0]
  monkeypatch.setattr(spreadout, '_SIMILARITIES', 39**2)
  spreadout.Spreadout(1.0, 4).gradient(rows)
  assert searched == [0, 40]


@pytest.mark.slow
def test_many_neighbours_run_in_tffs_worker_also_in_a_condition(tff_worker):
  rows = numpy_fedaws.unit_rows(100, dim=8)
  step = spreadout.Spreadout(0.01, spreadout._MANY)

  @tff.tensorflow.computation(tff.TensorType(np.float32, [None, 8]), np.bool_)
  def steps(rows, has_update):
    return tf.cond(has_update, lambda: step(rows), lambda: rows)

  np.testing.assert_allclose(steps(rows, True), step(rows), atol=1e-5)


@pytest.mark.parametrize('distance', spreadout.DISTANCES)
def test_the_gradient_of_eq_7(small_blocks, distance):
  rows = numpy_fedaws.unit_rows(12)
  step = spreadout.Spreadout(1.0, 3, distance, margin=0.9)
  expected = numpy_fedaws.spread_gradient(rows.astype(np.float64), 0, distance, 0.9)
  np.testing.assert_allclose(step.gradient(rows), expected, atol=1e-3)


def test_a_tangent_step_goes_across_the_rows():
  rows = 3.0 * numpy_fedaws.unit_rows(20)
  plain = spreadout.Spreadout(1.0, 2).gradient(rows)
  tangent = spreadout.Spreadout(1.0, 2, tangent=True).gradient(rows)
  along = tf.reduce_sum(tangent * rows, axis=1)
  np.testing.assert_allclose(along, np.zeros(20), atol=1e-5)
  units = rows / 3.0
  across = plain - tf.reduce_sum(plain * units, 1, keepdims=True) * units
  np.testing.assert_allclose(tangent, across / 3.0, atol=1e-5)


@pytest.mark.parametrize('count', [0, 1, 2])
@pytest.mark.parametrize('k', [0, 5])
def test_few_rows_or_none(count, k):
  rows = tf.constant(numpy_fedaws.unit_rows(count))
  for margin in (0.0, 0.5):
    step = spreadout.Spreadout(0.1, k, margin=margin)
    after = tf.function(step, autograph=False)(rows)
    assert after.shape == rows.shape
    assert np.isfinite(after).all()
    if count == 1:
      np.testing.assert_array_equal(after, rows)
