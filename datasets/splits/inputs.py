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

import os
import pathlib
import re
import sys
from typing import NamedTuple

import numpy as np

from datasets import never_data
from datasets import npz
from datasets import tables
from datasets.splits import listing as listing_lib
from tff_xc import errors

# Of 21,841 in ImageNet-21k and 670,091 in Amazon-670K.
MOST_CLASSES = 2**24
# A user of this name is nobody, as in the files of TFF's iNaturalist.
NOBODY = 'NA'
_XC = re.compile(r'(.*train|trn_x_y)\.txt(\.gz)?', re.IGNORECASE)


class Columns(NamedTuple):
  """The columns of a table.

  Attributes:
    label: the classes, text or whole numbers.
    user: the users; None: 'user_id', if the table has it.
    id: the examples' ids; None: 'image_id', if the table has it, and else the
      rows' numbers from 0.
  """

  label: str = 'class'
  user: str | None = None
  id: str | None = None


_NAME_THEM = 'name yours: ' + ', '.join(
  f'--{role}_column' for role in Columns._fields
)


def read(path: str | os.PathLike, columns: Columns) -> listing_lib.Listing:
  """Lists the examples of an input, whose kind its names tell.

  Raises:
    errors.InputError: it is missing, damaged, or of no kind that is known.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise errors.InputError(
      f'--input={path} does not exist; give a folder or file'
    )
  if path.is_dir() or not tables.form(path):
    given = [f'--{n}_column={v}' for n, v in columns._asdict().items() if v]
    if columns != Columns():
      raise errors.InputError(
        f'{given[-1]} names a column of a table, and {path} is none; leave it'
        ' out'
      )
  try:
    listing = _cifar(path)
    if listing is None:
      listing = (_of_folder if path.is_dir() else _of_file)(path, columns)
  except OSError as e:
    raise errors.InputError(
      f'{e.filename or path} cannot be read ({e.strerror}); check its permissions'
    ) from e
  if not len(listing):
    raise errors.InputError(f'{path} has no examples; give another input')
  return listing


def _of_folder(path: pathlib.Path, columns: Columns) -> listing_lib.Listing:
  from datasets.images import names as images
  from datasets.leaf import files as leaf_files

  try:
    files = (p for p in path.iterdir() if never_data.is_data(p.name))
    texts = sorted(p for p in files if _XC.fullmatch(p.name))
    if texts:
      return _xc(_only(path, texts))
    if found := leaf_files.in_folder(path):
      return _leaf(found)
  except errors.InputError as e:
    # A train.txt or a metadata.json may lie beside folders of images.
    return _images_beside(path, e)
  return images.read(path)


def _images_beside(
  path: pathlib.Path, error: errors.InputError
) -> listing_lib.Listing:
  """Returns images of several classes; raises the error if there are none."""
  from datasets.images import names as images

  try:
    found = images.read(path)
  except errors.InputError:
    raise error from None
  if len(found.class_names) < 2:
    raise error
  print(f'note: {path} is taken for images ({error})', file=sys.stderr)
  return found


def _of_file(path: pathlib.Path, columns: Columns) -> listing_lib.Listing:
  from datasets.images import names as images
  from datasets.leaf import files as leaf_files

  name = path.name.lower()
  if tables.form(path):
    return table(path, columns)
  if name.endswith(images.ARCHIVES):
    return images.read(path)
  if name.endswith('.npz'):
    return _npz(path)
  if name.endswith('.json'):
    return _leaf(leaf_files.Files(all=(path,)))
  if name.endswith(('.txt', '.txt.gz')):
    return _xc(path)
  raise errors.InputError(
    f'--input={path} is of no known kind; give a folder, {", ".join(tables.FORMS)},'
    f' .npz, .json, .txt, {", ".join(images.ARCHIVES)}'
  )


def _only(path: pathlib.Path, found: list):
  if len(found) > 1:
    raise errors.InputError(
      f'--input={path} has {" and ".join(p.name for p in found)}; give one of'
      ' these as --input'
    )
  return found[0]


def table(
  path: str | os.PathLike,
  columns: Columns,
  of_sets: bool = False,
  advice: str = _NAME_THEM,
) -> listing_lib.Listing:
  """Lists the rows of a table, see `tables.batches`.

  Args:
    path: the table.
    columns: its columns.
    of_sets: True: a class may be empty, as of an example without labels, and
      ids are the rows' numbers from 0, so that they may be repeated.
    advice: what to do if a column is missing.

  Raises:
    errors.InputError: a column is missing; a row has no class, no user or no id;
      two rows have one id.
  """
  named = {
    'class': columns.label,
    'user': columns.user or 'user_id',
    'id': columns.id or 'image_id',
  }
  explicit = [n for n in (columns.user, columns.id) if n]
  required = list(dict.fromkeys([columns.label, *explicit]))
  tables.require(path, required, advice)
  batches = tables.batches(path, required, list(named.values()))
  classes, users = listing_lib.Codes(), listing_lib.Codes()
  ids = listing_lib.TextParts()
  present = set()
  for batch in listing_lib.watched_rows(
    batches, 'reading', lambda batch: len(batch.places)
  ):
    for noun, column in named.items():
      if of_sets and noun == 'class':
        continue
      if '' in batch.columns.get(column, ()):
        where = batch.where(batch.columns[column].index(''))
        raise errors.InputError(
          f'{where} has no {noun}, its {column!r} is empty; fill it in, or leave'
          ' out the line'
        )
    present |= set(batch.columns)
    classes.add(batch.columns[columns.label])
    users.add(batch.columns.get(named['user'], ()))
    if not of_sets:
      ids.add(batch.columns.get(named['id'], []))
  labels, class_names = listing_lib.sorted_codes(classes)
  has_ids = not of_sets and named['id'] in present
  user_codes = user_names = None
  if named['user'] in present:
    user_codes, user_names = named_users(users)
  return listing_lib.Listing(
    labels,
    class_names,
    _distinct(ids, path) if has_ids else range(len(labels)),
    user_codes,
    user_names or (),
  )


def named_users(users: listing_lib.Codes) -> tuple[np.ndarray, list[str]]:
  """Returns int32 [rows], places among the names, -1 for 'NA'; and the names."""
  names, codes = users.names, users.codes()
  if NOBODY in names:
    place = names.index(NOBODY)
    names.remove(NOBODY)
    codes = np.where(codes == place, -1, codes - (codes > place))
  return codes.astype(np.int32), names


def _distinct(ids: listing_lib.TextParts, path) -> listing_lib.Texts:
  found = ids.texts()
  if twice := ids.repeated():
    first, second = twice
    raise errors.InputError(
      f'{path}: examples {first + 1:,} and {second + 1:,} both have the id'
      f' {found.take(np.array([first]))[0]!r}; name another --id_column, or leave'
      ' one out'
    )
  return found


def _cifar(path: pathlib.Path) -> listing_lib.Listing | None:
  names = [path.name, *(os.listdir(path) if path.is_dir() else ())]
  if not any('cifar' in name.lower() for name in names):
    return None
  from datasets.cifar import files as cifar_files
  from datasets.cifar import places as cifar_places

  found = {}
  for name in cifar_places.LAYOUTS:
    try:
      found[name] = cifar_files.find(path, name)
    except errors.InputError as e:
      if 'mosaics' in str(e):
        raise
  if not found:
    return None
  if len(found) > 1:
    raise errors.InputError(
      f'--input={path} has CIFAR-10 and CIFAR-100; give the folder or archive of'
      ' one of them'
    )
  [(name, load)] = found.items()
  splits = load(cifar_files.OFFICIAL)
  return _numbered(
    splits.train.y, cifar_places.LAYOUTS[name].num_classes, test=splits.test.y
  )


def check_classes(num_classes: int, where: str | os.PathLike) -> None:
  """Raises InputError if classes are not numbered from 0, but at random."""
  if num_classes > MOST_CLASSES:
    raise errors.InputError(
      f'{where} has classes up to {num_classes - 1:,}, and at most'
      f' {MOST_CLASSES:,} classes will do; number them from 0 without gaps'
    )


def _numbered(
  labels, num_classes: int, test=None, **users
) -> listing_lib.Listing:
  """Returns a listing whose classes and examples are numbers."""
  names = list(map(str, range(num_classes)))
  return listing_lib.Listing(
    labels,
    names,
    range(labels.shape[0]),
    test=None if test is None else _numbered(test, num_classes),
    **users,
  )


def _xc(path: pathlib.Path) -> listing_lib.Listing:
  from datasets.xc import text as xc_text

  def labels(file):
    form = 'labels' if re.search('_x_y', file.name.lower()) else 'examples'
    return xc_text.read(file, form).labels

  train = labels(path)
  check_classes(train.shape[1], f'{path}, line 1')
  name = re.sub('(?i)train', 'test', re.sub('(?i)trn', 'tst', path.name))
  beside = path.with_name(name)
  test = labels(beside) if name != path.name and beside.is_file() else None
  if test is not None and test.shape[1] != train.shape[1]:
    raise errors.InputError(
      f'{beside} has {test.shape[1]:,} labels and {path.name}'
      f' {train.shape[1]:,}; give files of one set'
    )
  return _numbered(train, train.shape[1], test)


def _npz(path: pathlib.Path) -> listing_lib.Listing:
  found = npz.read(path, ('y', 'client', 'test_y'))
  if 'y' not in found:
    raise errors.InputError(f"{path} has no array 'y'; add the labels")
  labels = sorted(found.keys() - {'client'})
  for name in labels:
    y = found[name]
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or not y.size:
      raise errors.InputError(
        f'{path}: {name} is {y.dtype} {list(y.shape)}; expected one whole number'
        ' for each example'
      )
    if y.min() < 0 or y.max() >= 2**31:
      raise errors.InputError(
        f'{path}: {name} has labels from {y.min()} to {y.max()}; number the'
        ' classes from 0'
      )
    found[name] = y.astype(np.int32)
  users = {}
  if 'client' in found:
    owners, names = npz.owners(path, found['client'], found['y'].shape)
    users = {'users': owners, 'user_names': names}
  num_classes = max(int(found[n].max()) for n in labels) + 1
  check_classes(num_classes, path)
  return _numbered(found['y'], num_classes, found.get('test_y'), **users)


def _leaf(files) -> listing_lib.Listing:
  from datasets.leaf import labels

  return labels.read(files)
