"""Compares the search of nearest rows with NumPy, in blocks of any size."""

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


def test_no_file_of_autograph_is_written(monkeypatch):
  """One would stay in the temporary folder if the run is killed."""
  written = []
  monkeypatch.setattr(
    tempfile, 'NamedTemporaryFile', lambda **how: written.append(how)
  )
  rows = numpy_fedaws.unit_rows(5)

  # Traced, which is where a body is converted; nothing is run.
  tff.tensorflow.computation(
    lambda: nearest.nearest(rows, tf.range(5), rows, 1)
  )
  assert written == []
