"""CIFAR-10 and CIFAR-100, with the networks of two papers.

FedAwS, Table 1: residual networks; by default each client has one class and
therefore only positive labels. FedVC and FedIR, figures 4 and 8: a small CNN; 100
clients with classes from a Dirichlet distribution. An option takes any other
split.
"""

import functools

from tasks import task
from tff_xc.algorithms import entry
from tff_xc.measure import catalog

# Each client takes one minibatch a round, so the mean of the clients' gradients
# is the gradient of one minibatch of all classes. The server uses Adam: with
# SGD, training stays much longer in the initial state in which all embeddings
# are parallel.
_ADAM = {'server_optimizer': 'adam', 'server_learning_rate': 0.003}
_DEFAULTS = {
  'client_learning_rate': 0.01,
  'batch_size': 50,
  'local_steps': 1,
  **_ADAM,
  # A margin selects eq. (7). With few classes all others are neighbours in
  # eq. (8), which is then minimal whenever the rows' sum is zero.
  'spreadout_margin': 1.4,
}


_OPTIONS = (
  'split',
  'clients_per_class',
  'concentration',
  'num_clients',
  'data_seed',
  'augment',
)
_DATA = (
  '{}: the official binary or Python batches, or their archive, or'
  " TFDS's folder"
)


def _dataset(name, data_dir, options):
  from datasets.cifar import clients as cifar

  return cifar.load(
    data_dir,
    name,
    split=options['split'],
    clients_per_class=options['clients_per_class'],
    concentration=options['concentration'],
    num_clients=options['num_clients'],
    seed=options['data_seed'],
  )


def _load_skewed(name, data_dir, options):
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.encoders import plain_cnn

  dataset = _dataset(name, data_dir, options)
  model = classifier.EmbeddingClassifier(
    encoder=plain_cnn.build_cifar_encoder(augment=options['augment']),
    head=heads.LinearHead(),
    num_classes=dataset.num_classes,
  )
  return task.Loaded(dataset, model)


def _load(name, data_dir, options):
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.encoders import resnet

  dataset = _dataset(name, data_dir, options)
  model = classifier.EmbeddingClassifier(
    encoder=resnet.build_resnet_encoder(
      depth=options['depth'],
      embedding_dim=options['embedding_dim'],
      augment=options['augment'],
    ),
    head=heads.CosineHead(options['logit_scale']),
    num_classes=dataset.num_classes,
  )
  return task.Loaded(dataset, model)


def _find(name, data_dir):
  from datasets.cifar import files

  return files.find(data_dir, name)


def _task(name: str, num_classes: int, **more) -> task.Task:
  return task.Task(
    name=name,
    summary=f'{num_classes} classes of images, one class a client; ResNet',
    load=functools.partial(_load, name),
    metrics=('top1', *catalog.DISTANCES),
    rounds=3000,
    clients_per_round=num_classes,
    eval_every=100,
    defaults={**_DEFAULTS, **more},
    num_classes=num_classes,
    by_algorithm={
      'centralized': {'steps_per_round': 1, 'batch_size': 500, **_ADAM}
    },
    options=(
      'embedding_dim',
      'logit_scale',
      'depth',
      *_OPTIONS,
    ),
    option_defaults={'split': 'class'},
    find=functools.partial(_find, name),
    data=_DATA.format(name),
  )


def _skewed(name: str, num_classes: int, rounds: int) -> task.Task:
  return task.Task(
    name=f'{name}-dirichlet',
    summary=f'{num_classes} classes of images, 100 clients by a Dirichlet'
    ' distribution; CNN',
    load=functools.partial(_load_skewed, name),
    metrics=('top1', 'macro_f1', 'mcc', *catalog.DISTANCES),
    rounds=rounds,
    clients_per_round=10,
    eval_every=100,
    defaults={
      'client_learning_rate': 0.01,
      'batch_size': 64,
      'weight_decay': 4e-4,
    },
    num_classes=num_classes,
    # A federated round has as many: 10 clients with 8 batches.
    by_algorithm={'centralized': {'steps_per_round': 80}},
    options=_OPTIONS,
    option_defaults={'split': 'dirichlet'},
    lacks=(entry.COSINES,),
    find=functools.partial(_find, name),
    data=_DATA.format(name),
  )


# Lambda eta is 0.9 and 0.8 times 1 / (2 k), with all other classes as the k.
TASKS = (
  _task(
    'cifar10',
    10,
    spreadout_learning_rate=0.005,
    negatives=5,
  ),
  _task(
    'cifar100',
    100,
    spreadout_learning_rate=0.0004,
  ),
  _skewed('cifar10', 10, rounds=10_000),
  _skewed('cifar100', 100, rounds=20_000),
)
