"""Our own comparisons, which `launch.reproduce` runs like the papers' tables.

methods.csv compares all methods under equal conditions (docs/choosing.md). In each setting of data
and clients, all methods have the same number of rounds and about as many batches. They also have
the same server optimizer, unless a method needs a different one. The learning rate of each method
is tuned on examples that clients hold out. The search tries a third of the task's rate, the task's
rate and three times this rate, and goes on as long as scores improve. The results are scores after
all rounds, scores after as many bytes as FedBABU sends in all rounds, and the number of rounds
until a method reaches nine tenths of centralized training's final score.

scaffold.csv has one cell of SCAFFOLD's Table 3: 0 % similar clients and one epoch (docs/rivals.md).
"""

from collections.abc import Mapping
from typing import Any

from tasks.papers import table

_HELD_OUT = {'client_test_fraction': 0.1}
_GLYPHS = {
  **_HELD_OUT,
  'num_classes': 60,
  'negatives': 10,
  'num_clients': 100,
  'examples_per_client': 120,
  'clients_per_round': 10,
  'batch_size': 32,
  'steps_per_round': 40,
  'rounds': 60,
  'eval_every': 6,
  'evaluate_clients': 95,
}
_DRAWN = 'Procedural handwriting of 60 classes, 100 clients, 60 rounds'
# A description of each setting, and the changes that all methods share.
_SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
  'within': (
    f'{_DRAWN}: each client has many examples of a few classes and few of the others',
    {**_GLYPHS, 'split': 'dirichlet', 'concentration': 3.0},
  ),
  'sizes': (
    f'{_DRAWN}: clients have very different sizes',
    {**_GLYPHS, 'split': 'dirichlet', 'concentration': 6000.0, 'size_deviation': 1.2},
  ),
  'few': (f'{_DRAWN}: each client has three classes', {**_GLYPHS, 'classes_per_client': 3}),
  'cifar10': (
    'Needs CIFAR-10; Dirichlet split with alpha 0.5, 40 rounds of twenty batches',
    {
      **_HELD_OUT,
      'concentration': 0.5,
      'clients_per_round': 5,
      'local_steps': 4,
      'batch_size': 32,
      'steps_per_round': 20,
      'rounds': 40,
      'eval_every': 4,
      'negatives': 3,
      'evaluate_clients': 50,
    },
  ),
  'omniglot': (
    'Needs Omniglot; 200 rounds with eight drawers as clients',
    {
      **_HELD_OUT,
      'clients_per_round': 8,
      'batch_size': 32,
      'steps_per_round': 11,
      'rounds': 200,
      'eval_every': 20,
      'evaluate_clients': 480,
    },
  ),
  'landmarks': (
    'Procedural handwriting with the sizes of Landmarks-User-160k, 100 rounds',
    {
      **_HELD_OUT,
      'clients_per_round': 8,
      'batch_size': 32,
      'steps_per_round': 32,
      'rounds': 100,
      'eval_every': 10,
      'evaluate_clients': 300,
    },
  ),
}
# Each client has one or two successive classes, as if examples were sorted by class.
_SORTED = {
  'num_classes': 62,
  'num_clients': 100,
  'examples_per_client': 100,
  'classes_per_client': 2,
  'consecutive_classes': True,
  'clients_per_round': 20,
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
  'rounds': 100,
  'eval_every': 1,
  'checkpoint_every': 50,
}

COMPARISONS = (
  *(
    table.of_csv(
      paper='Methods',
      number=name,
      source='docs/choosing.md',
      caption='All methods under equal conditions',
      what=what,
      shared=shared,
    )
    for name, (what, shared) in _SETTINGS.items()
  ),
  table.of_csv(
    paper='SCAFFOLD',
    number='Table 3',
    source='arXiv:1910.06378',
    caption='Rounds to a test accuracy of 0.5: clients sorted by class, one epoch',
    notes='The paper trains a linear model on EMNIST. The first row is SGD, which takes one step'
    ' on all examples of a client. Each row has its best learning rate.',
    what='Procedural features of 62 classes, 100 clients with two classes each, 20 per round',
    shared=_SORTED,
    best_over=('client_learning_rate',),
  ),
)
