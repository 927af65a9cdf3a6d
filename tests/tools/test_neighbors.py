"""Which nearest class rows belong to labels that occur together."""

import importlib.util
import pathlib

import numpy as np

_FILE = pathlib.Path(__file__).parents[2] / 'tools' / 'neighbors.py'


def test_the_nearest_rows_come_first_and_a_class_is_not_its_own_neighbor():
  spec = importlib.util.spec_from_file_location('neighbors', _FILE)
  neighbors = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(neighbors)
  # Two pairs of near rows of different lengths. Only the first pair occurs together.
  rows = np.array([[1, 0.0], [3, 0.3], [0, 1], [-0.2, 2]])
  together = np.eye(4, dtype=bool)
  together[0, 1] = together[1, 0] = True
  assert neighbors.shares(rows, together, (1, 3, 0)) == [0.5, 1 / 6, 1 / 6]
