"""S2 cells: against the library s2cell, one cell at a time."""

import numpy as np
import pytest
import s2cell

from datasets.inaturalist import cells
from tests.datasets.inaturalist import on_disk
from tff_xc import errors


def positions(seed, count=800):
  return np.array(on_disk.places(np.random.default_rng(seed), count))


def by_loops(points, most):
  """Divides cells one by one: {token: numbers}."""

  def inside(numbers, level):
    found = {}
    for i in numbers:
      token = s2cell.lat_lon_to_token(*points[i].tolist(), level)
      found.setdefault(token, []).append(i)
    return found

  waiting = [(0, n) for n in inside(range(len(points)), 0).items()]
  leaves = {}
  while waiting:
    level, (token, numbers) = waiting.pop()
    if len(numbers) <= most or level == 30:
      leaves[token] = numbers
    else:
      waiting += [(level + 1, n) for n in inside(numbers, level + 1).items()]
  return leaves


def clients(partition):
  return {
    name: partition.numbers[
      partition.offsets[k] : partition.offsets[k + 1]
    ].tolist()
    for k, name in enumerate(partition.client_ids)
  }


@pytest.mark.parametrize('level', range(0, 31, 3))
def test_a_cell_is_that_of_another_library(level):
  points = positions(3)
  expected = [s2cell.lat_lon_to_cell_id(*p, level) for p in points.tolist()]
  found = cells.parents(cells.leaves(points), level).tolist()
  assert found == expected
  assert list(map(cells.token, found)) == list(
    map(s2cell.cell_id_to_token, expected)
  )


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('most', [1, 10, 95, 1000])
def test_clients_are_those_of_loops(seed, most):
  points = positions(seed)
  found = clients(cells.partition(points, range(len(points)), most, 0))
  assert found == by_loops(points, most)
  # Every point has one client, and no client has too many, but at one place.
  held = [i for numbers in found.values() for i in numbers]
  assert sorted(held) == list(range(len(points)))
  for numbers in found.values():
    assert len(numbers) <= most or len(np.unique(points[numbers], axis=0)) == 1


def test_small_cells_and_unknown_places_are_left_out():
  points = positions(0)
  points[::7] = np.nan
  some = np.arange(0, len(points), 2)
  found = clients(cells.partition(points, some, 40, 5))
  known = [i for i in some.tolist() if i % 7]
  expected = {
    token: [known[i] for i in numbers]
    for token, numbers in by_loops(points[known], 40).items()
    if len(numbers) >= 5
  }
  assert found == expected
  assert len(found) < len(by_loops(points[known], 40))


def test_cells_with_just_enough_images_remain():
  points = np.repeat([[10.5, 10.5], [10.5, -10.5]], [5, 4], axis=0)
  assert cells.partition(points, range(9), 5, 5).sizes.tolist() == [5]


def test_points_at_one_place_are_not_divided():
  found = cells.partition(np.full((9, 2), 10.5), range(9), 2, 0)
  assert found.sizes.tolist() == [9]
  assert found.client_ids == [s2cell.lat_lon_to_token(10.5, 10.5, 30)]


def test_no_cell_remains():
  for points in (np.full((9, 2), np.nan), positions(0, 20)):
    with pytest.raises(errors.InputError, match='no S2 cell has 100 of'):
      cells.partition(points, range(len(points)), 10_000, 100)
