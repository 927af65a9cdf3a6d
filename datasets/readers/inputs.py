"""Lists the examples of the inputs that a split may be made of.

  folder, tar or zip of images      a folder for each class (`image_names`)
  .csv .tsv .jsonl .ndjson .parquet a row an example (`datasets.readers.tables`)
  CIFAR-10, CIFAR-100               the official files, or their folder
  Extreme Classification Repository *_train.txt, trn_X_Y.txt, or their folder
  .npz                              arrays y, optionally client, test_y
  LEAF's JSON                       a file, or a folder train/ and test/

Classes of tables and of folders are numbered in the order of their names, whole
numbers as numbers. The other inputs number their classes themselves.
"""

import contextlib
import os
import pathlib
import re
import sys

from datasets import examples as examples_lib
from datasets.readers import arrays, tables, zipped
from tff_xc import errors

_XC = re.compile(r'(.*train|trn_x_y)\.txt(\.gz)?', re.IGNORECASE)


def read(path: str | os.PathLike, columns: tables.Columns) -> examples_lib.Examples:
  """Lists the examples of an input, whose kind its names tell; refuses others."""
  path = pathlib.Path(path)
  if not path.exists():
    raise errors.InputError(f'--input={path} does not exist; give a folder or file')
  is_table = not path.is_dir() and tables.form(path)
  if not is_table and columns != tables.Columns():
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
  from datasets.leaf import files as leaf_files, users as leaf_users
  from datasets.readers import images as images

  try:
    files = (p for p in path.iterdir() if zipped.is_data(p.name))
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


def _of_file(path: pathlib.Path, columns: tables.Columns) -> examples_lib.Examples:
  from datasets.leaf import files as leaf_files, users as leaf_users
  from datasets.readers import images as images

  name = path.name.lower()
  if tables.form(path):
    return tables.examples(path, columns)
  if name.endswith(images.ARCHIVES):
    return images.read(path)
  if name.endswith('.npz'):
    return arrays.examples(path, arrays.read(path, ('y', 'client', 'test_y')))
  if name.endswith('.json'):
    return leaf_users.read(leaf_files.Files(all=(path,)))
  if name.endswith(('.txt', '.txt.gz')):
    return _xc(path)
  raise errors.InputError(
    f'--input={path} is of no known kind; give a folder, {", ".join(tables.FORMS)},'
    f' .npz, .json, .txt, {", ".join(images.ARCHIVES)}'
  )


def _cifar(path: pathlib.Path) -> examples_lib.Examples | None:
  names = [path.name, *(os.listdir(path) if path.is_dir() else ())]
  if not any('cifar' in name.lower() for name in names):
    return None
  from datasets import cifar

  found = []
  for name in cifar.LAYOUTS:
    with contextlib.suppress(errors.InputError):
      cifar.find(path, name)
      found.append(name)
  if len(found) > 1:
    raise errors.InputError(
      f'--input={path} has CIFAR-10 and CIFAR-100; give the folder or archive of one of them'
    )
  if not found:
    return None
  (_, y), (_, test_y) = cifar.read(path, *found, cifar.OFFICIAL)
  return _numbered(y, test_y, cifar.LAYOUTS[found[0]].num_classes)


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
