"""Reads the lists of Stanford Online Products, as their owners distribute them.

  Ebay_train.txt, Ebay_test.txt
    image_id class_id super_class_id path
    1 1 1 bicycle_final/111085122871_0.JPG

The classes of the test list are others than those that are trained on.
"""

import os
import pathlib
from collections.abc import Iterator

import numpy as np

from datasets import examples as examples_lib, zip_members
from tff_xc import errors

TRAIN, TEST = 'Ebay_train.txt', 'Ebay_test.txt'
HEADER = ('image_id', 'class_id', 'super_class_id', 'path')
# The name of the set's folder, which the zip has.
FOLDER = 'Stanford_Online_Products'


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Lists the images of both lists, of a folder or zip; the images may be absent.

  Classes are numbered in the order of their ids. Those of the test list, the part
  `retrieval`, come after all that are trained on: in the published lists, a class
  is its id less 1. Raises `errors.InputError` if a list is missing or damaged, an
  image is there twice, or the lists have a class in common.
  """
  parts, seen, trained, facts = [], {}, set(), {}
  for name in (TRAIN, TEST):
    file = _find(pathlib.Path(path), name)
    classes, images = [], []
    for where, label, image in _rows(file):
      if image in seen:
        raise errors.InputError(
          f'{where}: {image} is in {seen[image]} already; give each image once'
        )
      if label in trained:
        raise errors.InputError(
          f'{where}: class {label} is also in {TRAIN}, and the test is of other'
          ' classes; give the lists as distributed'
        )
      seen[image] = where
      classes.append(label)
      images.append(image)
    if not images:
      raise errors.InputError(f'{file} has no images; get it again')
    trained = set(classes)
    ids, labels = np.unique(classes, return_inverse=True)
    facts[f'images in {name}'] = len(images)
    facts[f'classes in {name}'] = len(ids)
    names = list(map(str, ids.tolist()))
    texts = examples_lib.texts([images])
    labels = labels.astype(np.int32)
    parts.append(examples_lib.Examples(labels, names, texts, facts=facts))
  return examples_lib.of_parts(parts[0], retrieval=parts[1])


def _find(path: pathlib.Path, name: str) -> pathlib.Path:
  for file in (path / name, path / FOLDER / name):
    if zip_members.is_file(file):
      return file
  raise errors.InputError(f'--input={path} has no {name}; give the folder {FOLDER} or its .zip')


def _rows(file: pathlib.Path) -> Iterator[tuple[str, int, str]]:
  """Yields each image's line, for errors, class and path."""

  def is_number(text):
    return text.isdecimal() and len(text) < 10

  lines = zip_members.text_lines(file, 'get the list again')
  for number, line in enumerate(lines, 1):
    where, fields = f'{file}, line {number}', line.split(maxsplit=3)
    if number == 1 and tuple(line.split()) != HEADER:
      raise errors.InputError(
        f'{where}: expected {" ".join(HEADER)!r}; give the list as distributed'
      )
    if number == 1 or not fields:
      continue
    if len(fields) < 4 or not all(map(is_number, fields[:3])):
      raise errors.InputError(
        f'{where}: {line.strip()[:60]!r} is not {" ".join(HEADER)!r}, three'
        ' numbers and a path; mend it'
      )
    yield where, int(fields[1]), fields[3].strip()
