"""CIFAR-10 and CIFAR-100, with the networks of two papers.

FedAwS (Table 1) trains residual networks on clients with one class each. FedVC and FedIR
(figures 4 and 8) train a small CNN on 100 clients with Dirichlet-distributed classes.
"""

import functools

from tasks import own_data, task
from tff_xc.algorithms import base
from tff_xc.measure import catalog
from tff_xc.options import hyperparameters as hp

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
  # A positive margin selects eq. (7). In eq. (8) with few classes, all other classes are
  # neighbors, and any rows that sum to zero minimize the loss.
  'spreadout_margin': 1.4,
}
_OPTIONS = (
  own_data.SPLIT,
  task.CLIENTS_PER_CLASS,
  task.CONCENTRATION,
  task.NUM_CLIENTS,
  task.DATA_SEED,
  hp.Hyperparameter('augment', True, 'randomly mirror and shift training images'),
)


def _read(name, data_dir, options):
  given = {n: options[n] for n in ('split', 'clients_per_class', 'concentration', 'num_clients')}
  return task.at('cifar:load')(data_dir, name, **given, seed=options['data_seed'])


def _network(options, description):
  from tff_xc import heads
  from tff_xc.encoders import plain_cnn, resnet

  if 'depth' not in options:
    encoder = plain_cnn.build_cifar_encoder(augment=options['augment'])
    return task.classifier(encoder, description)
  encoder = resnet.build_resnet_encoder(
    **{n: options[n] for n in ('depth', 'embedding_dim', 'augment')}
  )
  head = heads.CosineHead(options['logit_scale'])
  return task.classifier(encoder, description, head)


def _task(name: str, **more) -> task.Task:
  of = name.removesuffix('-dirichlet')
  return task.Task(
    name=name,
    read=functools.partial(_read, of),
    network=_network,
    eval_every=100,
    num_classes=int(of.removeprefix('cifar')),
    fit=task.check_split,
    find=task.at('cifar:find', name=of),
    data=f'{of}: the official binary or Python batches, their archive, or the folder of TFDS',
    **more,
  )


def _positive(name: str, num_classes: int, **defaults) -> task.Task:
  return _task(
    name,
    summary=f'{num_classes} classes of images, one class per client; ResNet',
    metrics=('top1', *catalog.DISTANCES),
    rounds=3000,
    clients_per_round=num_classes,
    defaults={**_DEFAULTS, **defaults},
    by_algorithm={'centralized': {'steps_per_round': 1, 'batch_size': 500, **_ADAM}},
    options=task.options(
      task.EMBEDDING_DIM,
      task.LOGIT_SCALE,
      hp.Hyperparameter(
        'depth',
        8,
        'number of layers of the ResNet, of the form 6n + 2, such as 8, 32 or 56',
        least=8,
        most=1202,
      ),
      *_OPTIONS,
      split='class',
    ),
  )


def _skewed(name: str, num_classes: int, rounds: int) -> task.Task:
  return _task(
    f'{name}-dirichlet',
    summary=f'{num_classes} classes of images, 100 clients by a Dirichlet distribution; CNN',
    metrics=('top1', 'macro_f1', 'mcc', *catalog.DISTANCES),
    rounds=rounds,
    clients_per_round=10,
    defaults={'client_learning_rate': 0.01, 'batch_size': 64, 'weight_decay': 4e-4},
    # As many batches as in a federated round: 10 clients with 8 batches each.
    by_algorithm={'centralized': {'steps_per_round': 80}},
    options=task.options(*_OPTIONS, split='dirichlet'),
    lacks=(base.COSINES,),
  )


# On CIFAR-10 and CIFAR-100, lambda eta is 0.9 and 0.8 times the bound 1 / (2 k). Here k is the
# number of all other classes.
TASKS = (
  _positive('cifar10', 10, spreadout_learning_rate=0.005, negatives=5),
  _positive('cifar100', 100, spreadout_learning_rate=0.0004),
  _skewed('cifar10', 10, rounds=10_000),
  _skewed('cifar100', 100, rounds=20_000),
)
