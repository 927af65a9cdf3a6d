"""Nearest rows in blocks and strips, compared with NumPy."""

import functools
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import numpy_fedaws
from tff_xc.round import nearest


@pytest.mark.parametrize('count', [4, 11, 12, 40])
def test_nearest_finds_the_same_in_blocks_of_any_size(small_blocks, count):
  rows = numpy_fedaws.unit_rows(count)
  similarities, places = nearest.nearest(rows, tf.range(count), rows, 3)
  expected = numpy_fedaws.neighbours(rows.astype(np.float64), 3)
  np.testing.assert_array_equal(places, expected)
  np.testing.assert_allclose(
    similarities, np.take_along_axis(rows @ rows.T, expected, 1), atol=1e-6
  )


def test_queries_may_be_a_part_of_the_rows_or_none_of_them(small_blocks):
  rows = numpy_fedaws.unit_rows(30)
  part = np.array([29, 3, 17], np.int32)
  _, places = nearest.nearest(rows[part], part, rows, 2)
  expected = numpy_fedaws.neighbours(rows.astype(np.float64), 2)
  np.testing.assert_array_equal(places, expected[part])
  _, places = nearest.nearest(rows[part], np.int32([-1, -1, -1]), rows, 1)
  np.testing.assert_array_equal(places[:, 0], part)


def test_equal_rows_are_neighbours_by_their_place(small_blocks):
  rows = np.repeat(numpy_fedaws.unit_rows(2), 12, axis=0)
  _, places = nearest.nearest(rows, tf.range(24), rows, 3)
  np.testing.assert_array_equal(places[0], [1, 2, 3])
  np.testing.assert_array_equal(places[2], [0, 1, 3])
  np.testing.assert_array_equal(places[11], [0, 1, 2])
  np.testing.assert_array_equal(places[23], [12, 13, 14])


@pytest.mark.parametrize(
  'different', [60, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 10**6))]
)
def test_the_largest_of_parts_are_the_largest_with_ties_by_place(different):
  largest = tf.function(nearest._top)
  random = np.random.default_rng(0)
  sizes = (1, 1), (16, 1), (95, 2), (1000, 11), (1024, 90), (17, 17)
  for size, k in (*sizes, (101, 1), (1025, 16), (4001, 11)):
    values = random.integers(0, different, [40, size]).astype(np.float32)
    values[1] = np.sort(values[1])
    expected = tf.math.top_k(-values, k)
    found = largest(tf.constant(-values), tf.constant(k))
    np.testing.assert_array_equal(found[0], expected.values)
    np.testing.assert_array_equal(found[1], expected.indices)


@pytest.mark.parametrize(('k', 'passes'), [(11, 2), (90, 1)])
def test_parts_are_compared_only_where_that_takes_less_time(monkeypatch, k, passes):
  calls, plain = [], tf.math.top_k

  def counted(*args, **more):
    return calls.append(1) or plain(*args, **more)

  monkeypatch.setattr(tf.math, 'top_k', counted)
  nearest._top(tf.random.normal([2, 1024]), tf.constant(k))
  assert len(calls) == passes


def test_no_file_of_autograph_is_written(monkeypatch):
  """Such a file would stay in the temporary folder if the run is killed."""
  written = []
  monkeypatch.setattr(tempfile, 'NamedTemporaryFile', lambda **how: written.append(how))
  rows = numpy_fedaws.unit_rows(5)

  # Tracing converts a function, so the test needs no execution.
  tff.tensorflow.computation(lambda: nearest.nearest(rows, tf.range(5), rows, 1))
  assert written == []


def masks(rows, k):
  """Returns the joined results of all strips."""

  # TFF traces without autograph, too. Autograph's conversion would take seconds.
  @functools.partial(tf.function, autograph=False)
  def find(rows):
    strips = nearest.similarities(rows)
    return [nearest.neighbours(strip, k) for strip in strips]

  strips = find(tf.constant(rows))
  return [np.concatenate(parts) for parts in zip(*strips, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
  ('kind', 'k'),
  [
    pytest.param('normal', 1, marks=pytest.mark.slow),
    ('normal', 30),
    pytest.param('normal', 99, marks=pytest.mark.slow),
    pytest.param('groups', 30, marks=pytest.mark.slow),
    pytest.param('negative', 30, marks=pytest.mark.slow),
  ],
)
def test_the_k_nearest_have_a_one(kind, k):
  rows = numpy_fedaws.unit_rows(100, dim=9)
  if kind == 'groups':  # The distribution is far from normal, so most guesses are too high.
    rows = numpy_fedaws.normalised(0.05 * rows + np.eye(9)[np.arange(100) % 4])
  if kind == 'negative':  # Two groups of opposite rows, and rows at right angles to them.
    rows = numpy_fedaws.normalised(0.3 * rows + np.eye(9)[[0] * 50 + [1] * 50])
    rows[50:] *= -1
  rows = rows.astype(np.float32)
  mask, least, known = masks(rows, k)
  expected = np.zeros([100, 100])
  similar = tf.concat(nearest.similarities(rows), axis=0).numpy()
  np.testing.assert_array_equal(similar, similar.T)
  np.testing.assert_array_equal(np.diag(similar), np.full(100, -2))
  off = ~np.eye(100, dtype=bool)
  np.testing.assert_allclose(similar[off], (rows @ rows.T)[off], atol=1e-6)
  places = np.argsort(-similar, axis=1, kind='stable')[:, :k]
  np.put_along_axis(expected, places, 1, axis=1)
  assert known.all()
  np.testing.assert_array_equal(mask, expected)
  np.testing.assert_array_equal(least, np.take_along_axis(similar, places[:, -1:], 1)[:, 0])


@pytest.mark.slow
def test_a_row_in_a_tie_has_no_neighbours():
  rows = np.repeat(np.eye(4, dtype=np.float32), [5, 5, 5, 1], axis=0)
  mask, least, known = masks(rows, 4)  # The four other rows of a group are equal.
  np.testing.assert_array_equal(known, [True] * 15 + [False])
  np.testing.assert_array_equal(mask.sum(1), [4] * 15 + [0])
  assert least[-1] == 2
  mask, least, known = masks(rows, 3)
  assert not known.any() and not mask.any() and (least == 2).all()
