"""The papers' photographs: Landmarks, iNaturalist, SOP and ImageNet-21k.

FedSS (arXiv:2203.04888) uses MobileNetV3, 64-dimensional embeddings and cosine logits.
FedVC and FedIR (arXiv:2003.08082) use MobileNetV2 and linear logits, with 64-dimensional
embeddings on Landmarks and 1,280-dimensional ones on iNaturalist. The defaults on Landmarks
are those of FedSS, except the local training of FedVC's algorithms. `tasks.papers.fedvc` sets the
other options of FedVC. We chose some values that the papers do not state:

  on Landmarks and iNaturalist, the weight decay 4e-5 of the methods of FedVC's paper
  on Landmarks, their 5 local epochs and FedIR's target distribution (all training examples)
  on ImageNet-21k, 64 clients per round
  for all tasks, the center crop of test images

The files lie under --data_dir as follows:

  DIR/FOLDER/images             the images: a folder (also of tars), images.tar, images.zip,
                                or the files that the owners distribute, see `Source.images`
  DIR/FOLDER/TASK               the split: a folder of `launch.make_splits`,
                                TASK.zip, or the published files
  DIR/FOLDER/gld160k and so on  images and split, as TFRecords that TFF wrote: train/USER
                                and test.tfRecord
"""

import functools
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from datasets.readers import zipped
from datasets.splits import split_path
from tasks import encoders, own_data, task
from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.options import hyperparameters as hp

_IMAGES = ('images', 'images.tar', 'images.zip')


class Source(NamedTuple):
  """The photographs that one owner distributes."""

  folder: str  # The folder under --data_dir.
  # Other names that the folder or archive of images may have, besides `_IMAGES`.
  images: tuple[str, ...]
  get: str  # What to download, its size, and where to get it.
  # The input of `launch.make_splits` as a path in `folder` (None: the images), and where to get it.
  lists: tuple[str | None, str]


class Split(NamedTuple):
  """A split of photographs into clients."""

  task: str  # The name of the task, the split and its rule.
  source: Source
  is_made: bool = True  # Whether `launch.make_splits` has a rule of this name.
  train: str = ''  # The published file of the clients, or FILE:COLUMN; a path in the folder.
  test: str = ''  # The published file of the test set; '': `train` is a zip that includes it.
  published: str = ''  # The address of the published files.
  tff: str = ''  # The folder of TFF's files, which have images and clients.

  def folder(self, data_dir: str) -> pathlib.Path:
    return pathlib.Path(data_dir) / self.source.folder

  def find(self, data_dir: str) -> tuple[str, str, str]:
    """Returns the paths of the images, the split and its test file.

    A split of '' means that the images include it. A test file of '' means that the split,
    or without a split the images, include the test set.
    """
    folder = self.folder(data_dir)
    for name in filter(None, (self.tff, self.tff.upper())):
      if (folder / name / 'test.tfRecord').is_file():
        return str(folder / name), '', ''
    clients, missing, images = self._clients(folder), [], ''
    try:
      images = self.find_images(data_dir)
    except errors.InputError as e:
      missing = [str(e)]
    if clients is None:
      missing.append(self._no_clients(folder, images))
    if missing:
      raise errors.InputError(task.ALSO.join(missing))
    return images, *clients

  def find_images(self, data_dir: str) -> str:
    """Returns the path of the images."""
    folder, names = self.folder(data_dir), (*_IMAGES, *self.source.images)
    for name in names:
      if _has_something(folder / name):
        return str(folder / name)
    raise errors.InputError(f'{folder} has no images ({", ".join(names)}): get {self.source.get}')

  def described(self, data_dir: str) -> str:
    """Says where the images and the clients are."""
    images, split, test = self.find(data_dir)
    if not split:
      return f"images and clients in {images}, TFF's files"
    test = f' and {test}' if test else ''
    return f'images in {images}, clients in {split}{test}'

  def _clients(self, folder: pathlib.Path) -> tuple[str, str] | None:
    for name in (self.task, f'{self.task}.zip'):
      if (folder / name).exists():
        return str(folder / name), ''
    train, test = folder / self.train, folder / self.test
    if self.train and split_path.parse(train).exists() and test.exists():
      return str(train), str(test) if self.test else ''
    return None

  def _no_clients(self, folder: pathlib.Path, images) -> str:
    ways = []
    if self.is_made:
      lists, get = self.source.lists
      path = folder / lists if lists is not None else images
      path = path or folder / self.source.images[0]
      ways.append(
        f'make it with `python -m launch.make_splits {self.task} --input={path}'
        f' --output={folder / self.task}`, which reads {get}'
      )
    if self.train:
      files = filter(None, (self.train.partition(':')[0], self.test))
      ways.append(f'get {" and ".join(files)} from {self.published}')
    return f'{folder} has no clients of {self.task}: {", or ".join(ways)}'


def _has_something(path: pathlib.Path) -> bool:
  try:
    if not path.is_dir():
      return path.exists()
    return any(zipped.is_data(file.name) for file in path.iterdir())
  except PermissionError:  # Reading the files reports this error.
    return True


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
  ('', 'train_val2017.zip (26 MB) and inat2017_locations.zip (12 MB) from the same place'),
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


_TFF = 'https://storage.googleapis.com/tff-datasets-public/'
_LOGITS = hp.Hyperparameter(
  'logits',
  task.COSINE,
  "how to compute class scores. 'cosine': the cosine times --logit_scale (FedSS); 'linear': a"
  ' linear layer with a bias (FedVC)',
  choices=(task.COSINE, task.LINEAR),
)
_OPTIONS = (
  task.EMBEDDING_DIM,
  own_data.IMAGE_SIZE,
  own_data.SPLIT,
  own_data.CORRUPT,
  *encoders.OPTIONS,
)
_METRICS = ('top1', 'macro_f1', 'mcc', 'train_top1')
_OF_FEDSS = {'client_learning_rate': 0.01, 'batch_size': 32, 'negatives': 80}
_WEIGHT_DECAY = {'weight_decay': 4e-5}
# FedVC's local training on Landmarks, which differs from that of FedSS.
_LANDMARKS_OF_FEDVC = {'local_epochs': 5, **_WEIGHT_DECAY}
_OF_FEDVC = ('fedavg', 'fedavgm')


def _check(options: Mapping) -> None:
  side, split = options['image_size'], options['split']
  if not side:
    raise errors.InputError('--image_size=0: give the pixels a side, such as 224, or leave it out')
  encoders.check_side(options, side, f'--image_size={side}: images')
  if split:
    own_data.check_split(split)


def _fit(draft: task.Draft) -> None:
  """Refuses linear logits for an algorithm that needs cosines, or together with --logit_scale."""
  if draft.options.get('logits') == task.LINEAR:
    if base.COSINES in draft.algorithm.needs:
      raise errors.InputError(
        f'--logits=linear does not go with --algorithm={draft.algorithm.name}, which'
        f' needs {base.COSINES}; leave one of them out'
      )
    draft.refuse('logit_scale', 'with --logits=linear', 'leave one of them out')
    del draft.options['logit_scale']
  encoders.fit(draft)


def _read(of: Split, num_classes: int, data_dir, options):
  from datasets import photographs
  from datasets.splits import deal

  if options['split']:
    images, split = of.find_images(data_dir), [options['split']]
  else:
    images, *split = of.find(data_dir)
  choice = deal.Choice(*split)
  side = encoders.stored_side(options, options['image_size'])
  dataset = photographs.load(images, choice, side=side, corrupt=options['corrupt'])
  if dataset.num_classes != num_classes:
    print(
      f'note: {choice.split or images} has {dataset.num_classes:,} classes, but the'
      f' published split has {num_classes:,}',
      file=sys.stderr,
    )
  return dataset


def _network(options, description):
  if 'logit_scale' not in options:
    options = {**options, 'logits': task.LINEAR}
  return task.image_network(options, description)


def _task(
  split: Split,
  summary: str,
  num_classes: int,
  metrics: tuple[str, ...] = _METRICS,
  *,
  options: tuple[hp.Hyperparameter, ...] = (task.LOGIT_SCALE,),
  option_defaults: Mapping[str, Any] | None = None,
  **more,
) -> task.Task:
  """Returns the task of a split. `options` are the options that choose the logits."""
  defaults = option_defaults or {'encoder': encoders.V3, 'image_size': 224, 'crop': 'random'}
  return task.Task(
    name=split.task,
    summary=summary,
    read=functools.partial(_read, split, num_classes),
    network=_network,
    metrics=metrics,
    num_classes=num_classes,
    options=task.options(*options, *_OPTIONS, **defaults),
    check=_check,
    fit=_fit,
    lacks=() if options else (base.COSINES,),
    find=split.described,
    data=f'{split.source.folder}: images as a folder (also of tars), .tar or .zip,'
    ' and a split into clients; `launch.plan --task` says where to get both',
    **more,
  )


def _landmarks(split, summary, num_classes, rounds, clients_per_round):
  return _task(
    split,
    summary,
    num_classes,
    options=(_LOGITS, task.LOGIT_SCALE),
    rounds=rounds,
    clients_per_round=clients_per_round,
    eval_every=250,
    defaults=_OF_FEDSS,
    by_algorithm={
      **dict.fromkeys(_OF_FEDVC, _LANDMARKS_OF_FEDVC),
      # The classes of Landmarks are imbalanced, unlike those of iNaturalist.
      'fedir': {**_LANDMARKS_OF_FEDVC, 'importance_weights': 'train'},
      'fedvc': _WEIGHT_DECAY,
    },
  )


def _inaturalist(kind: str, summary: str):
  return _task(
    Split(
      f'inaturalist-{kind}',
      INATURALIST,
      train=f'iNaturalist_train.csv:{kind.replace("-", "_")}',
      test='iNaturalist_test.csv',
      published=_TFF,
      tff=kind.replace('-', '_'),
    ),
    f'1,203 species of iNaturalist 2017 with 100 images each; {summary}; MobileNetV2',
    1_203,
    options=(),
    option_defaults={
      'encoder': encoders.V2,
      'image_size': 299,
      'bottleneck': False,
      'crop': 'scale',
    },
    rounds=5_000,
    clients_per_round=10,
    eval_every=250,
    defaults={'client_learning_rate': 0.01, 'batch_size': 64, **_WEIGHT_DECAY},
  )


TASKS = (
  _landmarks(
    Split(
      'landmarks-user-160k',
      LANDMARKS,
      train='landmarks-user-160k.zip',
      published='https://storage.googleapis.com/gresearch/federated-vision-datasets/',
      tff='gld160k',
    ),
    '2,028 landmarks, 1,262 photographers with 164,172 images; MobileNetV3',
    2_028,
    rounds=5_000,
    clients_per_round=64,
  ),
  _landmarks(
    Split(
      'gld23k',
      LANDMARKS,
      is_made=False,
      train='mini_gld_train_split.csv',
      test='mini_gld_test.csv',
      published=_TFF,
      tff='gld23k',
    ),
    "TFF's small part of Landmarks: 203 landmarks, 233 photographers with 23,080"
    ' images; MobileNetV3',
    203,
    rounds=2_000,
    clients_per_round=10,
  ),
  _inaturalist('user-120k', '9,275 users'),
  *(
    _inaturalist(f'geo-{size}', f'{clients} S2 cells')
    for size, clients in (
      ('30k', '11'),
      ('10k', '38'),
      ('3k', '135'),
      ('1k', '368'),
      ('300', '1,208'),
      ('100', '3,606'),
    )
  ),
  _task(
    Split('sop', SOP),
    '11,318 products, 596 clients with 100 images each, 60,502 images of other'
    ' products to retrieve; MobileNetV3',
    11_318,
    ('map@10', 'map@r', 'train_top1'),
    rounds=2_000,
    clients_per_round=32,
    eval_every=100,
    defaults=_OF_FEDSS,
  ),
  _task(
    Split('imagenet21k', IMAGENET),
    '21,841 synsets, clients with 400 images of 20 synsets each; MobileNetV3',
    21_841,
    rounds=25_000,
    clients_per_round=64,
    eval_every=1_000,
    defaults={**_OF_FEDSS, 'client_learning_rate': 0.001, 'negatives': 800},
  ),
)
