"""Clients that are cells of S2, Google's division of the sphere.

The six faces of a cube are cells of level 0, and each cell has four children, to
level 30. A cell's id has 64 bits: three for the face, two for each level, then a
one and zeros; so a cell's parents are prefixes of it. https://s2geometry.io.
"""

from collections.abc import Sequence

import numpy as np

from tff_xc import errors
from tff_xc.data import partition as partition_lib

LEVELS = 30


def leaves(positions: np.ndarray) -> np.ndarray:
  """Returns uint64 [N], the cells of level 30.

  Args:
    positions: float64 [N, 2], latitude and longitude in degrees.
  """
  import s2geometry as s2

  point = s2.S2LatLng.FromDegrees
  ids = (s2.S2CellId(point(*both)).id() for both in positions.tolist())
  return np.fromiter(ids, np.uint64, len(positions))


def parents(cells: np.ndarray, level: int) -> np.ndarray:
  """Returns uint64 [N], the cells of a level that contain cells of level 30."""
  lowest = np.uint64(1) << np.uint64(2 * (LEVELS - level))
  return (cells & (~lowest + np.uint64(1))) | lowest


def token(cell: int) -> str:
  """Returns S2's text of a cell: its id in hexadecimal digits, without zeros."""
  return f'{cell:016x}'.rstrip('0')


def divide(cells: np.ndarray, most: int) -> np.ndarray:
  """Divides the sphere until no cell has more than `most` of some points.

  Cells of level 30 are not divided: points at one place stay together.

  Args:
    cells: uint64 [N], the points' cells of level 30.
    most: points of a cell.

  Returns:
    uint64 [N], the cell of each point.
  """
  found = np.empty(len(cells), np.uint64)
  rest = np.arange(len(cells))
  for level in range(LEVELS + 1):
    above = parents(cells[rest], level)
    _, code, counts = np.unique(above, return_inverse=True, return_counts=True)
    small = (counts <= most)[code] | (level == LEVELS)
    found[rest[small]] = above[small]
    rest = rest[~small]
  return found


def partition(
  positions: np.ndarray, numbers: Sequence[int], most: int, least: float
) -> partition_lib.Partition:
  """Makes a client of each cell; its id is the cell's token.

  Args:
    positions: float64 [N, 2], latitude and longitude; NaN: unknown, nobody's.
    numbers: the examples that may be dealt.
    most: examples of a client, except where more are at one place.
    least: cells with fewer examples are left out.

  Raises:
    errors.InputError: no cell remains.
  """
  numbers = np.asarray(numbers)
  numbers = numbers[~np.isnan(positions[numbers, 0])]
  cells = divide(leaves(positions[numbers]), most)
  ids, code, counts = np.unique(cells, return_inverse=True, return_counts=True)
  enough = counts >= least
  if not enough.any():
    raise errors.InputError(
      f'no S2 cell has {least:g} of the {len(numbers):,} images whose place is'
      ' known; lower --least_share'
    )
  owners = np.full(len(positions), -1)
  owners[numbers[enough[code]]] = (np.cumsum(enough) - 1)[code[enough[code]]]
  return partition_lib.of_places(owners, list(map(token, ids[enough].tolist())))
