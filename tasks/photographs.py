"""The papers' photographs: Landmarks, iNaturalist, SOP and ImageNet-21k.

FedSS (arXiv:2203.04888): MobileNetV3, embeddings of 64, cosine logits. FedVC and FedIR
(arXiv:2003.08082): MobileNetV2, of 64 on Landmarks and of 1,280 on iNaturalist, linear
logits. Where the two share Landmarks, its defaults are FedSS's, except the local
training of FedVC's algorithms; `tasks.papers.fedvc` has the changes.

Of what the papers do not state: the weight decay 4e-5 and FedVC's 5 local epochs on
Landmarks are from memory, the 64 clients a round of ImageNet-21k and FedIR's target on
Landmarks, the distribution of the training images, are ours. Both papers start from
pretrained networks (`--encoder_weights`).
"""

import functools
import sys
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tasks import encoders
from tasks import own_data
from tasks import photograph_files as files
from tasks import task
from tff_xc import errors
from tff_xc.algorithms import entry

_GOOGLE = 'https://storage.googleapis.com'
_TFF = f'{_GOOGLE}/tff-datasets-public/'
_OPTIONS = (
  'embedding_dim',
  'image_size',
  'split',
  'corrupt',
  *encoders.NAMES,
)
_METRICS = ('top1', 'macro_f1', 'mcc', 'train_top1')
_OF_FEDSS = {'client_learning_rate': 0.01, 'batch_size': 32, 'negatives': 80}
_WEIGHT_DECAY = {'weight_decay': 4e-5}
# FedVC's local training: its algorithms on Landmarks, where FedSS has another.
_LANDMARKS_OF_FEDVC = {'local_epochs': 5, **_WEIGHT_DECAY}
_OF_FEDVC = ('fedavg', 'fedavgm')


class _Set(NamedTuple):
  """A task's settings.

  Attributes:
    files: its photographs and clients.
    summary: one line.
    num_classes: n, as published.
    metrics: the headline first.
    rounds, clients_per_round, eval_every: defaults.
    defaults: hyper-parameters.
    encoder: the network.
    side: pixels a side.
    crop: of training images, see `encoders.OPTIONS`.
    bottleneck: whether embeddings have 64 dimensions.
    logits: 'cosine', 'linear', or '' if it is an option.
    by_algorithm: hyper-parameters of some algorithms.
  """

  files: files.Split
  summary: str
  num_classes: int
  metrics: tuple[str, ...]
  rounds: int
  clients_per_round: int
  eval_every: int
  defaults: Mapping[str, Any]
  encoder: str
  side: int = 224
  crop: str = 'random'
  bottleneck: bool = True
  logits: str = task.COSINE
  by_algorithm: Mapping[str, Mapping[str, Any]] = {}


def _check(options: Mapping) -> None:
  side, split = options['image_size'], options['split']
  if not side:
    raise errors.InputError(
      '--image_size=0: give the pixels a side, such as 224, or leave it out'
    )
  encoders.check_side(options, side, f'--image_size={side}: images')
  if split:
    own_data.check_split(split)


def _load(found: _Set, data_dir, options):
  from datasets.images import clients
  from datasets.splits import own

  if options['split']:
    images = files.find_images(found.files, data_dir)
    choice = own.Choice(options['split'])
  else:
    images, *split = files.find(found.files, data_dir)
    choice = own.Choice(*split)
  dataset = clients.load(
    images,
    choice,
    side=encoders.stored_side(options, options['image_size']),
    corrupt=options['corrupt'],
  )
  if dataset.num_classes != found.num_classes:
    print(
      f'note: {choice.split or images} has {dataset.num_classes:,} classes, and the published'
      f' split {found.num_classes:,}',
      file=sys.stderr,
    )
  logits = found.logits or options['logits']
  return task.with_encoder(dataset, {**options, 'logits': logits})


def _task(found: _Set) -> task.Task:
  options = _OPTIONS
  if found.logits != task.LINEAR:
    options = ('logit_scale', *options)
  if not found.logits:
    options = ('logits', *options)
  return task.Task(
    name=found.files.task,
    summary=found.summary,
    load=functools.partial(_load, found),
    metrics=found.metrics,
    rounds=found.rounds,
    clients_per_round=found.clients_per_round,
    eval_every=found.eval_every,
    defaults=found.defaults,
    by_algorithm=found.by_algorithm,
    num_classes=found.num_classes,
    options=options,
    option_defaults={
      'encoder': found.encoder,
      'image_size': found.side,
      'bottleneck': found.bottleneck,
      'crop': found.crop,
    },
    check=_check,
    lacks=(entry.COSINES,) if found.logits == task.LINEAR else (),
    find=functools.partial(files.described, found.files),
    data=files.needs(found.files),
  )


def _landmarks(split, summary, num_classes, rounds, clients_per_round):
  return _Set(
    split,
    summary,
    num_classes,
    _METRICS,
    rounds,
    clients_per_round,
    eval_every=250,
    defaults=_OF_FEDSS,
    encoder=encoders.V3,
    logits='',
    by_algorithm={
      **dict.fromkeys(_OF_FEDVC, _LANDMARKS_OF_FEDVC),
      # The classes of Landmarks are not balanced, unlike those of iNaturalist.
      'fedir': {**_LANDMARKS_OF_FEDVC, 'importance_weights': 'train'},
      'fedvc': _WEIGHT_DECAY,
    },
  )


def _inaturalist(kind: str, summary: str):
  return _Set(
    files.Split(
      f'inaturalist-{kind}',
      files.INATURALIST,
      train=f'iNaturalist_train.csv:{kind.replace("-", "_")}',
      test='iNaturalist_test.csv',
      published=_TFF,
      tff=kind.replace('-', '_'),
    ),
    f'1,203 species of iNaturalist 2017 with 100 images each; {summary};'
    ' MobileNetV2',
    1_203,
    _METRICS,
    rounds=5_000,
    clients_per_round=10,
    eval_every=250,
    defaults={'client_learning_rate': 0.01, 'batch_size': 64, **_WEIGHT_DECAY},
    encoder=encoders.V2,
    side=299,
    crop='scale',
    bottleneck=False,
    logits=task.LINEAR,
  )


_SETS = (
  _landmarks(
    files.Split(
      'landmarks-user-160k',
      files.LANDMARKS,
      train='landmarks-user-160k.zip',
      published=f'{_GOOGLE}/gresearch/federated-vision-datasets/',
      tff='gld160k',
    ),
    '2,028 landmarks, 1,262 photographers with 164,172 images; MobileNetV3',
    2_028,
    rounds=5_000,
    clients_per_round=64,
  ),
  _landmarks(
    files.Split(
      'gld23k',
      files.LANDMARKS,
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
  _Set(
    files.Split('sop', files.SOP),
    '11,318 products, 596 clients with 100 images each, 60,502 images of other'
    ' products to retrieve; MobileNetV3',
    11_318,
    ('map@10', 'map@r', 'train_top1'),
    rounds=2_000,
    clients_per_round=32,
    eval_every=100,
    defaults=_OF_FEDSS,
    encoder=encoders.V3,
  ),
  _Set(
    files.Split('imagenet21k', files.IMAGENET),
    '21,841 synsets, clients with 400 images of 20 synsets each; MobileNetV3',
    21_841,
    _METRICS,
    rounds=25_000,
    clients_per_round=64,
    eval_every=1_000,
    defaults={**_OF_FEDSS, 'client_learning_rate': 0.001, 'negatives': 800},
    encoder=encoders.V3,
  ),
)
TASKS = tuple(map(_task, _SETS))
