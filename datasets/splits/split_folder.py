"""Reads the files of a split, as `launch.make_splits` writes them.

  federated_train.csv  user_id,image_id,class
  test.csv             image_id,class
  retrieval.csv        image_id,class, of other classes
  classes.csv          class,name

The published splits of FedVC and FedIR have the first two forms.
"""

import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import names as names_lib
from tff_xc import errors

TRAIN, TEST, CLASSES = 'federated_train.csv', 'test.csv', 'classes.csv'
RETRIEVAL = 'retrieval.csv'


class Split(NamedTuple):
  """The content of a split's files.

  Attributes:
    train: ids, labels and users. Labels are places in `class_names`.
    test: ids and labels; None: the split has no test part.
    class_names: the classes in the order of their numbers, by their names in
      classes.csv where there is one.
    class_ids: the same classes as the files have them.
    retrieval: ids and labels of examples of other classes, whose labels are places
      in its own `class_names`; None: the split has no such part.
  """

  train: listing_lib.Listing
  test: listing_lib.Listing | None
  class_names: Sequence[str]
  class_ids: Sequence[str]
  retrieval: listing_lib.Listing | None = None


def read(split: str | os.PathLike, test_file: str | os.PathLike = '') -> Split:
  """Reads the files of a split.

  Args:
    split: its folder, or a CSV `user_id,image_id,class`. A classes.csv beside
      the CSV names its classes; test.csv and retrieval.csv count only in a folder.
    test_file: a CSV `image_id,class` in place of the folder's test.csv.

  Raises:
    errors.InputError: a file is missing or damaged, or classes.csv lacks a class.
  """
  path = pathlib.Path(split)
  folder, file = (path, path / TRAIN) if path.is_dir() else (path.parent, path)
  train = _listing(file, 'user_id')
  test = None
  if test_file:
    test = read_test(test_file)
  elif path.is_dir() and (path / TEST).is_file():
    test = read_test(path / TEST)
  retrieval = None
  if path.is_dir() and (path / RETRIEVAL).is_file():
    retrieval = read_test(path / RETRIEVAL)
  ids = {*train.class_names, *(test.class_names if test else ())}
  named = {}
  if (folder / CLASSES).is_file():
    named = _class_names(folder / CLASSES)
    if missing := names_lib.in_order(ids - set(named)):
      raise errors.InputError(
        f'{folder / CLASSES} has no class {missing[0]!r}, which {file} or its'
        ' test part has; add it, or take the file away'
      )
  ids = names_lib.in_order(ids | set(named))
  place = {name: i for i, name in enumerate(ids)}
  return Split(
    _renumbered(train, place),
    test and _renumbered(test, place),
    [named.get(name, name) for name in ids],
    ids,
    retrieval,
  )


def read_test(path: str | os.PathLike) -> listing_lib.Listing:
  """Reads a CSV `image_id,class`; other columns do not count."""
  return _listing(pathlib.Path(path), None)


def _listing(path: pathlib.Path, user: str | None) -> listing_lib.Listing:
  if not path.is_file():
    columns = 'user_id,image_id,class' if user else 'image_id,class'
    raise errors.InputError(
      f'{path} is no file; give a CSV {columns}, as `python -m'
      ' launch.make_splits` writes it'
    )
  columns = inputs.Columns('class', user, 'image_id')
  found = inputs.table(path, columns)
  if not len(found):
    raise errors.InputError(f'{path} has no examples; give a line for each')
  return found


def _class_names(path: pathlib.Path) -> dict[str, str]:
  """Returns the names of classes by their ids, from a CSV `class,name`."""
  found = inputs.table(path, inputs.Columns('name', None, 'class'))
  ids = found.ids.take(np.arange(len(found)))
  names = [found.class_names[label] for label in found.labels]
  if len(set(names)) < len(names):
    twice = next(name for name in names if names.count(name) > 1)
    raise errors.InputError(
      f'{path} names two classes {twice!r}; give each a name of its own'
    )
  return dict(zip(ids, names, strict=True))


def _renumbered(listing, place: Mapping[str, int]) -> listing_lib.Listing:
  """Returns the listing with the labels of all parts' classes."""
  new = np.array([place[name] for name in listing.class_names], np.int32)
  return listing_lib.Listing(
    new[listing.labels],
    list(place),
    listing.ids,
    listing.users,
    listing.user_names,
  )
