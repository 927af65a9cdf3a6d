"""Registry, hyperparameters and builders agree, and bad values cause errors."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tff_xc import errors
from tff_xc.algorithms import base, fedavg, fedaws, fedss, registry
from tff_xc.options import hyperparameters as hp
from tff_xc.round import optimizers, process as process_lib

M, RATE = 'server_momentum', 'server_learning_rate'
ADAM = {'server_optimizer': 'adam', RATE: 0.003, 'negatives': 40}
SGD = {'server_optimizer': 'sgd'}
STEP, EPOCHS = {'local_steps': 1}, {'local_epochs': 5}


def resolve(name, given=None, defaults=None):
  return registry.get(name).resolve(given or {}, defaults or {})


def made(name, **given):
  return registry.get(name).made(model=tiny.model(), max_positives=4, num_clients=12, **given)


@pytest.mark.parametrize(
  ('name', 'given', 'limit'),
  [
    ('fedaws', {}, None),
    ('fedaws', {'learning_rate': 0.005}, '0.05'),
    # The 20 clients together have at most 40 classes, so a class has 39 others.
    ('fedaws', {'neighbors': 50, 'learning_rate': 0.00125}, None),
    ('fedaws', {'neighbors': 50, 'learning_rate': 0.0013}, '0.0128'),
    ('fedaws', {'neighbors': 0, 'learning_rate': 0.002}, '0.0128'),
    ('fedaws', {'neighbors': 1, 'learning_rate': 0.002}, None),
    ('fedaws', {'margin': 1.4}, None),
    ('fedaws', {'margin': 1.4, 'learning_rate': 0.002}, '0.0128'),
    ('fedaws', {'neighbors': 0, 'classes': 'all'}, '0.0005'),
    # A rate of 0 means the clients' learning rate, 0.1.
    ('fedaws', {'learning_rate': 0.0}, '0.05'),
    ('fedaws', {'weight': 0.0, 'neighbors': 0}, None),
    ('fedaws_posonly', {'weight': 0.04}, None),
    ('fedaws_posonly', {'weight': 0.05}, '0.05'),
    ('fedaws_posonly', {'neighbors': 0}, '0.0005'),
    ('fedaws_baseline1', {}, None),
    ('fedss', {}, None),
  ],
)
def test_a_spreadout_step_beyond_its_bound_is_warned_of(name, given, limit):
  given = {f'spreadout_{n}': value for n, value in given.items()}
  clients = {'clients_per_round': 20, 'client_learning_rate': 0.1}
  values = resolve(name, {**clients, **given})
  warnings = registry.get(name)(**values).warnings(1001, 2)
  assert len(warnings) == (limit is not None)
  if limit:
    assert f'from {limit} = 1 / (2 k)' in warnings[0]


@pytest.mark.parametrize('name', ['posonly', 'fedaws_posonly', 'fedlc'])
def test_a_softmax_over_one_class_is_warned_of(name):
  def of(most):
    return registry.get(name)().warnings(100, most)

  assert not of(2)
  (warning,) = of(1)
  assert 'nothing is learned' in warning
  for name, most in (('fedss', 1), ('negonly', 5)):
    [warning] = registry.get(name)(negatives=0).warnings(100, most)
    assert 'nothing is learned' in warning


def test_an_algorithm_is_shown_in_a_few_lines():
  for name in registry.ALGORITHMS:
    shown = repr(registered.algorithm(name))
    assert shown.count('\n') < 12, shown
    assert ' at 0x' not in shown
  shown = repr(made('fedss', negatives=3, server_momentum=0.7))
  for part in ('negatives=3)', 'RowMomentum(learning_rate=1.0, momentum=0.7)', '12 classes'):
    assert part in shown
  # Learning rates are always shown. Other settings are shown if they differ from the default.
  assert 'LocalTraining(learning_rate=' in shown
  assert 'weighting' not in shown


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_a_builder_has_a_true_signature_and_says_what_it_takes(name):
  build = base.builder(registry.get(name))
  assert build.__name__ == f'build_{name}'
  taken = inspect.signature(build).parameters
  values = registry.get(name).resolve({}, {})
  for h in registry.get(name).hyperparameters:
    assert taken[h.name].default == values.get(h.name, taken[h.name].default)
    assert f'{h.name}: {h.help}' in build.__doc__
    assert h.bounds in build.__doc__


def test_a_class_with_other_defaults_is_another_algorithm():
  @hp.declared
  class Cautious(fedavg.FedAvg):
    name = 'cautious'
    client_learning_rate: float = 0.001
    batch_size: int = hp.own(8)

  values = Cautious.resolve({}, {'weight_decay': 0.5})
  assert (values['client_learning_rate'], values['batch_size']) == (0.001, 8)
  assert values['weight_decay'] == 0.5
  assert Cautious.own == {**fedavg.FedAvg.own, 'batch_size': 8}
  assert fedavg.FedAvg().batch_size == 32


def test_an_algorithm_may_bring_its_own_server():
  @hp.declared
  class Own(base.Federated):
    def make(self, model, facts):
      made = base.softmax(model, self.local_training())
      rate = 1.0 / facts.num_clients
      return dataclasses.replace(made, encoder_optimizer=optimizers.build_sgd(rate))

  assert not [name for name in Own.names if name.startswith('server_')]
  task = {'server_optimizer': 'adam', 'server_learning_rate': 0.5}
  assert 'server_optimizer' not in Own.resolve({}, task)
  with pytest.raises(errors.InputError, match='--server_optimizer'):
    Own.resolve(task, {})
  optimizer = Own.made(model=tiny.model(), num_clients=4).encoder_optimizer
  one = tf.ones([1])
  state = optimizer.initialize(tf.TensorSpec([1]))
  assert optimizer.next(state, one, one)[1] == 0.75


ADAMS = {'server_optimizer': 'adam'}


@pytest.mark.parametrize(
  ('given', 'expected'),
  [
    ({}, optimizers.RowMomentum(1.0, 0.9)),
    ({M: 0.0}, optimizers.RowMomentum(1.0, 0.0)),
    (ADAMS, optimizers.Dense),
    ({**ADAMS, 'server_adam_rows': 'requested'}, optimizers.LazyRows),
  ],
)
def test_the_tables_optimizer_where_rows_are_selected(given, expected):
  chosen = made('fedss', negatives=4, **given).tables[0].optimizer
  assert expected in (chosen, type(chosen))


def test_facts_and_values_reach_the_table():
  learning = process_lib.build_process(made('posonly', server_optimizer='adagrad'))
  state = learning.initialize.type_signature.result.member
  optimizer = state.server.tables[0].optimizer
  assert list(optimizer.preconditioner.shape) == [12, 3]
  # The server's optimizer does not apply to FedAwS's rows.
  [table] = made('fedaws', server_optimizer='adam', row_update='mean').tables
  assert table.optimizer == optimizers.RowMomentum()
  [table] = made('fedss', row_renormalize=True, negatives=4).tables
  assert table.merge.row_renormalise
  with pytest.raises(TypeError, match='max_positives'):
    fedss.build_fedss(model=tiny.model(), negatives=3)
  with pytest.raises(TypeError, match='no_such'):
    fedaws.build_fedaws(model=tiny.model(), max_positives=3, no_such=1)


@pytest.mark.parametrize(
  ('name', 'given', 'task', 'expected'),
  [
    # The user's settings override the task's settings, which override the algorithm's defaults.
    ('fedaws', {}, {}, {M: 0.0}),
    ('posonly', {}, {}, {M: 0.9}),
    ('fedaws', {}, {M: 0.5}, {M: 0.5}),
    ('fedaws', {M: 0.7}, {M: 0.5}, {M: 0.7}),
    ('fedss', {'negatives': 7}, ADAM, {'negatives': 7, RATE: 0.003, M: None}),
    ('fedss', {}, ADAM, {'negatives': 40, 'batch_size': 32}),
    # If another server optimizer is chosen, the task's rate does not apply.
    ('fedss', SGD, ADAM, {RATE: 1.0, M: 0.9, 'server_epsilon': None}),
    ('posonly', {}, ADAM, {'negatives': None}),
    ('moon', {'client_optimizer': 'adam'}, {}, {'client_learning_rate': 1e-3}),
    # If the user sets epochs, the task's number of steps does not apply.
    ('fedss', {}, STEP, STEP),
    ('fedss', EPOCHS, STEP, {'local_steps': 0, **EPOCHS}),
  ],
)
def test_user_over_task_over_default(name, given, task, expected):
  values = resolve(name, given, task)
  assert {n: values.get(n) for n in expected} == expected


@pytest.mark.parametrize(
  ('name', 'given', 'word'),
  [
    ('posonly', {'negatives': 3}, '--batch_size'),
    ('fedss', {'negatives': -1}, 'at least 0'),
    ('fedss', {'client_learning_rate': -1.0}, 'more than 0'),
    ('fedss', {'client_learning_rate': float('inf')}, 'finite'),
    ('fedss', {'server_momentum': 1.0}, 'less than 1'),
    ('fedss', {'softmax_correction': 'all'}, 'negatives, none'),
    ('fedss', {'server_initial_accumulator': 1.0}, 'adagrad'),
    ('fedaws', {'local_steps': 1, 'local_epochs': 2}, 'give one'),
    ('fedaws', {'spreadout_neighbors': -1}, 'at least 0'),
    ('fedaws', {'spreadout_distance': 'manhattan'}, 'sq_euclidean, cosine'),
    ('fedaws', {'spreadout_neighbors': 3, 'spreadout_margin': 1.4}, 'margin'),
    ('fedaws_baseline1', {'spreadout_neighbors': 3}, 'not a hyper-parameter'),
    ('fedss', {'server_beta_1': 0.5}, 'only applies.*adam'),
    ('fedss', {'server_adam_rows': 'requested'}, 'only applies.*adam'),
    ('fedss', {**ADAMS, 'server_adam_rows': 'some'}, 'all, requested'),
    ('fullsoftmax', {**ADAMS, 'server_adam_rows': 'all'}, 'not a hyper-'),
    ('centralized', {'local_epochs': 2}, 'not a hyper-parameter'),
    ('fedss', {'negatives': 2.5}, 'whole number'),
    ('fedss', {'negatives': '40'}, "'40'.*whole number"),
    ('fedss', {'negatives': None}, 'whole number'),
    ('fedss', {'negatives': True}, 'whole number'),
    ('fedss', {'client_learning_rate': '0.1'}, 'a number'),
    ('fedss', {'row_renormalize': 'no'}, 'True or False'),
    ('fedss', {'server_optimizer': 3}, 'a text'),
  ],
)
def test_bad_values_are_refused(name, given, word):
  with pytest.raises(errors.InputError, match=word):
    resolve(name, given)


def test_what_is_misspelt_is_refused():
  with pytest.raises(errors.InputError, match='did you mean fedss'):
    registry.get('fedsss')
  with pytest.raises(errors.InputError, match='fedss, negonly'):
    registry.get('nothing')
  with pytest.raises(errors.InputError, match='--row_update='):
    fedaws.FedAwS(row_update='men')


def test_numbers_of_numpy_are_numbers():
  given = {'negatives': np.int64(5), 'client_learning_rate': np.float32(0.5)}
  given |= {'row_renormalize': np.bool_(True), RATE: 2}
  values = resolve('fedss', given)
  assert json.loads(json.dumps(values)) == values
  assert type(values[RATE]) is float
