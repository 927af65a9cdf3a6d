"""Builds a learning process from resolved hyper-parameters."""

import dataclasses
from collections.abc import Mapping

import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import registry
from tff_xc.algorithms import spreadout
from tff_xc.round import local_training as client_work
from tff_xc.round import merge
from tff_xc.round import optimizers
from tff_xc.round import server as server_lib
from tff_xc.round import table_optimizers

_SOFTMAX_OVER_OWN = ('posonly', 'fedaws_posonly')
# Settings that the training loop uses and no builder takes.
_OF_THE_COHORT = ('steps_per_round',)


def _local_training(values: Mapping) -> client_work.LocalTraining:
  return client_work.LocalTraining(
    learning_rate=values['client_learning_rate'],
    batch_size=values['batch_size'],
    epochs=values.get('local_epochs', 1),
    steps=values.get('local_steps', 0),
  )


def _server(values: Mapping, selects_rows: bool) -> server_lib.Server:
  rate = values['server_learning_rate']
  if values['server_optimizer'] == 'sgd':
    momentum = values['server_momentum']
    optimizer = optimizers.build_sgd(rate, momentum)
    of_rows = table_optimizers.RowMomentum(rate, momentum)
    return server_lib.Server(optimizer, of_rows if selects_rows else optimizer)
  if values['server_optimizer'] == 'adagrad':
    optimizer = tff.learning.optimizers.build_adagrad(
      rate, values['server_initial_accumulator']
    )
    # Adagrad does not move a row without a gradient, so updating only the
    # requested rows gives the same result.
    of_rows = table_optimizers.RequestedRows(optimizer)
    return server_lib.Server(optimizer, of_rows if selects_rows else optimizer)
  optimizer = optimizers.TorchAdam(
    rate,
    values['server_beta_1'],
    values['server_beta_2'],
    values['server_epsilon'],
  )
  if values.get('server_adam_rows') == 'requested':
    return server_lib.Server(
      optimizer, table_optimizers.RequestedRows(optimizer)
    )
  return server_lib.Server(optimizer, optimizer)


def warnings(
  name: str,
  values: Mapping,
  *,
  num_classes: int,
  clients_per_round: int | None,
  max_positives: int,
) -> list[str]:
  """Returns a sentence for each allowed setting that is likely to fail.

  Args:
    name: of the algorithm, as registered.
    values: its hyper-parameters, from `hyperparameters.resolve`.
    num_classes: n.
    clients_per_round: K; None where there are no clients.
    max_positives: the largest number of classes that any client holds.
  """
  found = []
  if name in _SOFTMAX_OVER_OWN and max_positives == 1:
    found.append(
      f"{name} trains a softmax over a client's own classes, and no client has"
      ' more than one: its loss is 0 and nothing is learned; use'
      ' --algorithm=fedaws'
    )
  return found + _spreadout_warnings(
    values, num_classes, clients_per_round, max_positives
  )


def _spreadout_warnings(
  values: Mapping, num_classes, clients_per_round, max_positives
) -> list[str]:
  if not values.get('spreadout_weight'):
    return []
  step, factors = values['spreadout_weight'], ['--spreadout_weight']
  if 'spreadout_learning_rate' in values:
    rate = values['spreadout_learning_rate'] or values['client_learning_rate']
    step, factors = step * rate, [*factors, '--spreadout_learning_rate']
  rows = num_classes
  if values.get('spreadout_classes') == 'round':
    rows = min(rows, clients_per_round * max_positives)
  limit = spreadout.Spreadout(
    step, values['k'], margin=values.get('spreadout_margin', 0.0)
  ).step_limit(rows)
  if step < limit:
    return []
  or_k = '' if values.get('spreadout_margin') else ', or --k'
  return [
    f'the spreadout step {" times ".join(factors)} is {step:.3g}, and from'
    f' {limit:.3g} = 1 / (2 k) on class rows may collapse: lower one of'
    f' them{or_k}'
  ]


def build(
  name: str,
  values: Mapping,
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  max_features: int = 0,
  feature_learning_rate: float = 1.0,
  seed: int,
) -> tff.learning.templates.LearningProcess:
  """Builds the algorithm `name` with resolved hyper-parameters.

  Args:
    name: as registered.
    values: every hyper-parameter that applies, from `hyperparameters.resolve`.
    model: the embedding classifier.
    max_positives: the largest number of classes that any client holds.
    max_features: the largest number of features that any client's examples use.
      Clients then select the rows of their features; 0: they receive all rows.
    feature_learning_rate: learning rate of the server's SGD on feature rows.
    seed: seeds all randomness.
  """
  algorithm = registry.get(name)
  arguments = {'model': model, 'seed': seed}
  arguments['local_training'] = _local_training(values)
  if 'server_optimizer' in values:
    arguments['server'] = dataclasses.replace(
      _server(values, algorithm.selects_rows),
      feature_optimizer=table_optimizers.RowMomentum(feature_learning_rate),
    )
  if algorithm.selects_rows:
    arguments['max_positives'] = max_positives
  if max_features:
    arguments['max_features'] = max_features
  if 'row_renormalise' in values:
    arguments['row_merge'] = merge.AddRows(values['row_renormalise'])
  shared = (*hp.LOCAL_TRAINING, *hp.SERVER, *hp.SAMPLED_ROWS, *_OF_THE_COHORT)
  arguments.update({k: v for k, v in values.items() if k not in shared})
  return algorithm.load_builder()(**arguments)
