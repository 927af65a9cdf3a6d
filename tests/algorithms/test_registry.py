"""Registry, hyper-parameters and builders agree, and bad values are refused."""

import inspect
import json

import numpy as np
import pytest

from tests import tiny
from tff_xc import errors
from tff_xc.algorithms import fedaws
from tff_xc.algorithms import registry
from tff_xc.algorithms import settings
from tff_xc.round import optimizers
from tff_xc.round import process

ADAM = {
  'server_optimizer': 'adam',
  'server_learning_rate': 0.003,
  'negatives': 40,
}


def resolve(name, given=None, defaults=None):
  return registry.get(name).resolve(given or {}, defaults or {})


def algorithm_of(name, values, model=None, max_positives=4):
  return registry.get(name).algorithm(
    values, model=model or tiny.model(), max_positives=max_positives
  )


# The algorithms' own tests build it with other values.
@pytest.mark.slow
@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_builds_with_its_defaults(name):
  made = algorithm_of(name, resolve(name, defaults={'negatives': 3}))
  assert (
    process.build_process(made).initialize.type_signature.result is not None
  )


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_takes_its_hyperparameters(name):
  made = algorithm_of(name, resolve(name, defaults={'negatives': 3}))
  assert made.tables[0].name == 'class'


@pytest.mark.parametrize(
  ('name', 'given', 'limit'),
  [
    ('fedaws', {}, None),
    ('fedaws', {'spreadout_learning_rate': 0.005}, '0.05'),
    # The 20 clients hold at most 40 classes, so a class has 39 others.
    (
      'fedaws',
      {'spreadout_neighbours': 50, 'spreadout_learning_rate': 0.00125},
      None,
    ),
    (
      'fedaws',
      {'spreadout_neighbours': 50, 'spreadout_learning_rate': 0.0013},
      '0.0128',
    ),
    (
      'fedaws',
      {'spreadout_neighbours': 0, 'spreadout_learning_rate': 0.002},
      '0.0128',
    ),
    (
      'fedaws',
      {'spreadout_neighbours': 1, 'spreadout_learning_rate': 0.002},
      None,
    ),
    ('fedaws', {'spreadout_margin': 1.4}, None),
    (
      'fedaws',
      {'spreadout_margin': 1.4, 'spreadout_learning_rate': 0.002},
      '0.0128',
    ),
    (
      'fedaws',
      {'spreadout_neighbours': 0, 'spreadout_classes': 'all'},
      '0.0005',
    ),
    # A rate of 0 means the clients' rate.
    (
      'fedaws',
      {'spreadout_learning_rate': 0.0, 'client_learning_rate': 0.1},
      '0.05',
    ),
    ('fedaws', {'spreadout_weight': 0.0, 'spreadout_neighbours': 0}, None),
    ('fedaws_posonly', {'spreadout_weight': 0.04}, None),
    ('fedaws_posonly', {'spreadout_weight': 0.05}, '0.05'),
    ('fedaws_posonly', {'spreadout_neighbours': 0}, '0.0005'),
    ('fedaws_baseline1', {}, None),
    ('fedss', {}, None),
  ],
)
def test_a_spreadout_step_beyond_its_bound_is_warned_of(name, given, limit):
  values = resolve(name, {'clients_per_round': 20, **given})
  warnings = registry.get(name).warn(values, 1001, 2)
  if limit is None:
    assert not warnings
  else:
    (warning,) = warnings
    assert f'from {limit} = 1 / (2 k)' in warning


@pytest.mark.parametrize('name', ['posonly', 'fedaws_posonly'])
def test_a_softmax_over_one_class_is_warned_of(name):
  of = lambda most: registry.get(name).warn(resolve(name), 100, most)
  assert not of(2)
  (warning,) = of(1)
  assert 'nothing is learned' in warning


def test_epochs_that_are_asked_for_replace_the_tasks_steps():
  resolved = lambda given: resolve('fedss', given, {'local_steps': 1})
  assert resolved({})['local_steps'] == 1
  values = resolved({'local_epochs': 5})
  assert (values['local_steps'], values['local_epochs']) == (0, 5)


def test_neighbours_do_not_apply_with_a_margin():
  with pytest.raises(
    errors.InputError, match='only applies with --spreadout_m'
  ):
    resolve('fedaws', {'spreadout_neighbours': 3, 'spreadout_margin': 1.4})


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_arguments_are_hyperparameters_with_the_same_defaults(name):
  entry = registry.get(name)
  taken = inspect.signature(entry.function).parameters
  shared = ('model', 'max_positives', 'class_probabilities', 'local_training')
  values = {h.name: h.default for h in entry.hyperparameters} | {
    **entry.defaults
  }
  for argument in taken.values():
    if argument.name not in shared:
      assert argument.default == values[argument.name], argument.name
  families = (settings.FEDERATED, settings.SAMPLED_ROWS)
  of_all = {h.name for family in families for h in family}
  assert set(values) - of_all <= set(taken)


@pytest.mark.parametrize(
  ('given', 'expected'),
  [
    ({}, optimizers.RowMomentum(1.0, 0.9)),
    ({'server_momentum': 0.0}, optimizers.RowMomentum(1.0, 0.0)),
    ({'server_optimizer': 'adam'}, optimizers.Dense),
    (
      {'server_optimizer': 'adam', 'server_adam_rows': 'requested'},
      optimizers.LazyRows,
    ),
  ],
)
def test_the_tables_optimizer_where_rows_are_selected(given, expected):
  values = resolve('fedss', {'negatives': 4, **given})
  chosen = algorithm_of('fedss', values).tables[0].optimizer
  assert expected in (chosen, type(chosen))


def test_adagrad_moves_requested_rows():
  values = resolve('posonly', {'server_optimizer': 'adagrad'})
  learning = process.build_process(algorithm_of('posonly', values))
  state = learning.initialize.type_signature.result.member
  optimizer = state.server.tables[0].optimizer
  assert list(optimizer.preconditioner.shape) == [12, 3]


def test_the_servers_optimizer_is_not_of_fedaws_rows():
  given = {'server_optimizer': 'adam', 'row_update': 'mean'}
  [table] = algorithm_of('fedaws', resolve('fedaws', given)).tables
  assert table.optimizer == optimizers.RowMomentum()


def test_rows_are_averaged_over_their_holders_if_asked():
  given = {'row_renormalise': True, 'negatives': 4}
  [table] = algorithm_of('fedss', resolve('fedss', given)).tables
  assert table.merge.row_renormalise


def test_an_algorithms_own_defaults_are_below_the_tasks():
  assert resolve('fedaws')['server_momentum'] == 0.0
  assert resolve('posonly')['server_momentum'] == 0.9
  task = {'server_momentum': 0.5}
  assert resolve('fedaws', defaults=task)['server_momentum'] == 0.5
  given = {'server_momentum': 0.7}
  assert resolve('fedaws', given, task)['server_momentum'] == 0.7


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
    ('fedss', {'softmax_correction': 'all'}, 'one of negatives, none'),
    (
      'fedss',
      {'server_initial_accumulator': 1.0},
      'only applies with.*adagrad',
    ),
    ('fedaws', {'local_steps': 1, 'local_epochs': 2}, 'give one of them'),
    ('fedaws', {'spreadout_neighbours': -1}, 'at least 0'),
    (
      'fedaws',
      {'spreadout_distance': 'manhattan'},
      'one of sq_euclidean, cosine',
    ),
    ('fedaws_baseline1', {'spreadout_neighbours': 3}, 'not a hyper-parameter'),
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


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'negatives': 2.5}, '--negatives=2.5: expected a whole number'),
    ({'negatives': '40'}, "--negatives='40': expected a whole number"),
    ({'negatives': None}, 'expected a whole number'),
    ({'negatives': True}, 'expected a whole number'),
    ({'client_learning_rate': '0.1'}, 'expected a number'),
    ({'row_renormalise': 'no'}, 'expected True or False'),
    ({'server_optimizer': 3}, 'expected a text'),
  ],
)
def test_values_of_another_type_are_refused(given, message):
  with pytest.raises(errors.InputError, match=message):
    resolve('fedss', given)


def test_numbers_of_numpy_are_numbers():
  values = resolve(
    'fedss',
    {
      'negatives': np.int64(5),
      'client_learning_rate': np.float32(0.5),
      'row_renormalise': np.bool_(True),
      'server_learning_rate': 2,
    },
  )
  assert json.loads(json.dumps(values)) == values
  assert type(values['server_learning_rate']) is float


@pytest.mark.parametrize(
  'misspelt', [{'row_update': 'men'}, {'spreadout_classes': 'al'}]
)
def test_a_misspelt_choice_is_refused_from_python_too(misspelt):
  [name] = misspelt
  with pytest.raises(errors.InputError, match=f'--{name}=.*expected one of'):
    fedaws.fedaws(model=tiny.model(), max_positives=3, **misspelt)


def test_a_builder_says_what_it_builds():
  build = fedaws.build_fedaws
  assert build.__name__ == 'build_fedaws'
  assert build.__doc__.startswith('Builds the learning process')
  with pytest.raises(TypeError, match='no_such'):
    build(model=tiny.model(), max_positives=3, no_such=1)
