"""Where the papers' photographs lie under --data_dir, and where they come from.

  DIR/FOLDER/images             a folder (also of tars), or images.tar, images.zip,
                                or what the owners distribute, see `Source.images`
  DIR/FOLDER/TASK               the split, a folder of `launch.make_splits`, or
                                TASK.zip, or the published files
  DIR/FOLDER/gld160k and so on  both, as TFRecords that TFF wrote: train/USER and
                                test.tfRecord

Importing this imports nothing large.
"""

import pathlib
from typing import NamedTuple

from datasets import never_data
from datasets.splits import split_path
from tasks import found as found_lib
from tff_xc import errors

_IMAGES = ('images', 'images.tar', 'images.zip')


class Source(NamedTuple):
  """The photographs of one owner.

  Attributes:
    folder: under --data_dir.
    images: further names, in it, under which they may lie.
    get: what to download, its size, and from where.
    lists: what `launch.make_splits` reads: its path in the folder, '' for the folder
      itself, or None for the images themselves; and where it comes from.
  """

  folder: str
  images: tuple[str, ...]
  get: str
  lists: tuple[str | None, str]


class Split(NamedTuple):
  """Clients of photographs.

  Attributes:
    task: its name, which is also that of the split and of its rule.
    source: the photographs.
    is_made: whether `launch.make_splits` has a rule of this name.
    train: the published file of the training examples, in the folder; it may name
      a column, see `split_path`. Empty: there is none.
    test: the published file of the test; empty: it is in `train`, a zip.
    published: where these come from.
    tff: the folder in which TFF keeps images with their clients; empty: TFF has none.
  """

  task: str
  source: Source
  is_made: bool = True
  train: str = ''
  test: str = ''
  published: str = ''
  tff: str = ''


class Found(NamedTuple):
  """The files of a task.

  Attributes:
    images: a folder or an archive.
    split: as `--split` takes it; empty: the images have their clients.
    test_file: as `--test_file` takes it.
  """

  images: str
  split: str
  test_file: str = ''


LANDMARKS = Source(
  'landmarks',
  ('train',),
  'images_000.tar to images_499.tar of Google Landmarks v2 (about 500 GB), as they'
  ' are or unpacked, from https://s3.amazonaws.com/google-landmark/train/'
  ' (https://github.com/cvdfoundation/google-landmark)',
  (
    '',
    'train.csv, train_attribution.csv and train_clean.csv of'
    ' https://s3.amazonaws.com/google-landmark/metadata/',
  ),
)
INATURALIST = Source(
  'inaturalist',
  ('train_val_images', 'train_val_images.tar'),
  'train_val_images.tar.gz of iNaturalist 2017 (186 GB), unpacked, or as a .tar'
  ' without .gz, from https://ml-inat-competition-datasets.s3.amazonaws.com/2017/'
  ' (https://github.com/visipedia/inat_comp)',
  (
    '',
    'train_val2017.zip (26 MB) and inat2017_locations.zip (12 MB) from the same'
    ' place',
  ),
)
SOP = Source(
  'sop',
  ('Stanford_Online_Products.zip', 'Stanford_Online_Products'),
  'Stanford_Online_Products.zip (about 3 GB), as it is or unpacked, from'
  ' ftp://cs.stanford.edu/cs/cvgl/ (https://cvgl.stanford.edu/projects/lifted_struct)',
  (None, 'the same zip, or its Ebay_train.txt and Ebay_test.txt'),
)
IMAGENET = Source(
  'imagenet21k',
  ('fall11_whole.tar', 'fall11_whole'),
  'fall11_whole.tar (about 1.3 TB, 14,197,122 images), as it is or as a folder of'
  " synsets' tars or folders, from https://image-net.org, which asks for a login",
  (None, 'the images themselves'),
)


def find(split: Split, data_dir: str) -> Found:
  """Finds the files of a task.

  Raises:
    errors.InputError: something is missing; the message says all that is, and
      where it comes from.
  """
  if both := _of_tff(split, _folder(split.source, data_dir)):
    return Found(str(both), '')
  images = _images(split.source, data_dir)
  clients = _clients(split, _folder(split.source, data_dir))
  missing = []
  if images is None:
    missing.append(_no_images(split.source, data_dir))
  if clients is None:
    missing.append(_no_split(split, data_dir, images))
  if missing:
    raise errors.InputError(found_lib.ALSO.join(missing))
  return Found(str(images), *clients)


def find_images(split: Split, data_dir: str) -> str:
  """Finds the images alone; errors are those of `find`."""
  images = _images(split.source, data_dir)
  if images is None:
    raise errors.InputError(_no_images(split.source, data_dir))
  return str(images)


def described(split: Split, data_dir: str) -> str:
  """Says where the images and the clients are; errors are those of `find`."""
  found = find(split, data_dir)
  if not found.split:
    return f"images and clients in {found.images}, TFF's files"
  test = f' and {found.test_file}' if found.test_file else ''
  return f'images in {found.images}, clients in {found.split}{test}'


def needs(split: Split) -> str:
  """Returns what --data_dir must hold, for listings."""
  return (
    f'{split.source.folder}: images as a folder (also of tars), .tar or .zip, and'
    ' their clients; `launch.doctor --task` says where both come from'
  )


def _folder(source: Source, data_dir: str) -> pathlib.Path:
  return pathlib.Path(data_dir) / source.folder


def _of_tff(split: Split, folder: pathlib.Path) -> pathlib.Path | None:
  for name in filter(None, dict.fromkeys((split.tff, split.tff.upper()))):
    if (folder / name / 'test.tfRecord').is_file():
      return folder / name
  return None


def _images(source: Source, data_dir: str) -> pathlib.Path | None:
  folder = _folder(source, data_dir)
  names = [folder / name for name in (*_IMAGES, *source.images)]
  return next(filter(_has_something, names), None)


def _has_something(path: pathlib.Path) -> bool:
  try:
    if not path.is_dir():
      return path.exists()
    return any(never_data.is_data(file.name) for file in path.iterdir())
  except PermissionError:  # Reading it says so.
    return True


def _clients(split: Split, folder: pathlib.Path) -> tuple[str, str] | None:
  """Returns the split and its file of the test; '': it has its own."""
  for name in (split.task, f'{split.task}.zip'):
    if (folder / name).exists():
      return str(folder / name), ''
  train, test = folder / split.train, folder / split.test
  if split.train and split_path.parse(train).exists() and test.exists():
    return str(train), str(test) if split.test else ''
  return None


def _no_images(source: Source, data_dir: str) -> str:
  folder = _folder(source, data_dir)
  names = ', '.join((*_IMAGES, *source.images))
  return f'{folder} has no images ({names}): get {source.get}'


def _no_split(split: Split, data_dir: str, images: pathlib.Path | None) -> str:
  folder = _folder(split.source, data_dir)
  ways = []
  if split.is_made:
    lists, get = split.source.lists
    path = folder / lists if lists is not None else images
    path = path or folder / split.source.images[0]
    ways.append(
      f'make it with `python -m launch.make_splits {split.task} --input={path}'
      f' --output={folder / split.task}`, which reads {get}'
    )
  if split.train:
    files = [split.train.partition(':')[0], split.test]
    names = ' and '.join(filter(None, files))
    ways.append(f'get {names} from {split.published}')
  return f'{folder} has no clients of {split.task}: {", or ".join(ways)}'
