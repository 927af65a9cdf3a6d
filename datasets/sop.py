"""Reads the published lists of training and test images of Stanford Online Products.

  Ebay_train.txt, Ebay_test.txt
    image_id class_id super_class_id path
    1 1 1 bicycle_final/111085122871_0.JPG

No class is in both lists.
"""

import os
import pathlib

import numpy as np
import pandas as pd

from datasets import examples as examples_lib
from datasets.readers import zipped
from tff_xc import errors

TRAIN, TEST = 'Ebay_train.txt', 'Ebay_test.txt'
HEADER = ('image_id', 'class_id', 'super_class_id', 'path')
# The folder in the published zip.
FOLDER = 'Stanford_Online_Products'


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Reads both lists from a folder or zip; the image files may be absent.

  Classes are numbered in the order of their ids. The images of the test list become the
  retrieval examples, and their classes are numbered after all training classes. For the
  published lists, a class's number is its id minus 1. Raises `errors.InputError` if a list
  is missing or damaged, an image is listed twice, or the lists have a class in common.
  """
  lists, parts, facts = {name: _list(pathlib.Path(path), name) for name in (TRAIN, TEST)}, [], {}
  both = pd.concat(lists.values())
  if both.path.duplicated().any() or {*lists[TRAIN].class_id} & {*lists[TEST].class_id}:
    raise errors.InputError(
      f'{path}: an image is listed twice, or a class is in both lists; get the lists again'
    )
  for name, rows in lists.items():
    ids, labels = np.unique(rows.class_id, return_inverse=True)
    facts[f'images in {name}'] = len(rows)
    facts[f'classes in {name}'] = len(ids)
    names = list(map(str, ids.tolist()))
    texts = examples_lib.texts([rows.path.tolist()])
    parts.append(examples_lib.Examples(labels.astype(np.int32), names, texts, facts=facts))
  return examples_lib.of_parts(parts[0], retrieval=parts[1])


def _list(path: pathlib.Path, name: str) -> pd.DataFrame:
  for file in (path / name, path / FOLDER / name):
    if zipped.is_file(file):
      break
  else:
    raise errors.InputError(f'--input={path} has no {name}; give the folder {FOLDER} or its .zip')
  with zipped.open_bytes(file) as opened:
    try:
      rows = pd.read_csv(opened, sep=' ', dtype={'class_id': np.int64, 'path': str})
      is_sound = tuple(rows.columns) == HEADER and len(rows) and not rows.isna().any(axis=None)
    except (*zipped.DAMAGE, ValueError):
      is_sound = False
  if not is_sound:
    raise errors.InputError(
      f'{file}: expected lines {" ".join(HEADER)!r}, numbers and a path; get the list again'
    )
  return rows
