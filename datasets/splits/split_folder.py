"""Reads the files of a split, as `launch.make_splits` writes them.

  federated_train.csv  user_id,image_id,class
  test.csv             image_id,class
  retrieval.csv        image_id,class, of other classes
  classes.csv          class,name

The published splits of FedVC and FedIR have the first two forms, in a zip. A file
that was published is known by its checksum, and stderr tells so.
"""

import os
import pathlib
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import NoReturn

import numpy as np

from datasets import tables
from datasets import zip_members
from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import names as names_lib
from datasets.splits import published_files
from datasets.splits import split_path
from tff_xc import errors

TEST, CLASSES, RETRIEVAL = 'test.csv', 'classes.csv', 'retrieval.csv'


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
    split: its folder, zip or CSV, see `split_path`. A classes.csv beside the CSV
      names its classes; test.csv and retrieval.csv count only in a folder or zip.
    test_file: a CSV `image_id,class` in place of the folder's test.csv.

  Raises:
    errors.InputError: a file is missing or damaged, or classes.csv lacks a class.
  """
  name = split_path.parse(split)
  folder = name.path if name.is_folder else name.path.parent
  file = train_file(name)
  train = _listing(file, name.user)
  test = None
  if test_file:
    test = read_test(test_file)
  elif name.is_folder and zip_members.is_file(folder / TEST):
    test = _listing(folder / TEST, None)
  retrieval = None
  if name.is_folder and zip_members.is_file(folder / RETRIEVAL):
    retrieval = _listing(folder / RETRIEVAL, None)
  ids = {*train.class_names, *(test.class_names if test else ())}
  named = {}
  if zip_members.is_file(folder / CLASSES):
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
  path = pathlib.Path(path)
  _tell(path)
  return _listing(path, None)


def train_file(name: split_path.SplitPath) -> pathlib.Path:
  """Returns the file of a split's training examples; tells if it was published.

  Raises:
    errors.InputError: it is missing, or lacks the column of users.
  """
  file = name.train
  if not zip_members.is_file(file):
    _missing(file, 'user_id,image_id,class')
  _tell(name.path)
  if tables.form(file) in (None, '.csv'):
    header = tables.header(file)
    others = [n for n in header if n not in ('image_id', 'class', 'label')]
    if name.user not in header and 'class' in header and others:
      raise errors.InputError(
        f'{file} has no column {name.user!r}, it has {", ".join(others)}; name the'
        f' column of the users after a colon, such as {name.path}:{others[0]}'
      )
  return file


def _missing(path: pathlib.Path, columns: str) -> NoReturn:
  for archive in filter(zip_members.is_zip, path.parents):
    found = [n for n in zip_members.names_of(archive) if n.endswith('.csv')]
    raise errors.InputError(
      f'{archive} has no {path.name}, it has {", ".join(found)[:200] or "no .csv"};'
      f' name one of its files, such as {archive}/{(found or ["a.csv"])[0]}'
    )
  raise errors.InputError(
    f'{path} is no file; give a CSV {columns}, as `python -m launch.make_splits`'
    ' writes it'
  )


def _tell(path: pathlib.Path) -> None:
  """Tells whether a file, or the zip that it lies in, was published."""
  found = zip_members.find(path)
  if note := published_files.note(found.archive if found else path):
    print(f'note: {note}', file=sys.stderr)


def _listing(path: pathlib.Path, user: str | None) -> listing_lib.Listing:
  if not zip_members.is_file(path):
    _missing(path, 'user_id,image_id,class' if user else 'image_id,class')
  columns = inputs.Columns('class', user, 'image_id')
  found = inputs.table(path, columns, advice=split_path.OTHER_COLUMNS)
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
