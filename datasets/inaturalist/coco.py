"""Annotations in COCO's form, read as a stream: one category for each image."""

import array
import pathlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple
from typing import NoReturn

import numpy as np

from datasets import json_text
from datasets import zip_members
from datasets.splits import listing as listing_lib
from tff_xc import errors

GET_IT = 'get it from https://github.com/visipedia/inat_comp/tree/master/2017'


class Annotations(NamedTuple):
  """The images of a file and their categories.

  Attributes:
    ids: int64 [N], the images' ids, as they come.
    stems: their files' names without folder and suffix.
    categories: int64 [N], the id of each image's category.
    names: of all categories, by id.
  """

  ids: np.ndarray
  stems: listing_lib.Texts
  categories: np.ndarray
  names: dict[int, str]


class _Images:
  """Gathers `images`."""

  def __init__(self):
    self.ids = array.array('q')
    self.stems = listing_lib.TextParts()
    self._block = []

  def add(self, item: dict, fail: Callable[[str], NoReturn]) -> None:
    file_name = item.get('file_name')
    if not isinstance(file_name, str) or not file_name:
      fail('"file_name" as text')
    self.ids.append(whole(item, 'id', fail))
    self._block.append(file_name.rpartition('/')[2].rpartition('.')[0])
    if len(self._block) == listing_lib.BLOCK:
      self.end()

  def end(self) -> None:
    self.stems.add(self._block)
    self._block = []


def open_json(path: pathlib.Path) -> tuple[Any, json_text.Text]:
  """Opens a JSON file, also in a zip; returns the file and its text."""
  with json_text.readable(path, GET_IT):
    file = zip_members.open_text(path)
  return file, json_text.Text(path, file, GET_IT)


def objects(
  text: json_text.Text, what: str
) -> Iterator[tuple[dict, Callable[[str], NoReturn]]]:
  """Yields the objects of an array, each with what to call if it is damaged."""
  for number, item in enumerate(text.items(what)):

    def fail(expected: str, number=number, item=item) -> NoReturn:
      raise errors.InputError(
        f'{text.path}, {what}[{number}] is {str(item)[:80]}; expected {expected}:'
        f' {GET_IT}'
      )

    if not isinstance(item, dict):
      fail('an object')
    yield item, fail


def whole(item: dict, key: str, fail: Callable[[str], NoReturn]) -> int:
  """Returns a whole number of an object."""
  value = item.get(key)
  if type(value) is not int or not -(2**63) <= value < 2**63:
    fail(f'"{key}" as a whole number')
  return value


def read(path: pathlib.Path) -> Annotations:
  """Reads annotations; the file's keys may come in any order.

  Raises:
    errors.InputError: it is missing or damaged, an image has no category or
      several, or two images have one id or one name.
  """
  images, names = _Images(), {}
  of_image, categories = array.array('q'), array.array('q')

  def add_category(item, fail):
    if not isinstance(item.get('name'), str) or not item['name'].strip():
      fail('"name" as text')
    names[whole(item, 'id', fail)] = item['name'].strip()

  def add_annotation(item, fail):
    of_image.append(whole(item, 'image_id', fail))
    categories.append(whole(item, 'category_id', fail))

  takers = {
    'images': images.add,
    'categories': add_category,
    'annotations': add_annotation,
  }
  file, text = open_json(path)
  seen = set()
  with file:
    for key in text.keys('the file'):
      if key not in takers or key in seen:
        text.value(f'"{key}"')
        continue
      seen.add(key)
      for item, fail in listing_lib.watched(
        objects(text, key), f'reading {path.name}, {key}', 'row'
      ):
        takers[key](item, fail)
    text.end()
  if missing := [key for key in takers if key not in seen]:
    raise errors.InputError(
      f'{path} has no "{missing[0]}", expected an object with'
      f' {", ".join(takers)}; {GET_IT}'
    )
  images.end()
  ids = np.array(images.ids, np.int64)
  found = _by_image(
    path,
    ids,
    np.array(of_image, np.int64),
    np.array(categories, np.int64),
  )
  if unknown := sorted(set(np.unique(found).tolist()) - set(names)):
    raise errors.InputError(
      f'{path}: "annotations" has the category_id {unknown[0]}, which'
      f' "categories" has not; {GET_IT}'
    )
  return Annotations(ids, _distinct(path, images.stems), found, names)


def _by_image(path, ids, of_image, categories) -> np.ndarray:
  """Returns the category of each image, int64 [N]."""
  if not len(ids):
    raise errors.InputError(f'{path} has no images; {GET_IT}')
  order = np.argsort(ids, kind='stable')
  ranked = ids[order]
  if (same := np.flatnonzero(ranked[1:] == ranked[:-1])).size:
    raise errors.InputError(
      f'{path}: two images have the id {ranked[same[0]]}; {GET_IT}'
    )
  rank = np.searchsorted(ranked, of_image)
  known = rank < len(ids)
  known[known] = ranked[rank[known]] == of_image[known]
  if not known.all():
    raise errors.InputError(
      f'{path}: "annotations" has the image_id {of_image[~known][0]}, which'
      f' "images" has not; {GET_IT}'
    )
  counts = np.bincount(rank, minlength=len(ids))
  if (other := np.flatnonzero(counts != 1)).size:
    raise errors.InputError(
      f'{path}: the image {ranked[other[0]]} has {counts[other[0]]} annotations,'
      f' expected one; {GET_IT} (not the bounding boxes)'
    )
  found = np.empty(len(ids), np.int64)
  found[order[rank]] = categories
  return found


def _distinct(path, stems: listing_lib.TextParts) -> listing_lib.Texts:
  found = stems.texts()
  if twice := stems.repeated():
    name = found.take(np.array(twice[:1]))[0]
    raise errors.InputError(
      f'{path}: two images have files of the name {name!r}; {GET_IT}'
    )
  return found
