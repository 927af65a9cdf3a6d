"""Where and by whom images were taken: an array of {id, lat, lon, date, user_id}."""

import math
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

from datasets.inaturalist import coco
from datasets.splits import listing as listing_lib
from tff_xc import errors


class Locations(NamedTuple):
  """What a file says of some images.

  Attributes:
    positions: float64 [N, 2], latitude and longitude in degrees; NaN: unknown, or
      no such place.
    users: int32 [N], places in `user_names`; -1: unknown.
    user_names: the users.
  """

  positions: np.ndarray
  users: np.ndarray
  user_names: list[str]


def read(path: pathlib.Path, ids: np.ndarray) -> Locations:
  """Reads a file as a stream.

  Args:
    path: the file, which may lie in a zip.
    ids: int64 [N], the ids of the images that matter, each once.

  Raises:
    errors.InputError: it is damaged, has an image twice, or none of these images.
  """
  place = {number: i for i, number in enumerate(ids.tolist())}
  positions = np.full((len(ids), 2), np.nan)
  users, codes = np.full(len(ids), -1, np.int32), {}
  seen = np.zeros(len(ids), bool)
  file, text = coco.open_json(path)
  with file:
    for item, fail in listing_lib.watched(
      coco.objects(text, 'the array'), f'reading {path.name}', 'row'
    ):
      row = place.get(coco.whole(item, 'id', fail))
      if row is None:
        continue
      if seen[row]:
        fail('each "id" once')
      seen[row] = True
      latitude, longitude = (_degrees(item, n, fail) for n in ('lat', 'lon'))
      if abs(latitude) <= 90 and abs(longitude) <= 180:  # False for NaN.
        positions[row] = latitude, longitude
      if name := _name(item.get('user_id'), fail):
        users[row] = codes.setdefault(name, len(codes))
    text.end()
  if not seen.any():
    raise errors.InputError(
      f'{path} has none of the {len(ids):,} images; give files of one year'
    )
  return Locations(positions, users, list(codes))


def _degrees(item: dict, key: str, fail) -> float:
  """Returns a number of degrees, NaN for null."""
  value = item.get(key)
  if value is None:
    return math.nan
  if type(value) not in (int, float):
    fail(f'"{key}" as a number, or null')
  return float(value)


def _name(value: Any, fail) -> str | None:
  """Returns the name of a user; None: unknown. Tables write 12 as 12.0."""
  if isinstance(value, float):
    value = int(value) if value.is_integer() else None
  if value is None:
    return None
  if type(value) not in (int, str):
    fail('"user_id" as a number or text, or null')
  name = str(value).strip()
  return name if name not in ('', 'NA') else None
