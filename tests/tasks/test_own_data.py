"""The user's own data: their properties, and the settings of a run on them."""

import re

import numpy as np
import pytest
import scipy.sparse

from datasets.readers import tables
from datasets.splits import making, rules
from launch import advice, plan as plan_lib
from tasks import configuration, experiment, registry
from tests.launch import own_examples
from tff_xc import errors, files, memory
from tff_xc.experiment import same_run
from tff_xc.measure import client_scores

# Algorithms that are enough for a plan.
SOME = ['fedavg', *(name for rule in advice.RULES for name in rule.use)]


@pytest.mark.parametrize(
  ('name', 'make', 'data_dir', 'given', 'found'),
  # A task, its data, the flags about the data, and (examples, classes, test examples, clients).
  [
    (
      'images',
      own_examples.photos,
      'photos.tar',
      {'split': 'federated_train.csv', 'test_file': 'test.csv'},
      (32, 3, 4, 5),
    ),
    (
      'images',
      own_examples.npz,
      'mine.npz',
      {'split': 'iid:3', 'test_fraction': 0.25},
      (15, 4, 5, 3),
    ),
    (
      'table',
      own_examples.items,
      'items.csv',
      {'label_column': 'item', 'user_column': 'user', 'test_column': 'part'},
      (50, 4, 10, 7),
    ),
    (
      'sparse-text',
      own_examples.text,
      'train.txt',
      {'split': 'splits/text', 'test_file': 'test.txt'},
      (60, 11, 12, 10),
    ),
    (
      'sparse-text-sets',
      own_examples.text,
      'train.txt',
      {'test_file': 'test.txt', 'num_clients': 4},
      (52, 11, 12, 4),
    ),
  ],
)
def test_a_plan_has_what_a_run_would_find(
  name, make, data_dir, given, found, tmp_path, monkeypatch
):
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(plan_lib, 'PLANNED', SOME)

  def plan(**more):
    return plan_lib.Planner(name, {'data_dir': data_dir, **given, **more}).make()

  data = plan()['data']
  names = ('examples', 'classes', 'test_examples', 'clients')
  assert tuple(data[n] for n in names) == found
  with pytest.raises(errors.InputError, match='absent'):
    plan(test_file='absent', test_fraction=0.0)
  if name == 'images':  # Images may have a sample of the test.
    assert plan(test_examples=3)['data']['test_examples'] == 3
    given = {'split': 'class'}
    with pytest.raises(errors.InputError, match='no test part'):
      plan(test_examples=3)


def test_a_plan_of_histories_has_what_a_run_would_find(tmp_path, monkeypatch):
  rows = [f'{user},{item}' for user in 'abc' for item in 'xyz']
  path = tmp_path / 'mine.csv'
  path.write_text('\n'.join(['who,what', *rows, 'd,w']))
  given = {'data_dir': str(path), 'user_column': 'who', 'item_column': 'what'}
  monkeypatch.setattr(plan_lib, 'PLANNED', SOME)
  data = plan_lib.Planner('items', given).make()['data']
  assert (data['classes'], data['test_examples']) == (4, 3)
  assert data['clients'] == 3
  assert 'without a training example' in data['check'][0]
  with pytest.raises(errors.InputError, match='--user_column'):
    plan_lib.Planner('items', {'data_dir': str(path)}).make()


def write_text(path, header='4 9 3'):
  lines = [f'{i % 3} {i}:1 8:0.5' for i in range(4)]
  path.write_text('\n'.join([header, *lines, '']))
  return str(path)


def text_run(path, **changes):
  changes = {'data_dir': path, 'split': 'iid:3', **changes}
  return configuration.resolve('sparse-text', 'fedavg', changes)


@pytest.mark.parametrize('task', ['sparse-text', 'sparse-text-sets'])
@pytest.mark.parametrize('header', ['4 9 2000000000', '4 2000000000 3'])
def test_a_first_line_that_names_too_much_is_told_of(task, header, tmp_path):
  path = write_text(tmp_path / 'a.txt', header)
  found = registry.get(task)
  options = found.option_values()
  with pytest.raises(errors.InputError, match='line 1'):
    found.load(path, options)


def test_arrays_take_no_options_of_files_of_images(tmp_path):
  path, found = str(own_examples.npz(tmp_path)), registry.get('images')
  for options in ({'corrupt': 'fail'}, {'record_features': 'image=x'}):
    with pytest.raises(errors.InputError, match='leave out --corrupt and --record_features'):
      found.load(path, found.option_values() | options)


def test_a_model_larger_than_memory_is_refused(tmp_path, monkeypatch):
  path = write_text(tmp_path / 'a.txt')
  config = text_run(path)
  monkeypatch.setattr(memory, 'free_bytes', lambda: 100_000)
  with pytest.raises(errors.InputError, match='line 1 names 3 labels'):
    experiment.assemble(config)
  monkeypatch.undo()
  loaded = registry.get('sparse-text').load(path, config['options'])
  monkeypatch.setattr(memory, 'free_bytes', lambda: 100_000)
  with pytest.raises(errors.InputError, match='3 classes'):
    experiment.with_data(config, loaded).run(str(tmp_path / 'run'))
  assert not (tmp_path / 'run').exists()
  with pytest.raises(errors.InputError, match='num_features'):
    words = registry.get('sparse-words')
    words.load('', words.option_values() | {'num_classes': 10, 'num_features': 10**6})


def test_a_default_number_of_clients_fits(tmp_path):
  path = write_text(tmp_path / 'a.txt')
  config = text_run(path)
  found = experiment.assemble(config)
  assert found.algorithm.sampling.clients_per_round == 3
  assert found.config['hyperparameters']['clients_per_round'] == 3
  assert any('all 3 clients' in warning for warning in found.warnings)
  files.write_json(tmp_path / 'config.json', found.config)
  same_run.check_config(tmp_path, config)  # This check comes before the data are read.
  default = config['hyperparameters']['clients_per_round']
  with pytest.raises(errors.InputError, match='clients_per_round'):
    same_run.check_config(tmp_path, text_run(path, clients_per_round=default))
  for given in (4, default):
    chosen = experiment.assemble(text_run(path, clients_per_round=given))
    with pytest.raises(errors.InputError, match=f'is {given}, and the data'):
      chosen.algorithm.sampling.cohorts(chosen.dataset, 0)


@pytest.mark.parametrize(('replace', 'expected'), [(False, 3), (True, 256)])
def test_a_default_number_of_virtual_clients_fits(replace, expected, tmp_path):
  given = {
    'data_dir': write_text(tmp_path / 'a.txt'),
    'split': 'iid:3',
    'virtual_client_replace': replace,
  }
  found = experiment.assemble(configuration.resolve('sparse-text', 'fedvc', given))
  assert found.algorithm.sampling.clients_per_round == expected
  found.algorithm.sampling.cohorts(found.dataset, 0)


def test_a_default_number_of_negatives_fits(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('class,user_id,a\n' + 'cat,u,1\ndog,v,2\nfox,u,3\n')

  def resolve(**given):
    return configuration.resolve('table', 'fedss', {'data_dir': str(path), **given})

  found = experiment.assemble(resolve())
  assert found.config['hyperparameters']['negatives'] == 2
  assert any('--negatives' in warning for warning in found.warnings)
  with pytest.raises(errors.InputError, match='--negatives=80'):
    experiment.assemble(resolve(negatives=80))


def test_features_of_ones_own_are_not_hashed(tmp_path):
  task = registry.get('sparse-text-sets')
  options = task.option_values() | {'num_clients': 2}
  loaded = task.load(write_text(tmp_path / 'a.txt'), options)
  assert loaded.dataset.train.pool.read(np.arange(1)).shape[1] == 9


def test_training_tells_what_is_odd(tmp_path):
  path, arrays = str(tmp_path / 'a.csv'), str(tmp_path / 'a.npz')
  lines = [f'{c},u,train,{i}' for i, c in enumerate('abab')]
  lines = ['class,user_id,part,a', *lines, 'fox\x1b[2J,u,test,1']
  (tmp_path / 'a.csv').write_text('\n'.join(lines))
  np.savez(arrays, x=np.eye(4), y=[3, 999, 3, 999], client=[0, 0, 1, 1])
  for given, word in (
    ({'data_dir': path, 'test_column': 'part'}, r'1 class of the test.*fox\\x1b'),
    ({'data_dir': arrays}, 'labels up to 999, of which only 2 occur'),
  ):
    config = configuration.resolve('table', 'fedavg', given)
    assert re.search(word, experiment.assemble(config).warnings[0])


def contents(pool, numbers):
  x = pool.read(numbers)
  x = x.toarray() if scipy.sparse.issparse(x) else x
  return [row.tobytes() for row in x]


@pytest.mark.parametrize(
  ('name', 'make', 'data_dir', 'given'),
  [
    ('images', own_examples.photos, 'photos', {'split': 'iid:3'}),
    ('images', own_examples.photos, 'photos', {'split': 'made', 'test_fraction': 0.0}),
    ('images', own_examples.photos, 'photos', {'split': 'federated_train.csv'}),
    (
      'table',
      own_examples.items,
      'items.parquet',
      {'label_column': 'item', 'split': 'dirichlet:clients=3'},
    ),
    ('images', own_examples.npz, 'mine.npz', {'split': 'class'}),
    ('images', own_examples.npz, 'mine.npz', {}),
    ('sparse-text', own_examples.text, 'train.txt', {}),
    ('sparse-text-sets', own_examples.text, 'train.txt', {'num_clients': 3}),
  ],
)
def test_clients_have_test_examples_that_are_held_out(
  name, make, data_dir, given, tmp_path, monkeypatch
):
  """All data and splits work alike. Held-out examples do not change the training clients."""
  make(tmp_path)
  monkeypatch.chdir(tmp_path)
  if given.get('split') == 'made':
    settings = rules.get('dirichlet').settings(clients=3)
    request = rules.Request('dirichlet', settings, test_fraction=0.25)
    making.write('made', making.make(request, data_dir, tables.Columns()))
  given = {'test_fraction': 0.25, **given}
  config = configuration.resolve(name, 'fedavg', {**given, 'data_dir': data_dir})
  plain = registry.get(name).load(data_dir, config['options']).dataset
  found = experiment.assemble(config).dataset
  train, held_out = found.train.partition, found.held_out
  assert held_out.client_ids == train.client_ids
  np.testing.assert_array_equal(train.numbers, plain.train.partition.numbers)
  assert len(held_out.numbers) > 0.8 * len(found.test)
  assert not {*held_out.numbers} & {*train.numbers}
  held = contents(found.train.pool, held_out.numbers)
  assert {*held} <= {*contents(found.test, np.arange(len(found.test)))}
  frame = client_scores.clients(found)
  scored = frame[frame['test_examples'] > 0]
  assert (scored['training_examples'] > 0).all()
