"""Lists the examples of an input of `launch.make_splits`, which is one of these:

  folder, tar or zip of images      a folder for each class (`image_names`)
  TFRecords of images               a file, or a folder (`packed`)
  .csv .tsv .jsonl .ndjson .parquet each row is an example (`datasets.readers.tables`)
  CIFAR-10, CIFAR-100               the official files, or their folder
  Extreme Classification Repository *_train.txt, trn_X_Y.txt, or their folder
  .npz                              the array y, and optionally client and test_y
  LEAF's JSON                       a file, or a folder with train/ and test/

In tables and folders, the classes are sorted by name. If all names are whole numbers, they
are sorted as numbers. The other inputs number their classes themselves.
"""

import contextlib
import os
import pathlib
import re

from datasets import examples as examples_lib
from datasets.leaf import files as leaf_files, users as leaf_users
from datasets.readers import arrays, images, packed, tables, zipped
from tff_xc import errors

_XC = re.compile(r'(.*train|trn_x_y)\.txt(\.gz)?', re.IGNORECASE)


def check_no_columns(columns: tables.Columns, why: str) -> None:
  """Raises InputError if a flag names a column; `why` says why there is no table."""
  usual = tables.Columns()._asdict()
  for name, value in columns._asdict().items():
    if value != usual[name]:
      raise errors.InputError(
        f'--{name}_column={value} names a column of a table, and {why}; leave it out'
      )


def read(path: str | os.PathLike, columns: tables.Columns) -> examples_lib.Examples:
  """Lists the examples of an input; raises InputError for an unknown kind of file."""
  path = pathlib.Path(path)
  if not path.exists():
    raise errors.InputError(f'--input={path} does not exist; give a folder or file')
  is_table = not path.is_dir() and tables.form(path)
  if not is_table:
    check_no_columns(columns, f'{path} is none')
  found = _cifar(path)
  if found is None:
    found = _of_folder(path) if path.is_dir() else _of_file(path, columns)
  if not len(found.train):
    raise errors.InputError(f'{path} has no examples; give another input')
  return found


def _of_folder(path: pathlib.Path) -> examples_lib.Examples:
  texts = sorted(p for p in path.iterdir() if zipped.is_data(p.name) and _XC.fullmatch(p.name))
  if len(texts) > 1:
    raise errors.InputError(
      f'--input={path} has {" and ".join(p.name for p in texts)}; give one of these as --input'
    )
  try:
    if texts:
      return _xc(texts[0])
    if found := leaf_files.in_folder(path):
      return leaf_users.read(found)
  except errors.InputError as e:
    # The failing file may be a train.txt or metadata.json beside folders of images.
    with contextlib.suppress(errors.InputError):
      beside = images.read(path)
      if len(beside.class_names) > 1:
        leaf_users.say(f'note: {path} is taken for images ({e})')
        return beside
    raise
  return images.read(path)


def _of_file(path: pathlib.Path, columns: tables.Columns) -> examples_lib.Examples:
  name = path.name.lower()
  if tables.form(path):
    return tables.examples(path, columns)
  if name.endswith(images.ARCHIVES) or packed.is_records(name):
    return images.read(path)
  if name.endswith('.npz'):
    return arrays.examples(path, arrays.read(path, ('y', 'client', 'test_y')))
  if name.endswith('.json'):
    return leaf_users.read(leaf_files.Files(all=(path,)))
  if name.endswith(('.txt', '.txt.gz')):
    return _xc(path)
  raise errors.InputError(
    f'--input={path} is of no known kind; give a folder, {", ".join(tables.FORMS)},'
    ' .npz, .json, .txt, .zip, .tar or .tfrecord'
  )


def _cifar(path: pathlib.Path) -> examples_lib.Examples | None:
  names = [path.absolute().name, *(os.listdir(path) if path.is_dir() else ())]
  if not any('cifar' in name.lower() for name in names):
    return None
  from datasets import cifar

  found = []
  for name in cifar.LAYOUTS:
    with contextlib.suppress(errors.InputError):
      cifar.find(path, name)
      found.append(name)
  if not found:
    return None
  if len(found) > 1:
    raise errors.InputError(
      f'--input={path} has CIFAR-10 and CIFAR-100; give the folder or archive of one of them'
    )
  parts = cifar.read(path, *found, cifar.OFFICIAL)
  num_classes = cifar.LAYOUTS[found[0]].num_classes
  return examples_lib.of_parts(
    *(examples_lib.of_labels(labels, num_classes) for _, labels in parts)
  )


def _xc(path: pathlib.Path) -> examples_lib.Examples:
  from datasets.xc import text as xc_text

  def labels(file):
    form = 'labels' if re.search('_x_y', file.name.lower()) else 'examples'
    return xc_text.read(file, form).labels

  files = [path]
  beside = path.with_name(re.sub('(?i)train', 'test', re.sub('(?i)trn', 'tst', path.name)))
  if beside != path and beside.is_file():
    files.append(beside)
  found = list(map(labels, files))
  examples_lib.check_classes(found[0].shape[1], f'{path}, line 1')
  if found[-1].shape[1] != found[0].shape[1]:
    raise errors.InputError(
      f'{beside} has {found[1].shape[1]:,} labels and {path.name}'
      f' {found[0].shape[1]:,}; give files of one set'
    )
  return examples_lib.of_parts(*map(examples_lib.of_labels, found))
