"""Registry, hyper-parameters and builders agree, and bad values are refused."""

import inspect

import pytest

from tests import tiny
from tff_xc import errors
from tff_xc.algorithms import build
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import registry
from tff_xc.round import table_optimizers

ADAM = {
  'server_optimizer': 'adam',
  'server_learning_rate': 0.003,
  'negatives': 40,
}


def resolve(name, given=None, defaults=None):
  algorithm = registry.get(name)
  return hp.resolve(
    algorithm.hyperparameters,
    given or {},
    defaults or {},
    name,
    algorithm.defaults,
  )


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_builds_with_its_hyperparameters(name):
  process = build.build(
    name,
    resolve(name, defaults={'negatives': 3}),
    model=tiny.model(),
    max_positives=4,
    seed=0,
  )
  assert process.initialize.type_signature.result is not None


@pytest.mark.parametrize(
  ('name', 'given', 'limit'),
  [
    ('fedaws', {}, None),
    ('fedaws', {'spreadout_learning_rate': 0.005}, '0.05'),
    # The 20 clients hold at most 40 classes, so a class has 39 others.
    ('fedaws', {'k': 50, 'spreadout_learning_rate': 0.00125}, None),
    ('fedaws', {'k': 50, 'spreadout_learning_rate': 0.0013}, '0.0128'),
    ('fedaws', {'k': 0, 'spreadout_learning_rate': 0.002}, '0.0128'),
    ('fedaws', {'k': 1, 'spreadout_learning_rate': 0.002}, None),
    ('fedaws', {'spreadout_margin': 1.4}, None),
    (
      'fedaws',
      {'spreadout_margin': 1.4, 'spreadout_learning_rate': 0.002},
      '0.0128',
    ),
    ('fedaws', {'k': 0, 'spreadout_classes': 'all'}, '0.0005'),
    # A rate of 0 means the clients' rate.
    (
      'fedaws',
      {'spreadout_learning_rate': 0.0, 'client_learning_rate': 0.1},
      '0.05',
    ),
    ('fedaws', {'spreadout_weight': 0.0, 'k': 0}, None),
    ('fedaws_posonly', {'spreadout_weight': 0.04}, None),
    ('fedaws_posonly', {'spreadout_weight': 0.05}, '0.05'),
    ('fedaws_posonly', {'k': 0}, '0.0005'),
    ('fedaws_baseline1', {}, None),
    ('fedss', {}, None),
  ],
)
def test_a_spreadout_step_beyond_its_bound_is_warned_of(name, given, limit):
  warnings = build.warnings(
    name,
    resolve(name, given),
    num_classes=1001,
    clients_per_round=20,
    max_positives=2,
  )
  if limit is None:
    assert not warnings
  else:
    (warning,) = warnings
    assert f'from {limit} = 1 / (2 k)' in warning


@pytest.mark.parametrize('name', ['posonly', 'fedaws_posonly'])
def test_a_softmax_over_one_class_is_warned_of(name):
  of = lambda max_positives: build.warnings(
    name,
    resolve(name),
    num_classes=100,
    clients_per_round=20,
    max_positives=max_positives,
  )
  assert not of(2)
  (warning,) = of(1)
  assert 'nothing is learned' in warning


def test_epochs_that_are_asked_for_replace_the_tasks_steps():
  task = {'local_steps': 1}
  resolved = lambda given: hp.resolve(
    registry.get('fedss').hyperparameters, given, task, 'fedss'
  )
  assert resolved({})['local_steps'] == 1
  values = resolved({'local_epochs': 5})
  assert (values['local_steps'], values['local_epochs']) == (0, 5)


def test_neighbours_do_not_apply_with_a_margin():
  with pytest.raises(
    errors.InputError, match='only applies with --spreadout_m'
  ):
    resolve('fedaws', {'k': 3, 'spreadout_margin': 1.4})


def test_the_defaults_of_the_builder_are_those_of_the_flags():
  for name in ('fedaws', 'fedaws_posonly'):
    algorithm = registry.get(name)
    taken = inspect.signature(algorithm.load_builder()).parameters
    values = resolve(name)
    for argument in ('spreadout_weight', 'spreadout_learning_rate', 'k'):
      if argument in taken:
        assert taken[argument].default == values[argument], argument


@pytest.mark.parametrize(
  ('given', 'expected'),
  [
    ({}, table_optimizers.RowMomentum(1.0, 0.9)),
    ({'server_momentum': 0.0}, table_optimizers.RowMomentum(1.0, 0.0)),
    ({'server_optimizer': 'adam'}, table_optimizers.Dense),
    (
      {'server_optimizer': 'adam', 'server_adam_rows': 'requested'},
      table_optimizers.LazyRows,
    ),
  ],
)
def test_the_tables_optimizer_where_rows_are_selected(
  given, expected, monkeypatch
):
  built = {}
  monkeypatch.setattr(
    registry.Algorithm, 'load_builder', lambda _: built.update
  )
  build.build(
    'fedss', resolve('fedss', given), model=None, max_positives=4, seed=0
  )
  chosen = built['server'].table_optimizer
  assert expected in (chosen, type(chosen))
  assert 'server_adam_rows' not in built


def test_adagrad_moves_requested_rows():
  process = build.build(
    'posonly',
    resolve('posonly', {'server_optimizer': 'adagrad'}),
    model=tiny.model(),
    max_positives=4,
    seed=0,
  )
  state_type = process.initialize.type_signature.result.member
  assert list(state_type.server.table.preconditioner.shape) == [12, 3]


def test_an_algorithms_own_defaults_are_below_the_tasks():
  assert resolve('fedaws')['server_momentum'] == 0.0
  assert resolve('posonly')['server_momentum'] == 0.9
  task = {'server_momentum': 0.5}
  assert resolve('fedaws', defaults=task)['server_momentum'] == 0.5
  given = {'server_momentum': 0.7}
  assert resolve('fedaws', given, task)['server_momentum'] == 0.7


@pytest.mark.parametrize('name', ['fedss', 'negonly'])
def test_builder_arguments_are_registered_hyperparameters(name):
  builder = registry.get(name).load_builder()
  own = [
    p.name
    for p in inspect.signature(builder).parameters.values()
    if p.kind is p.KEYWORD_ONLY
  ]
  for parameter in own:
    assert parameter in registry.get(name).hyperparameters
    default = inspect.signature(builder).parameters[parameter].default
    assert hp.HYPERPARAMETERS[parameter].default == default


def test_every_registered_name_is_a_hyperparameter():
  for algorithm in registry.ALGORITHMS.values():
    assert set(algorithm.hyperparameters) <= set(hp.HYPERPARAMETERS)


def test_user_over_task_over_default():
  values = resolve('fedss', {'negatives': 7}, ADAM)
  assert values['negatives'] == 7
  assert values['server_learning_rate'] == 0.003
  assert values['batch_size'] == 32
  assert 'server_momentum' not in values


def test_another_server_optimizer_does_not_inherit_the_tasks_rate():
  values = resolve('fedss', {'server_optimizer': 'sgd'}, ADAM)
  assert values['server_learning_rate'] == 1.0
  assert values['server_momentum'] == 0.9
  assert 'server_epsilon' not in values


def test_task_defaults_of_other_algorithms_do_not_apply():
  assert 'negatives' not in resolve('posonly', defaults=ADAM)


@pytest.mark.parametrize(
  ('name', 'given', 'message'),
  [
    (
      'posonly',
      {'negatives': 3},
      'not a hyper-parameter of posonly.*--batch_size',
    ),
    ('fedss', {'negatives': 0}, 'at least 1'),
    ('fedss', {'client_learning_rate': -1.0}, 'more than 0'),
    ('fedss', {'client_learning_rate': float('inf')}, 'finite'),
    ('fedss', {'server_momentum': 1.0}, 'less than 1'),
    ('fedss', {'correction': 'all'}, 'one of negatives, none'),
    (
      'fedss',
      {'server_initial_accumulator': 1.0},
      'only applies with.*adagrad',
    ),
    ('fedaws', {'local_steps': 1, 'local_epochs': 2}, 'give one of them'),
    ('fedaws', {'k': -1}, 'at least 0'),
    ('fedaws', {'distance': 'manhattan'}, 'one of sq_euclidean, cosine'),
    ('fedaws_baseline1', {'k': 3}, 'not a hyper-parameter'),
    ('fedss', {'server_beta_1': 0.5}, 'only applies with.*adam'),
    ('fedss', {'server_adam_rows': 'requested'}, 'only applies with.*adam'),
    (
      'fedss',
      {'server_optimizer': 'adam', 'server_adam_rows': 'some'},
      'one of all, requested',
    ),
    (
      'fullsoftmax',
      {'server_optimizer': 'adam', 'server_adam_rows': 'all'},
      'not a hyper-parameter of fullsoftmax',
    ),
    ('centralized', {'local_epochs': 2}, 'not a hyper-parameter'),
  ],
)
def test_bad_values_are_refused(name, given, message):
  with pytest.raises(errors.InputError, match=message):
    resolve(name, given)


def test_an_unknown_algorithm_names_the_known_ones():
  with pytest.raises(errors.InputError, match='fedss, negonly'):
    registry.get('fedsss')
