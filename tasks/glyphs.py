"""Procedural handwriting: any number of classes and clients, nothing stored.

`glyphs` takes any shape; its default is small enough for a first run. The other
tasks have the shapes of the papers' data sets (FedSS, TurboSVM-FL): numbers of
classes and clients, and of examples and classes of a client.
"""

import functools

from tasks import leaf
from tasks import task
from tff_xc import errors

_SHAPE = (
  'num_classes',
  'num_clients',
  'classes_per_client',
  'examples_per_client',
)
_ANY = (*_SHAPE, 'classes_least', 'classes_most', 'data_seed')


def _load(preset, data_dir, options):
  del data_dir  # The examples are drawn, not read.
  from datasets.procedural import glyphs

  names = (*_SHAPE, 'retrieval_classes')
  changes = {k: options[k] for k in names if k in options}
  ends = options.get('classes_least', 0), options.get('classes_most', 0)
  if any(ends):
    if not 1 <= ends[0] <= options['classes_per_client'] <= ends[1]:
      raise errors.InputError(
        f'--classes_least={ends[0]} --classes_most={ends[1]}: the mean,'
        f' --classes_per_client={options["classes_per_client"]}, lies between them'
      )
    changes['classes_range'] = ends
  if 'data_seed' in options:
    changes['seed'] = options['data_seed']
  return task.with_encoder(glyphs.load_preset(preset, **changes), options)


def _load_femnist(data_dir, options):
  del data_dir
  from datasets.procedural import glyphs

  return leaf.with_femnist_network(
    glyphs.load_preset('glyphs-femnist', seed=options['data_seed']), options
  )


def _task(
  name,
  summary,
  metrics,
  rounds,
  clients_per_round,
  eval_every,
  num_classes=None,
  options=(),
  **more,
):
  return task.Task(
    name=name,
    summary=summary,
    load=functools.partial(_load, name),
    metrics=metrics,
    rounds=rounds,
    clients_per_round=clients_per_round,
    eval_every=eval_every,
    defaults={**task.FROM_SCRATCH, **more},
    num_classes=num_classes,
    options=(*task.Task.options, *options),
  )


TASKS = (
  _task(
    'glyphs',
    'procedural handwriting of any size; small by default, for a first run',
    ('top1', 'macro_f1', 'mcc', 'train_top1'),
    rounds=150,
    clients_per_round=16,
    eval_every=10,
    options=_ANY,
    negatives=40,
  ),
  _task(
    'glyphs-retrieval',
    'the same with unseen classes, whose images are retrieved',
    ('map@10', 'map@r', 'top1', 'train_top1'),
    rounds=150,
    clients_per_round=16,
    eval_every=50,
    options=(*_ANY, 'retrieval_classes'),
    negatives=40,
  ),
  _task(
    'glyphs-landmarks',
    'the shape of Landmarks-User-160k: 2,028 classes, 1,262 skewed clients',
    ('top1', 'train_top1'),
    num_classes=2_028,
    rounds=5000,
    clients_per_round=64,
    eval_every=50,
  ),
  _task(
    'glyphs-sop',
    'the shape of SOP: 11,318 classes, 596 clients, unseen classes to retrieve',
    ('map@10', 'map@r', 'train_top1'),
    num_classes=11_318,
    rounds=2000,
    clients_per_round=32,
    eval_every=100,
  ),
  _task(
    'glyphs-imagenet21k',
    'the shape of ImageNet-21k: 21,841 classes, 25,691 clients',
    ('top1', 'train_top1'),
    num_classes=21_841,
    rounds=25000,
    clients_per_round=64,
    eval_every=500,
    negatives=800,
  ),
  task.Task(
    name='glyphs-femnist',
    summary='the shape of FEMNIST: 62 classes, 3,195 writers of any class',
    load=_load_femnist,
    **leaf.FEMNIST,
    options=('embedding_dim', 'data_seed'),
  ),
)
