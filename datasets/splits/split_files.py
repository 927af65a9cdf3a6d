"""Reads and writes the files of a split:

  federated_train.csv  user_id,image_id,class
  test.csv             image_id,class; also user_id, if clients have test examples
  retrieval.csv        image_id,class; examples of other classes
  classes.csv          class,name

`launch.make_splits` writes these files. Hsu, Qi and Brown (FedVC, FedIR) publish the first
two files in a zip. Columns may come in any order, and other columns are ignored. Each line of
the first three files stands for an example. Its image_id is the example's index, or its name in
a folder or table. If examples have sets of labels, `class` has the labels, separated by spaces.
"""

import csv
import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.readers import tables, zipped
from datasets.splits import partitions, split_path
from tff_xc import errors, files
from tff_xc.data import partition as partition_lib

COLUMNS = ('user_id', 'image_id', 'class')
TEST, CLASSES, RETRIEVAL = 'test.csv', 'classes.csv', 'retrieval.csv'


class Split(NamedTuple):
  """The content of a split's files."""

  examples: examples_lib.Examples  # The examples, with class names from classes.csv.
  class_ids: Sequence[str]  # The ids of these classes in the files.
  files: Sequence[pathlib.Path]  # The files that list the examples, in the same order.

  def where(self, number: int) -> str:
    """Returns the file and line of an example, for an error message."""
    return tables.where(number, *self.files)


def read(
  split: str | os.PathLike, test_file: str | os.PathLike = '', *, sets: bool = False
) -> Split:
  """Reads a split from a folder, a zip or a single CSV file; see `split_path`.

  If there is a classes.csv in the same folder, it names the classes. The function reads
  test.csv and retrieval.csv only if `split` is a folder or zip. `test_file` replaces
  test.csv. Test examples have users if their file has the same column of users as the
  training examples. If `sets` is true, a class may be a set of labels, and a file may list
  an example several times. Raises `errors.InputError` if a file is missing or damaged, or
  classes.csv lacks a class.
  """
  name = split_path.parse(split)
  folder = name.path if name.is_folder else name.path.parent
  file = train_file(name)
  files, parts = [file], {'train': _rows(file, name.user, sets)}
  beside = {'test': folder / TEST, 'retrieval': folder / RETRIEVAL}
  if test_file:
    beside['test'] = pathlib.Path(test_file)
  for part, path in beside.items():
    is_given = test_file and part == 'test'
    if is_given or (name.is_folder and zipped.is_file(path)):
      files.append(path)
      user = name.user if part == 'test' else ''
      parts[part] = _rows(path, user, sets, is_optional=True)
  own = [part for part in ('train', 'test') if part in parts]
  ids = {name for part in own for name in parts[part].class_names}
  named = {}
  if not sets and zipped.is_file(folder / CLASSES):
    named = _class_names(folder / CLASSES)
    if missing := examples_lib.in_order(ids - set(named)):
      raise errors.InputError(
        f'{folder / CLASSES} has no class {missing[0]!r}, which {file} or its'
        ' test part has; add it, or take the file away'
      )
  ids = examples_lib.in_order(ids | set(named))
  names = [named.get(name, name) for name in ids]
  for part in own:
    parts[part] = dataclasses.replace(parts[part].numbered(ids), class_names=names)
  found = examples_lib.of_parts(**parts)
  # A test user belongs to the training user with the same name. A test user with a different
  # name belongs to no client.
  place = {name: i for i, name in enumerate(found.user_names)}
  same = [place.get(name, -1) for name in found.test_user_names]
  users = np.array([*range(len(place)), *same, -1], np.int32)[found.users]
  found = dataclasses.replace(found, users=users, test_user_names=())
  return Split(found, ids, files)


def read_file(path: str | os.PathLike, user: str = '') -> Split:
  """Reads a CSV `image_id,class`, and the column `user` unless it is ''; ignores other columns."""
  found = _rows(path, user)
  return Split(found, found.class_names, [path])


def train_file(name: split_path.SplitPath) -> pathlib.Path:
  """Returns the file of training examples; raises InputError if it is missing."""
  if not zipped.is_file(name.train):
    _missing(name.train)
  return name.train


def _missing(path: pathlib.Path) -> NoReturn:
  inside = [
    f'{archive}/{name}'
    for archive in filter(zipped.is_zip, path.parents)
    for name in zipped.names_of(archive)
    if name.endswith('.csv')
  ]
  others = f' (there is {", ".join(inside)[:200]})' if inside else ''
  raise errors.InputError(
    f'{path} is no file{others}; give a CSV {",".join(COLUMNS)}, as'
    ' `python -m launch.make_splits` writes it'
  )


def md5(path: str | os.PathLike) -> str:
  """Returns the MD5 of a file's bytes, in hexadecimal digits."""
  digest = hashlib.md5()
  with open(path, 'rb') as file:
    while block := file.read(2**20):
      digest.update(block)
  return digest.hexdigest()


def _rows(path, user: str = '', sets: bool = False, is_optional: bool = False):
  """Returns the examples of a file; the column `user` names their users.

  If `user` is '', the examples have no users. The same holds if the file lacks the column
  and `is_optional` is true.
  """
  if not zipped.is_file(path):
    _missing(path)
  if is_optional and user not in tables.header(path):
    user = ''
  columns = tables.Columns('class', user, 'image_id')
  found = tables.examples(path, columns, repeated=sets, advice=split_path.OTHER_COLUMNS)
  if not len(found):
    raise errors.InputError(f'{path} has no examples; give a line for each')
  return found


def _class_names(path: pathlib.Path) -> dict[str, str]:
  """Reads a CSV file `class,name`; returns the names of classes by their ids."""
  found = tables.examples(path, tables.Columns('name', '', 'class'))
  ids = found.ids_of(np.arange(len(found)))
  names = [found.class_names[label] for label in found.labels]
  if len(set(names)) < len(names):
    twice = next(name for name in names if names.count(name) > 1)
    raise errors.InputError(f'{path} names two classes {twice!r}; give each a name of its own')
  return dict(zip(ids, names, strict=True))


def join(data: examples_lib.Examples, split: Split, rows: np.ndarray, where: str) -> np.ndarray:
  """Finds the examples of a split in `data`; returns their indices in `data`, int64 [k].

  `rows` int [k] are indices of examples in `split.examples`. If an example in `data` has a
  set of labels, the example in the split must have one label of this set. Raises
  `errors.InputError` if an example is not in `data`, occurs twice, or has a different class
  in `data`. The error message calls the data `where`.
  """
  named = split.examples
  numbers = examples_lib.find(data.ids, named.ids)[rows]

  def shown(row):
    return repr(named.ids_of(rows[row : row + 1])[0])

  if (bad := np.flatnonzero(numbers < 0)).size:
    raise errors.InputError(
      f'{split.where(rows[bad[0]])} has the image_id {shown(bad[0])}, and {where}'
      f' has no such example: its ids look like {data.ids_of(np.arange(1))[0]!r};'
      ' give the split of these data, or the --id_column that it was made with'
    )
  _, first = np.unique(numbers, return_index=True)
  if len(first) < len(numbers):
    row = np.setdiff1d(np.arange(len(numbers)), first)[0]
    before = np.flatnonzero(numbers == numbers[row])[0]
    raise errors.InputError(
      f'{split.where(rows[row])} has the example {shown(row)}, as'
      f' {split.where(rows[before])} has; leave one out'
    )
  right = _agree(data, split, numbers, named.labels[rows])
  if (wrong := np.flatnonzero(~right)).size:
    row = wrong[0]
    [has] = _texts(data.labels, numbers[row : row + 1])
    if not data.has_sets:
      has = data.class_names[int(has)]
    raise errors.InputError(
      f'{split.where(rows[row])}: example {shown(row)} has class'
      f' {named.class_names[named.labels[rows[row]]]!r} here and {has!r} in'
      f' {where}; give the split of these data, in their order'
    )
  return numbers


def _agree(data, split: Split, numbers, labels) -> np.ndarray:
  """Returns whether the labels of a split agree with the labels in `data`, bool [k]."""
  names, size = split.examples.class_names, len(data.class_names)
  if data.has_sets:
    label = np.array([_whole(text, size) for text in split.class_ids])[labels]
    return np.asarray(data.labels[numbers, np.maximum(label, 0)], bool).ravel() & (label >= 0)
  # Normalize the names of folders like the names in tables, so that equal names compare equal.
  plain = [examples_lib.nfc(tables.plain(name)) for name in data.class_names]
  place = {name: i for i, name in enumerate(plain)}
  same = [place.get(examples_lib.nfc(name), -1) for name in names]
  unnamed = list(names) == list(split.class_ids) or plain == [str(i) for i in range(size)]
  if unnamed and min(same) < 0:
    # A split without class names has the numbers that `launch.make_splits` gives to classes.
    same = [_whole(text, size) for text in split.class_ids]
  return np.array(same)[labels] == data.labels[numbers]


def _whole(text: str, size: int) -> int:
  """Parses a whole number; returns -1 if the text is not a whole number below `size`."""
  number = int(text) if text.isdecimal() and len(text) < 20 else -1
  return number if number < size else -1


def partition(
  split: str | os.PathLike, data: examples_lib.Examples, where: str
) -> partition_lib.Partition:
  """Reads the training examples of a split; its users, sorted by id, are the clients.

  `NA` is a user like any other user. Each example has one label. Examples keep the order of
  the file.
  """
  name = split_path.parse(split)
  named = read_file(train_file(name), name.user)
  found = named.examples
  numbers = join(data, named, np.arange(len(found)), where)
  names = [*found.user_names, tables.NOBODY]
  users = np.where(found.users < 0, len(names) - 1, found.users)
  clients = partitions.of_users(users, names, np.unique(users).tolist())
  return dataclasses.replace(clients, numbers=numbers[clients.numbers])


def write(
  path: str | os.PathLike, clients: partition_lib.Partition, data: examples_lib.Examples
) -> None:
  """Writes a split of `data`. If an error occurs, the old file remains unchanged."""
  for name in clients.client_ids:
    if not name or name != name.strip() or name == tables.NOBODY:
      raise errors.InputError(
        f'the user {name!r} is empty, is {tables.NOBODY} (which means no user), or begins or ends'
        ' with a space; rename it'
      )
  users = np.array(clients.client_ids, object)[clients.owners()]
  write_part(path, clients.numbers, data, users)


def write_part(
  path: str | os.PathLike,
  numbers: np.ndarray,
  data: examples_lib.Examples,
  users: Sequence[str] = (),
) -> None:
  """Writes these examples, like `write`.

  `users` are the names of the examples' users; empty: users are unknown.
  """

  def rows(places):
    chosen = numbers[places]
    own = [[users[i] for i in places.tolist()]] if len(users) else []
    return *own, data.ids_of(chosen), _texts(data.labels, chosen)

  header = COLUMNS[0 if len(users) else 1 :]
  write_rows(path, header, len(numbers), rows)


def write_rows(path: str | os.PathLike, header: Sequence[str], size: int, rows: Callable) -> None:
  """Writes a CSV file of `size` rows. If an error occurs, the old file remains unchanged.

  `rows` takes an array of row indices and returns the columns of these rows.
  """
  with files.csv_rows(pathlib.Path(path)) as file:
    writer = csv.writer(file)
    writer.writerow(header)
    for block in examples_lib.watched(examples_lib.blocks(size), 'writing', len, size):
      writer.writerows(zip(*rows(block), strict=True))


def _texts(labels, numbers: np.ndarray) -> list[str]:
  """Formats the labels of these examples for a split file."""
  found = labels[numbers]
  if not scipy.sparse.issparse(labels):
    return list(map(str, found.tolist()))
  ids = list(map(str, found.indices.tolist()))
  ends = found.indptr.tolist()
  return [' '.join(ids[a:b]) for a, b in itertools.pairwise(ends)]
