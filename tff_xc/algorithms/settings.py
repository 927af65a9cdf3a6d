"""Hyper-parameters of clients and server that all algorithms share.

Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import options

if TYPE_CHECKING:
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

CLIENTS = (
  hp.Hyperparameter(
    'clients_per_round',
    16,
    "K, clients that take part in a round; default: the task's",
    least=1,
  ),
)
LOCAL_TRAINING = (
  hp.Hyperparameter(
    'client_optimizer',
    'sgd',
    "a client's optimizer; adam starts without moments in every round",
    choices=('sgd', 'adam'),
  ),
  hp.Hyperparameter(
    'client_learning_rate',
    0.01,
    "learning rate of a client's optimizer; default for adam 0.001",
    above=0,
    of='client_optimizer',
    defaults={'adam': 1e-3},
  ),
  hp.Hyperparameter('batch_size', 32, 'examples in a minibatch', least=1),
  hp.Hyperparameter(
    'weight_decay',
    0.0,
    "L2 of everything that clients train, as in PyTorch's SGD and Adam: weight"
    ' decay times the weight, added to its gradient',
    least=0,
  ),
  hp.Hyperparameter(
    'local_steps',
    0,
    'minibatches that a client takes in a round; 0: whole local epochs',
    least=0,
  ),
  hp.Hyperparameter(
    'local_epochs',
    1,
    "passes over a client's data, without --local_steps",
    least=1,
    most=1000,
  ),
  hp.Hyperparameter(
    'shuffle',
    True,
    'whether each local epoch takes the examples in a new order',
  ),
  hp.Hyperparameter(
    'replace_nonfinite',
    False,
    'set trained numbers that are not finite to 0.00001 after every local step,'
    " as TurboSVM-FL's published code does (it also does so after the aggregation,"
    " where none is left); otherwise the client's update is dropped",
    of='client_optimizer',
    only_with=('sgd',),
  ),
)
_ADAM = {'of': 'server_optimizer', 'only_with': ('adam', 'amsgrad')}
SERVER = (
  hp.Hyperparameter(
    'server_optimizer',
    'sgd',
    "the server's optimizer, on the encoder and, except in FedAwS, on the class"
    ' table',
    choices=('sgd', 'adam', 'amsgrad', 'adagrad'),
  ),
  hp.Hyperparameter(
    'server_learning_rate',
    1.0,
    "the server's learning rate; default for adam and amsgrad 0.001, for adagrad"
    ' 0.01',
    above=0,
    of='server_optimizer',
    defaults={'adam': 1e-3, 'amsgrad': 1e-3, 'adagrad': 1e-2},
  ),
  hp.Hyperparameter(
    'server_momentum',
    0.9,
    "momentum of the server's SGD",
    least=0,
    below=1,
    of='server_optimizer',
    only_with=('sgd',),
  ),
  hp.Hyperparameter(
    'server_beta_1',
    0.9,
    "decay of the mean in the server's Adam",
    least=0,
    below=1,
    **_ADAM,
  ),
  hp.Hyperparameter(
    'server_beta_2',
    0.999,
    "decay of the square in the server's Adam",
    least=0,
    below=1,
    **_ADAM,
  ),
  hp.Hyperparameter(
    'server_epsilon',
    1e-8,
    "epsilon of the server's Adam, added to the root as in PyTorch",
    above=0,
    **_ADAM,
  ),
  hp.Hyperparameter(
    'server_initial_accumulator',
    0.1,
    "initial sum of squares in the server's Adagrad",
    least=0,
    of='server_optimizer',
    only_with=('adagrad',),
  ),
)
# The server of FedAvg: the mean of the clients' models.
PLAIN_SERVER: Mapping = {
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
  'server_momentum': 0.0,
}
SAMPLED_ROWS = (
  hp.Hyperparameter(
    'server_adam_rows',
    'all',
    "rows that the server's Adam updates: 'all', or only those requested this"
    " round, 'requested' (lazy Adam: cheaper for many classes, not identical to"
    ' Adam)',
    choices=('all', 'requested'),
    **_ADAM,
  ),
  hp.Hyperparameter(
    'row_renormalise',
    False,
    'average a row over the examples of the clients that hold it, not over'
    ' those of the whole cohort (not in the FedSS paper)',
  ),
)
FEDERATED = (
  *CLIENTS,
  *options.VIRTUAL_CLIENTS,
  options.CLIENT_DROPOUT,
  *LOCAL_TRAINING,
  *options.TERMS,
  *SERVER,
)
SAMPLED = (*FEDERATED, *SAMPLED_ROWS)


def local_training(values: Mapping) -> local_training_lib.LocalTraining:
  """Returns the local training that the values of `LOCAL_TRAINING` describe."""
  from tff_xc.round import local_training as local_training_lib

  return local_training_lib.LocalTraining(
    learning_rate=values['client_learning_rate'],
    batch_size=values['batch_size'],
    epochs=values.get('local_epochs', 1),
    steps=values.get('local_steps', 0),
    shuffle=values.get('shuffle', True),
    replace_nonfinite=values.get('replace_nonfinite', False),
    optimizer_name=values.get('client_optimizer', 'sgd'),
    weight_decay=values.get('weight_decay', 0.0),
  )


def with_server(
  made: algorithm_lib.Algorithm, values: Mapping
) -> algorithm_lib.Algorithm:
  """Returns the algorithm with the chosen optimizers of the server."""
  from tff_xc.round import merge

  optimizer, of_rows = _optimizers(values)
  table = made.tables[0]
  if table.merge.takes_optimizer:
    chosen = of_rows if table.request.selects else optimizer
    table = dataclasses.replace(table, optimizer=chosen)
  if 'row_renormalise' in values:
    merged = merge.SumRows(values['row_renormalise'])
    table = dataclasses.replace(table, merge=merged)
  return dataclasses.replace(
    made.with_table(table), encoder_optimizer=optimizer
  )


def _optimizers(values: Mapping):
  """Returns the server's optimizer of all weights, and that of selected rows.

  Both compute the same, except Adam on requested rows only. A row without a
  gradient does not move with Adagrad, and moves by its momentum with SGD.
  """
  import tensorflow_federated as tff

  from tff_xc.round import optimizers

  rate, kind = values['server_learning_rate'], values['server_optimizer']
  if kind == 'sgd':
    momentum = values['server_momentum']
    return (
      optimizers.build_sgd(rate, momentum),
      optimizers.RowMomentum(rate, momentum),
    )
  if kind == 'adagrad':
    optimizer = tff.learning.optimizers.build_adagrad(
      rate, values['server_initial_accumulator']
    )
    return optimizer, optimizers.LazyRows(optimizer)
  optimizer = optimizers.TorchAdam(
    rate,
    values['server_beta_1'],
    values['server_beta_2'],
    values['server_epsilon'],
    amsgrad=kind == 'amsgrad',
  )
  if values.get('server_adam_rows') == 'requested':
    return optimizer, optimizers.LazyRows(optimizer)
  return optimizer, optimizer
