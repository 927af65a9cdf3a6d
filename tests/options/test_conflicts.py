"""Each row of the table of conflicts refuses two settings that are valid separately."""

import pytest

from tasks import configuration, registry as tasks
from tests import small_data
from tff_xc import errors
from tff_xc.algorithms import registry, scaffold
from tff_xc.options import conflicts

KNOWN = {**configuration.SETTINGS, **registry.HYPERPARAMETERS, **tasks.OPTIONS}


def value_of(name, sign, values):
  """Returns a value that one side of a row names."""
  known = KNOWN[name]
  if sign == '=':
    kind = type(known.default)
    return {'True': True, 'False': False}[values[0]] if kind is bool else kind(values[0])
  if known.choices:
    return next(c for c in known.choices if c not in (*values, 'none'))
  return {bool: True, int: 32, float: 0.5}[type(known.default)]


def given_by(side):
  """Returns (the settings of one side of a row, the settings that make them apply)."""
  own, applies = {}, {}
  for setting in side.split(' & '):
    name, sign, values = conflicts._parts(setting)
    if name == 'algorithm':
      applies['algorithm'] = values[0]
      continue
    own[name] = value_of(name, sign, values)
    known = KNOWN[name]
    while known.of in KNOWN:
      chosen = known.only_with[0] if known.only_with else value_of(known.of, '', known.not_with)
      if known.of in registry.get('fedss').names or known.of == 'server_optimizer':
        applies[known.of] = chosen
      known = KNOWN[known.of]
  return own, applies


def names_of(task, algorithm):
  options = {option.name for option in tasks.get(task).options}
  return {*configuration.SETTINGS, *options, *registry.get(algorithm).names}


def resolve(given):
  """Resolves settings with a task and an algorithm that accept them."""
  names = given.keys() - {'algorithm'}
  for algorithm in [given.get('algorithm', 'fedavg'), 'fedss', 'negonly', 'fedaws']:
    for task in ('features', 'sparse-words'):
      if names <= names_of(task, algorithm):
        return configuration.resolve(task, algorithm, {name: given[name] for name in names})
  raise AssertionError(f'no algorithm takes {sorted(names)}')


# For these settings, the default noise or number of rounds already causes a conflict.
NEVER_ALONE = (
  'dp_epsilon',
  'dp_clip=inf',
  'client_schedule!=constant',
  'server_schedule!=constant',
)


@pytest.mark.parametrize('row', conflicts.CONFLICTS, ids=lambda row: f'{row.a} x {row.b}')
def test_two_settings_are_refused_together_and_not_alone(row):
  (a, of_a), (b, of_b) = given_by(row.a), given_by(row.b)
  with pytest.raises(errors.InputError) as refused:
    resolve({**of_a, **of_b, **a, **b})
  assert row.why in str(refused.value)
  if row.a not in NEVER_ALONE:
    resolve({**of_a, **a})
    resolve({**of_b, **b})


# Without their rows in the table, these runs would train and give wrong results.
@pytest.mark.parametrize(
  ('algorithm', 'given'),
  [
    ('fednova', {'client_optimizer': 'adam'}),
    ('scaffold', {'client_optimizer': 'adam', 'scaffold_variate': 'steps'}),
    ('scaffold', {'replace_nonfinite': True, 'scaffold_variate': 'steps'}),
    *(
      (name, {'virtual_client_size': 64, 'virtual_client_replace': True})
      for name in ('feddyn', 'scaffold', 'fedrep', 'moon')
    ),
    (
      'fedss',
      {
        'virtual_client_size': 64,
        'virtual_client_replace': True,
        'negatives_schedule': 'sticky',
      },
    ),
    ('fedavg', {'virtual_client_size': 64, 'dp': 'distributed', 'dp_clip': 1.0}),
    ('fedss', {'dp_clip': 0.5}),
  ],
)
def test_python_refuses_what_flags_refuse(algorithm, given):
  chosen = registry.get(algorithm)
  with pytest.raises(errors.InputError, match=r'does not go with|only applies with'):
    chosen.resolve(given, {})
  _, model = small_data.images()
  with pytest.raises(errors.InputError, match=r'does not go with|only applies with'):
    chosen(**given).algorithm(model)


def test_a_default_that_reveals_classes_is_refused_in_python():
  _, model = small_data.images()
  chosen = registry.get('fedaws')
  chosen(dp='local', dp_clip=1.0, spreadout_classes='all').algorithm(model, max_positives=4)
  with pytest.raises(errors.InputError, match='spreadout_classes'):
    chosen(dp='local', dp_clip=1.0).algorithm(model, max_positives=4)


@pytest.mark.parametrize(
  ('task', 'algorithm', 'given', 'name', 'expected'),
  [
    ('bibtex', 'fedaws', {}, 'client_weighting', 'examples'),
    ('bibtex', 'fedaws', {'dp': 'central'}, 'client_weighting', 'uniform'),
    ('bibtex', 'fedaws', {'secure_sums': True}, 'client_weighting', 'uniform'),
    ('bibtex', 'fedaws', {'robust_aggregation': 'median'}, 'client_weighting', 'uniform'),
    ('glyphs', 'fedaws', {'dp': 'local'}, 'spreadout_classes', 'all'),
    ('bibtex', 'fedvc', {}, 'examples_per_round', 0),
    ('bibtex', 'fedvc', {}, 'local_steps', None),
    ('bibtex', 'fedvc', {}, 'local_epochs', None),
  ],
)
def test_a_default_yields(task, algorithm, given, name, expected):
  config = configuration.resolve(task, algorithm, given)
  assert {**config['options'], **config['hyperparameters']}.get(name) == expected
  if expected:
    other = {'uniform': 'examples', 'all': 'round', 'examples': 'uniform'}[expected]
    if given:
      with pytest.raises(errors.InputError, match=name):
        configuration.resolve(task, algorithm, {**given, name: other})


def test_an_algorithm_of_ones_own_excludes_what_its_base_does():
  class Own(scaffold.SCAFFOLD):
    name = 'mine'

  with pytest.raises(errors.InputError, match=r'algorithm=mine.*variates'):
    Own.resolve({'dp': 'central'}, {})
