"""Reads the lists of Stanford Online Products, as their owners distribute them.

  Ebay_train.txt, Ebay_test.txt
    image_id class_id super_class_id path
    1 1 1 bicycle_final/111085122871_0.JPG

The classes of the test list are others than those that are trained on.
"""

import os
import pathlib
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets import zip_members
from tff_xc import errors

TRAIN, TEST = 'Ebay_train.txt', 'Ebay_test.txt'
HEADER = ('image_id', 'class_id', 'super_class_id', 'path')
# The name of the set's folder, which the zip has.
FOLDER = 'Stanford_Online_Products'


class _List(NamedTuple):
  """A list: k class ids and paths, and their lines."""

  file: pathlib.Path
  classes: np.ndarray
  images: list[str]
  lines: list[int]


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Lists the images of both lists, of a folder or zip; the images may be absent.

  Classes are numbered in the order of their ids. Those of the test list, the part
  `retrieval`, come after all that are trained on: in the published lists, a class
  is its id less 1. Raises `errors.InputError` if a list is missing or damaged, an
  image is there twice, or the lists have a class in common.
  """
  train, test = (_read(_find(pathlib.Path(path), n)) for n in (TRAIN, TEST))
  _check_once(train, test)
  if len(both := np.intersect1d(train.classes, test.classes)):
    row = test.classes.tolist().index(both[0])
    raise errors.InputError(
      f'{test.file}, line {test.lines[row]}: class {both[0]} is also in'
      f' {train.file.name}, and the test is of other classes; give the lists as'
      ' distributed'
    )
  parts, facts = [], {}
  for found in (train, test):
    ids, labels = np.unique(found.classes, return_inverse=True)
    facts[f'images in {found.file.name}'] = len(found.images)
    facts[f'classes in {found.file.name}'] = len(ids)
    parts.append(
      examples_lib.Examples(
        labels.astype(np.int32),
        list(map(str, ids.tolist())),
        examples_lib.texts([found.images]),
        facts=facts,
      )
    )
  return examples_lib.of_parts(parts[0], retrieval=parts[1])


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  for file in (path / name, path / FOLDER / name):
    if zip_members.is_file(file):
      return file
  raise errors.InputError(
    f'--input={path} has no {name}; give the folder {FOLDER} or its .zip'
  )


def _read(file: pathlib.Path) -> _List:
  try:
    with zip_members.open_text(file) as text:
      return _parsed(file, zip_members.lines(text, file))
  except zip_members.DAMAGE as e:
    raise errors.InputError(
      f'{file} is no list that can be read ({e}); get it again'
    ) from e


def _parsed(file: pathlib.Path, rows) -> _List:
  if tuple(next(rows, '').split()) != HEADER:
    raise errors.InputError(
      f'{file}, line 1: expected {" ".join(HEADER)!r}; give the list as distributed'
    )
  classes, images, lines = [], [], []
  for number, line in enumerate(rows, 2):
    fields = line.split(maxsplit=3)
    if not fields:
      continue
    if len(fields) < 4 or not all(map(_is_number, fields[:3])):
      raise errors.InputError(
        f'{file}, line {number}: {line.strip()[:60]!r} is not'
        f' {" ".join(HEADER)!r}, three numbers and a path; mend it'
      )
    classes.append(int(fields[1]))
    images.append(fields[3].strip())
    lines.append(number)
  if not images:
    raise errors.InputError(f'{file} has no images; get it again')
  return _List(file, np.array(classes), images, lines)


def _is_number(text: str) -> bool:
  return text.isascii() and text.isdecimal() and len(text) < 10


def _check_once(*lists: _List) -> None:
  seen = {}
  for found in lists:
    for image, line in zip(found.images, found.lines, strict=True):
      if image in seen:
        raise errors.InputError(
          f'{found.file}, line {line}: {image} is in {seen[image]} already; give'
          ' each image once'
        )
      seen[image] = f'{found.file.name}, line {line},'
