"""Lists the examples of the inputs that a split may be made of.

  folder, tar or zip of images      a folder for each class (`images.names`)
  .csv .tsv .jsonl .ndjson .parquet a row an example (`datasets.tables`)
  CIFAR-10, CIFAR-100               the official files, or their folder
  Extreme Classification Repository *_train.txt, trn_X_Y.txt, or their folder
  .npz                              arrays y, optionally client, test_y
  LEAF's JSON                       a file, or a folder train/ and test/

Classes of tables and of folders are numbered in the order of their names, whole
numbers as numbers. The other inputs number their classes themselves.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib, npz, tables, zip_members
from tff_xc import errors

# A user of this name is nobody, as in the files of TFF's iNaturalist.
NOBODY = 'NA'
_XC = re.compile(r'(.*train|trn_x_y)\.txt(\.gz)?', re.IGNORECASE)


class Columns(NamedTuple):
  """The columns of a table."""

  label: str = 'class'  # Text or whole numbers.
  # None: 'user_id', if the table has it; '': the examples have no users.
  user: str | None = None
  id: str | None = None  # None: 'image_id', or else the rows' numbers from 0.


NAME_THEM = 'name yours: ' + ', '.join(f'--{role}_column' for role in Columns._fields)


def read(path: str | os.PathLike, columns: Columns) -> examples_lib.Examples:
  """Lists the examples of an input, whose kind its names tell; refuses others."""
  path = pathlib.Path(path)
  if not path.exists():
    raise errors.InputError(f'--input={path} does not exist; give a folder or file')
  is_table = not path.is_dir() and tables.form(path)
  if not is_table and columns != Columns():
    given = [f'--{n}_column={v}' for n, v in columns._asdict().items() if v]
    raise errors.InputError(
      f'{given[-1]} names a column of a table, and {path} is none; leave it out'
    )
  found = _cifar(path)
  if found is None:
    found = _of_folder(path) if path.is_dir() else _of_file(path, columns)
  if not len(found.train):
    raise errors.InputError(f'{path} has no examples; give another input')
  return found


def _of_folder(path: pathlib.Path) -> examples_lib.Examples:
  from datasets.images import store as images
  from datasets.leaf import files as leaf_files, users as leaf_users

  try:
    files = (p for p in path.iterdir() if zip_members.is_data(p.name))
    texts = sorted(p for p in files if _XC.fullmatch(p.name))
    if len(texts) > 1:
      raise errors.InputError(
        f'--input={path} has {" and ".join(p.name for p in texts)}; give one of these as --input'
      )
    if texts:
      return _xc(texts[0])
    if found := leaf_files.in_folder(path):
      return leaf_users.read(found)
  except errors.InputError as e:
    # A train.txt or a metadata.json may lie beside folders of images.
    try:
      beside = images.read(path)
    except errors.InputError:
      raise e from None
    if len(beside.class_names) < 2:
      raise
    print(f'note: {path} is taken for images ({e})', file=sys.stderr)
    return beside
  return images.read(path)


def _of_file(path: pathlib.Path, columns: Columns) -> examples_lib.Examples:
  from datasets.images import store as images
  from datasets.leaf import files as leaf_files, users as leaf_users

  name = path.name.lower()
  if tables.form(path):
    return table(path, columns)
  if name.endswith(images.ARCHIVES):
    return images.read(path)
  if name.endswith('.npz'):
    return _npz(path)
  if name.endswith('.json'):
    return leaf_users.read(leaf_files.Files(all=(path,)))
  if name.endswith(('.txt', '.txt.gz')):
    return _xc(path)
  raise errors.InputError(
    f'--input={path} is of no known kind; give a folder, {", ".join(tables.FORMS)},'
    f' .npz, .json, .txt, {", ".join(images.ARCHIVES)}'
  )


def table(
  path: str | os.PathLike,
  columns: Columns,
  repeated: bool = False,
  advice: str = NAME_THEM,
  raw: Sequence[str] = (),
  use: Callable[[tables.Batch], None] | None = None,
) -> examples_lib.Examples:
  """Lists the rows of a table, see `tables.batches`; `use` takes the batches of `raw`.

  Refuses rows without class, user or id, and two of one id; with `repeated`, two rows
  may have one id, and a class may be empty, as of an example without labels. `advice`
  says what to do if a column is missing.
  """
  named = {
    'class': columns.label,
    'user': 'user_id' if columns.user is None else columns.user,
    'id': columns.id or 'image_id',
  }
  wanted = list(filter(None, named.values()))
  explicit = [n for n in (columns.user, columns.id) if n]
  required = list(dict.fromkeys([columns.label, *explicit]))
  tables.present(path, tables.header(path), required, advice)
  classes, users = examples_lib.Codes(), examples_lib.Codes()
  ids, present = examples_lib.TextParts(), set()
  for batch in examples_lib.watched_rows(
    tables.batches(path, required, wanted, raw), 'reading', lambda batch: len(batch.places)
  ):
    for noun, column in named.items():
      if not (repeated and noun == 'class'):
        batch.refuse_empty(column, noun)
    present |= set(batch.columns)
    if use:
      use(batch)
    classes.add(batch.columns[columns.label])
    users.add(batch.columns.get(named['user'], ()))
    ids.add(batch.columns.get(named['id'], ()))
  if not repeated and (twice := ids.repeated()):
    name, first, second = twice
    raise errors.InputError(
      f'{where(second, path)} has the id {name!r}, as {where(first, path)} has;'
      ' leave one out, or name another --id_column'
    )
  labels, class_names = examples_lib.sorted_codes(classes)
  has_ids, has_users = (named[n] in present for n in ('id', 'user'))
  return examples_lib.Examples(
    labels,
    class_names,
    ids.texts() if has_ids else range(len(labels)),
    *(named_users(users) if has_users else ()),
  )


def where(number: int, *tables_of: pathlib.Path) -> str:
  """Names the line of a row, for an error: it reads the tables again."""
  for path in tables_of:
    for batch in tables.batches(path, []):
      if number < len(batch.places):
        return batch.where(number)
      number -= len(batch.places)
  raise IndexError(number)


def named_users(users: examples_lib.Codes) -> tuple[np.ndarray, list[str]]:
  """Returns int32 [rows], places among the names, -1 for 'NA'; and the names."""
  names, codes = users.names, users.codes()
  if NOBODY in names:
    place = names.index(NOBODY)
    names.remove(NOBODY)
    codes = np.where(codes == place, -1, codes - (codes > place))
  return codes.astype(np.int32), names


def _cifar(path: pathlib.Path) -> examples_lib.Examples | None:
  names = [path.name, *(os.listdir(path) if path.is_dir() else ())]
  if not any('cifar' in name.lower() for name in names):
    return None
  from datasets.cifar import files as cifar_files

  found = []
  for name in cifar_files.LAYOUTS:
    with contextlib.suppress(errors.InputError):
      cifar_files.find(path, name)
      found.append(name)
  if len(found) > 1:
    raise errors.InputError(
      f'--input={path} has CIFAR-10 and CIFAR-100; give the folder or archive of one of them'
    )
  if not found:
    return None
  (_, y), (_, test_y) = cifar_files.read(path, *found, cifar_files.OFFICIAL)
  return _numbered(y, test_y, cifar_files.LAYOUTS[found[0]].num_classes)


def _numbered(train, test, num_classes: int) -> examples_lib.Examples:
  """Returns examples of labels; `test` may be None."""
  parts = [
    None if labels is None else examples_lib.of_labels(labels, num_classes)
    for labels in (train, test)
  ]
  return examples_lib.of_parts(*parts)


def _xc(path: pathlib.Path) -> examples_lib.Examples:
  from datasets.xc import text as xc_text

  def labels(file):
    form = 'labels' if re.search('_x_y', file.name.lower()) else 'examples'
    return xc_text.read(file, form).labels

  train = labels(path)
  examples_lib.check_classes(train.shape[1], f'{path}, line 1')
  name = re.sub('(?i)train', 'test', re.sub('(?i)trn', 'tst', path.name))
  beside = path.with_name(name)
  test = labels(beside) if name != path.name and beside.is_file() else None
  if test is not None and test.shape[1] != train.shape[1]:
    raise errors.InputError(
      f'{beside} has {test.shape[1]:,} labels and {path.name}'
      f' {train.shape[1]:,}; give files of one set'
    )
  return _numbered(train, test, train.shape[1])


def _npz(path: pathlib.Path) -> examples_lib.Examples:
  found = npz.read(path, ('y', 'client', 'test_y'))
  labels = [
    npz.labels(path, name, found.get(name)).astype(np.int32)
    for name in ('y', 'test_y')
    if name == 'y' or name in found
  ]
  num_classes = max(int(y.max()) for y in labels) + 1
  test = labels[1] if len(labels) > 1 else None
  examples = _numbered(labels[0], test, num_classes)
  if 'client' not in found:
    return examples
  users = np.full(len(examples), -1, np.int32)
  shape = found['y'].shape
  users[: shape[0]], names = npz.owners(path, found['client'], shape)
  return dataclasses.replace(examples, users=users, user_names=names)
