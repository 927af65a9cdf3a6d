"""Configurations: what a task, an algorithm and changes give together."""

import ast
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from datasets import items
from tasks import experiment, registry as tasks
from tests import small_data
from tff_xc import errors, files, precision
from tff_xc.algorithms import registry as algorithms
from tff_xc.data import fingerprint
from tff_xc.experiment import same_run
from tff_xc.report import run_files

COSINES = {'fedaws', 'fedaws_baseline1', 'fedaws_baseline2'}
ONE_LABEL = COSINES | {'fedss', 'negonly', 'posonly', 'fedaws_posonly', 'fedir'}
ONE_LABEL |= {'fedrs', 'fedlc', 'fedproto', 'logit_adjustment'}
# Tasks of one's own data need a name; others have a default.
MINE = {'data_dir': 'mine'}
LINEAR = {'femnist', 'celeba', 'shakespeare', 'glyphs-femnist'} | {
  'faces-celeba',
  'cifar10-dirichlet',
  'cifar100-dirichlet',
}


def refused_by(task):
  if task.endswith('-sets'):
    return ONE_LABEL
  linear = task in LINEAR or task.startswith('inaturalist-')
  return COSINES if linear or task.endswith('-tff') else set()


@pytest.mark.parametrize('task', tasks.TASKS)
def test_a_task_refuses_what_does_not_fit_and_names_what_does(task):
  others = [a for a in algorithms.ALGORITHMS if a not in refused_by(task)]
  for algorithm in others:
    assert experiment.resolve(task, algorithm, MINE)['algorithm'] == algorithm
  for algorithm in refused_by(task):
    with pytest.raises(errors.InputError) as refusal:
      experiment.resolve(task, algorithm, MINE)
    assert str(refusal.value).endswith(f'or one of {", ".join(others)}')


@pytest.mark.parametrize(('name', 'rounds'), [('cifar10', 10_000), ('cifar100', 20_000)])
def test_cifar_has_the_published_rates(name, rounds):
  """Hsu, Qi and Brown (arXiv:2003.08082), section 6.5 and fig. 8."""
  config = run_files.flat(experiment.resolve(f'{name}-dirichlet', 'fedavgm'))
  expected = {'client_learning_rate': 0.01, 'batch_size': 64}
  expected |= {'weight_decay': 4e-4, 'local_epochs': 1, 'num_clients': 100}
  expected |= {'clients_per_round': 10, 'server_momentum': 0.9}
  assert {**expected, 'rounds': rounds}.items() <= config.items()


def test_clients_that_keep_their_model_hold_all_of_it():
  for algorithm, changes, selects in (
    ('moon', {}, False),
    ('fedss', {'contrastive_weight': 1.0}, False),
    ('moon', {'moon_published': True}, True),
    ('fedss', {}, True),
    ('fedss', {'select_features': False}, False),
    ('fedmlh', {}, False),
    ('feddyn', {}, False),
    ('scaffold', {}, False),
    ('fednova', {}, True),
    ('fedrep', {}, True),
    ('fedproto', {}, True),
  ):
    options = experiment.resolve('bibtex', algorithm, changes)['options']
    assert options['select_features'] is selects


def test_without_validation_examples_no_round_is_chosen_by_them():
  def best_by(**changes):
    return experiment.resolve('bibtex-sets', 'fedmlh', changes)['best_by']

  chosen = {'best_by': 'pc_mean', 'early_stopping_patience': 3}
  assert best_by() == 'pc_mean_validation'
  assert best_by(validation=0.0) == ''
  assert best_by(validation=0.0, **chosen) == 'pc_mean'
  for changes in ({'best_by': best_by()}, {'early_stopping_patience': 3}):
    with pytest.raises(errors.InputError, match='validation=0'):
      best_by(validation=0.0, **changes)


OWN = {'data_dir': 'a.npz'}


@pytest.mark.parametrize(
  ('task', 'algorithm', 'changes'),
  [
    ('glyphs', 'fedss', {}),
    ('glyphs', 'fedavg', {'virtual_client_size': 64, 'batch_size': 32}),
    ('glyphs', 'fedprox', {'local_steps': 0, 'local_epochs': 2}),
    ('glyphs', 'moon', {'robust_aggregation': 'clipping'}),
    ('bibtex', 'centralized', {'embedding_dim': 8}),
    ('bibtex-sets', 'fedmlh', {'validation': 0.0}),
    ('images', 'fedaws', OWN | {'encoder': 'mobilenet_v2', 'bottleneck': False}),
    ('images', 'fedavg', OWN | {'encoder': 'my.module:f'}),
    ('sparse-text', 'fedavg', OWN | {'data_seed': 3}),
    ('items', 'fedss', OWN | {'local_epochs': 1}),
    ('items', 'fedss', OWN | {'hidden_dim': 8}),
  ],
)
def test_what_a_run_recorded_is_its_configuration(task, algorithm, changes):
  config = experiment.resolve(task, algorithm, changes)
  written = {**config, 'data': {'classes': 3}}
  assert experiment.recorded(written) == config
  del written['runtime'], written['client_threads']
  assert experiment.recorded(written) == config


def test_what_only_training_reads_is_not_asked_for_later():
  changes = {'data_dir': 'a.npz', 'encoder': 'mobilenet_v2'}
  config = experiment.resolve('images', 'fedir', changes)
  config['options']['encoder_weights'] = 'gone.h5'
  config['hyperparameters']['importance_weights'] = 'gone.csv'
  found = experiment.recorded(config)
  assert found['options']['encoder_weights'] == ''
  assert found['hyperparameters']['importance_weights'] == 'none'


def test_virtual_clients_take_one_epoch_over_what_they_draw():
  given = {'virtual_client_size': 1024}
  config = experiment.resolve('bibtex', 'fedss', given)
  assert config['options']['examples_per_round'] == 0
  values = config['hyperparameters']
  assert not {'local_epochs', 'local_steps'} & set(values)
  assert not values['virtual_client_replace']
  values = experiment.resolve('omniglot', 'fedvc')['hyperparameters']
  assert (values['virtual_client_size'], values['batch_size']) == (256, 64)
  values = experiment.resolve('omniglot', 'fedir')['hyperparameters']
  assert values['importance_weights'] == 'uniform'


EXCLUDED = """
omniglot fedss virtual_client_size=100: multiple
omniglot fedvc batch_size=100: multiple
omniglot moon virtual_client_size=64 local_steps=2: local_steps
omniglot fedss virtual_client_replace=True: virtual_client_replace
omniglot fedss trainable='tail': bottleneck
bibtex moon trainable='bottleneck': frozen
bibtex moon select_features=True: whole models
bibtex feddyn select_features=True: whole models
bibtex feddyn trainable='bottleneck': frozen
bibtex feddyn feature_learning_rate=0.1: own server
bibtex feddyn server_optimizer='adam': server_optimizer
bibtex scaffold select_features=True: whole models
bibtex fedss trainable='head' select_features=False: frozen
omniglot fedss weight_decay=-1.0: at least 0
omniglot fedir importance_weights='p.csv': no file
omniglot fedir importance_weights='': no file
sparse-words-sets fedavg importance_weights='uniform': label
sparse-words-sets fedmlh importance_weights='uniform': label
omniglot centralized virtual_client_size=64: hyper-parameter
glyphs fedss embedding_dim=60000 num_classes=100000 negatives=9: embedding_dim
bibtex-sets fedmlh hash_buckets=2147483647: hash_buckets
bibtex-sets fedmlh hash_tables=1024 hash_buckets=3000000: hash_buckets
bibtex-sets fedavg hashed_features=2147483647: hashed_features
cifar10 fedavg concentration=0.5: split=class
cifar10-dirichlet fedavg clients_per_class=4: split=dirichlet
sparse-text fedavg classes_per_client=2 split='iid:9' data_dir='a': split=iid:9
bibtex fedmlh select_features=True: select_features
bibtex fedmlh feature_learning_rate=0.1: feature_learning_rate
bibtex centralized clients_per_round=2: no clients
bibtex centralized examples_per_round=2: no clients
images fedavg data_dir='a' encoder='mine:net' precision='bfloat16': --encoder=mine:net
bibtex-sets fedavg calibration='prior': one label each
items fedss data_dir='a.csv' test_share=0.2: only with --test_split=time
"""


@pytest.mark.parametrize('line', EXCLUDED.strip().splitlines())
def test_what_excludes_each_other_is_refused(line):
  given, _, word = line.partition(': ')
  task, algorithm, *pairs = given.split()
  changes = dict(pair.split('=', 1) for pair in pairs)
  changes = {name: ast.literal_eval(v) for name, v in changes.items()}
  with pytest.raises(errors.InputError, match=word):
    experiment.resolve(task, algorithm, changes)


def test_a_run_goes_on_in_its_precision_only_and_is_refused_on_a_slow_cpu(tmp_path, monkeypatch):
  monkeypatch.delenv(precision.EMULATED, raising=False)
  monkeypatch.setattr(experiment, 'install_runtime', lambda config: None)
  monkeypatch.setattr(precision, '_why_slow', lambda devices: 'it is old')
  config = experiment.resolve('glyphs', 'fedss', {'precision': 'bfloat16', 'device': 'cpu'})
  with pytest.raises(errors.InputError, match='it is old'):
    experiment.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
  files.write_json(tmp_path / run_files.CONFIG, config)
  same_run.check_config(tmp_path, config)
  found = experiment.assemble(config)
  assert found.algorithm.model.precision == 'bfloat16'
  exported = experiment.trained_model(config, found.dataset.description)
  assert exported.precision == 'float32'
  with pytest.raises(errors.InputError, match='precision was bfloat16'):
    same_run.check_config(tmp_path, experiment.resolve('glyphs', 'fedss'))


@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [
    ('logit_adjustment', {}),
    ('fedavg', {'importance_weights': 'train'}),
    ('fedir', {'importance_weights': 'gone.csv'}),
  ],
)
def test_a_model_is_known_without_the_classes_of_the_data(algorithm, changes):
  config = experiment.resolve('glyphs', algorithm, {'num_classes': 10})
  plain = experiment.resolve('glyphs', 'fedavg', small_data.GLYPHS)
  config['hyperparameters'] |= changes
  description = experiment.assemble(plain).dataset.description
  assert experiment.trained_model(config, description).num_classes == 10


def test_a_file_of_class_probabilities_is_read_before_the_data(tmp_path):
  path = tmp_path / 'p.csv'
  given = {'num_classes': 10, 'importance_weights': str(path)}
  for line, message in (('3,x', "'x'"), ('10,1', '9')):
    path.write_text(f'class,probability\n{line}\n')
    with pytest.raises(errors.InputError, match=message):
      experiment.resolve('glyphs', 'fedir', given)
  path.write_text('class,probability\n9,1\n')
  experiment.resolve('glyphs', 'fedir', given)
  # Photographs name classes that only the data know.
  path.write_text('class,probability\nQuercus robur,1\n')
  given = {'importance_weights': str(path)}
  experiment.resolve('landmarks-user-160k', 'fedir', given)
  names = ['2', '7', '9', 'Quercus robur']
  data = types.SimpleNamespace(num_classes=4, class_names=names)
  found = experiment._class_probabilities(given, data)
  assert found.tolist() == [0, 0, 0, 1]


@pytest.mark.slow
def test_fedvc_fedir_fedavgm_and_fedss_in_one_run_that_resumes(in_process, built_once, tmp_path):
  target = tmp_path / 'p.csv'
  lines = [f'{label},{label + 1}\n' for label in range(10)]
  target.write_text('class,weight\n' + ''.join(lines))
  given = {
    **small_data.GLYPHS,
    'negatives': 3,
    'virtual_client_size': 8,
    'virtual_client_replace': True,
    'importance_weights': str(target),
    'server_optimizer': 'sgd',
    'server_momentum': 0.9,
    'weight_decay': 1e-4,
    'trainable': 'bottleneck',
  }

  def run(rounds, folder):
    config = experiment.resolve('glyphs', 'fedss', {**given, 'rounds': rounds})
    summary = experiment.assemble(config).run(str(tmp_path / folder))
    table = run_files.read_run(tmp_path / folder).metrics
    return summary, table.drop(columns='seconds')

  summary, straight = run(4, 'straight')
  assert summary['clients_dropped_total'] == 0
  assert np.isfinite(straight['loss'][1:]).all()
  assert (straight['examples'][1:] == 3 * 8).all()
  assert (straight['local_batches'][1:] == 8 / 4).all()
  run(2, 'resumed')
  pd.testing.assert_frame_equal(run(4, 'resumed')[1], straight)
  # p is of the run, as the data are.
  target.write_text('class,weight\n1,1\n')
  with pytest.raises(errors.InputError, match='a file that has changed since'):
    run(6, 'resumed')


def test_the_target_may_be_that_of_the_training_examples():
  config = experiment.resolve(
    'glyphs', 'fedavg', {**small_data.GLYPHS, 'importance_weights': 'train'}
  )
  made = experiment.assemble(config)
  _, labels = made.dataset.train.owned_labels()
  expected = np.bincount(labels, minlength=10) / len(labels)
  found = made.algorithm.part('importance').beside
  np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('algorithm', 'changes'), [('fedir', {}), ('fedss', {'virtual_client_size': 8})]
)
def test_a_worker_reads_examples_without_the_file_of_the_target(algorithm, changes, tmp_path):
  target = tmp_path / 'p.csv'
  target.write_text('class,weight\n1,2\n3,4\n')
  given = {**small_data.GLYPHS, **changes, 'importance_weights': str(target)}
  config = experiment.resolve('glyphs', algorithm, given)
  made = experiment.assemble(config)
  assert made.algorithm.part('importance').beside[3] > 0
  target.unlink()
  found, values_of, _ = experiment.own_values(config, '')
  assert found == fingerprint.fingerprint(made.dataset)
  cohorts = made.algorithm.sampling.cohorts(made.dataset, config['seed'])
  for number in range(2):
    tf.nest.map_structure(
      np.testing.assert_array_equal, list(values_of(number)), list(cohorts(number).examples)
    )


def test_a_worker_notices_that_its_images_were_replaced(tmp_path):
  for i in range(8):
    path = tmp_path / f'class{i % 2}' / f'{i}.png'
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.full([8, 8, 3], 30 * i, np.uint8)).save(path)
  given = {'image_size': 8, 'split': 'iid:2', 'clients_per_round': 2}
  given |= {'data_dir': str(tmp_path)}
  config = experiment.resolve('images', 'fedavg', given)
  before = experiment.own_values(config, str(tmp_path))[1](0)[0].x
  _, values_of, check = experiment.own_values(config, str(tmp_path))
  check()
  for file in tmp_path.glob('*/*.png'):
    Image.fromarray(np.full([8, 8, 3], 7, np.uint8)).save(file)
  assert not np.array_equal(values_of(0)[0].x, before)
  with pytest.raises(errors.InputError, match=r'\.png has changed since'):
    check()


def test_what_is_held_out_of_clients_does_not_train():
  changes = {**small_data.GLYPHS, 'unseen_clients': 0.25}
  changes |= {'client_test_fraction': 0.25}
  config = experiment.resolve('glyphs', 'fedss', changes)
  made = experiment.assemble(config)
  dataset = made.dataset
  assert dataset.train.client_ids == dataset.held_out.client_ids
  assert len(dataset.train.client_ids) == 6
  assert len(dataset.unseen.train) == 2
  _, values_of, _ = experiment.own_values(config, '')
  for client in values_of(0):
    own = dataset.train.partition.of_client(int(client.client_id))
    np.testing.assert_array_equal(client.x, dataset.train.pool.read(own))
    assert len(own) == 9


def test_more_metrics_are_measured_or_refused(in_process):
  def resolve(task, more):
    return experiment.resolve(task, 'fedss', {'more_metrics': more})

  assert resolve('glyphs', '')['more_metrics'] == ''
  for text, told in (('top55', 'top5'), ('hit@2', 'no score hit@2')):
    with pytest.raises(errors.InputError, match=told):
      resolve('glyphs', text)
  found = experiment.assemble(resolve('glyphs', 'top5, hit@5'))
  assert found.metrics[0] == 'top1'
  assert found.metrics[-2:] == ('top5', 'hit@5')
  with pytest.raises(errors.InputError, match='propensity'):
    experiment.assemble(resolve('glyphs', 'psp@1'))
  best = experiment.resolve('glyphs', 'fedss', {'more_metrics': 'hit@5', 'best_by': 'hit@5'})
  assert best['best_by'] == 'hit@5'


def test_the_prior_of_classes_is_that_of_training_examples_alone():
  """Tests of users are in the same pool."""
  users, taken = np.int32([0, 0, 0, 1, 1, 1]), np.int32([0, 1, 2, 0, 1, 3])
  found = items.Histories(users, taken, np.arange(6.0), [*'ab'], [*'ijkl'])
  dataset = items.federated('mine', found, items.Options())
  counts = experiment._class_probabilities({'calibration': 'prior'}, dataset)
  assert counts.tolist() == [0, 2, 0, 0]


SMALL = {'num_classes': 12, 'num_clients': 6, 'classes_per_client': 3}
SMALL |= {'examples_per_client': 5, 'embedding_dim': 4, 'hidden_dim': 4}


@pytest.mark.parametrize(
  ('changes', 'warned'),
  [({'rounds': 8}, True), ({'rounds': 9}, False), ({'rounds': 9, 'clients_per_round': 1}, True)],
)
def test_training_warns_of_few_visits(changes, warned):
  given = {**SMALL, 'clients_per_round': 2, **changes}
  found = experiment.assemble(experiment.resolve('features', 'fedss', given))
  assert any('participates in' in text for text in found.warnings) == warned
  task = tasks.get('glyphs-landmarks')  # Whose paper has so few rounds.
  config = {'rounds': task.rounds, 'options': task.option_values()}
  of_paper = {'clients_per_round': task.clients_per_round}
  many = types.SimpleNamespace(sizes=np.ones(10**6))
  assert not experiment._few_visits(config, of_paper, task, many)


def test_a_choice_by_validation_needs_examples_for_it():
  task = tasks.get('items')
  config = {'best_by': task.best_by, 'early_stopping_patience': 0}

  def told(config, metrics=('hit@10',)):
    return experiment._without_validation(config, task, metrics)

  assert task.best_by in told(config)[0]
  assert not told(config, (task.best_by,))
  for change in ({'early_stopping_patience': 3}, {'best_by': 'hit@10_validation'}):
    with pytest.raises(errors.InputError, match='do not have the examples'):
      told({**config, **change})


def test_items_have_one_row_where_class_rows_may_be_features():
  def of(algorithm, **changes):
    return experiment.resolve('items', algorithm, {'data_dir': 'a.csv', **changes})['options'][
      'tie_items'
    ]

  for name in ('fedss', 'fullsoftmax', 'scaffold', 'fedadam', 'centralized'):
    assert of(name)
  for name in ('fedaws', 'turbosvm', 'moon', 'fedbabu'):
    assert not of(name)
    with pytest.raises(errors.InputError, match='give --tie_items=false'):
      of(name, tie_items=True)
  assert not of('fedss', negatives_schedule='randomized')
  assert not of('fedss', contrastive_weight=1.0)
  assert not of('fedss', trainable='head')
  assert not of('fedss', tie_items=False, feature_dim=8)
  for name in ('feature_dim', 'feature_learning_rate'):
    with pytest.raises(errors.InputError, match='tie_items=false'):
      of('fedss', **{name: 8})


def test_a_sequence_of_items_is_tied_and_has_options_of_its_own():
  def of(**changes):
    return experiment.resolve(
      'items', changes.pop('algorithm', 'fedss'), {'data_dir': 'a.csv', **changes}
    )

  assert of(encoder='sequence', dropout=0.1)['options']['dropout'] == 0.1
  for changes, told in (
    ({'tie_items': False, 'encoder': 'sequence'}, 'give --encoder=bag'),
    ({'algorithm': 'fedaws', 'encoder': 'sequence'}, 'give --encoder=bag'),
    ({'hidden_dim': 8, 'encoder': 'sequence'}, 'hidden_dim does not apply'),
    ({'dropout': 0.5, 'encoder': 'bag'}, 'only with --encoder=sequence'),
    ({'attention_blocks': 3, 'encoder': 'sequence'}, 'attention_blocks'),
    ({'encoder': 'small'}, 'encoder'),
  ):
    with pytest.raises(errors.InputError, match=told):
      of(**changes)


def test_defaults_of_items_follow_the_network():
  def of(algorithm='fedss', **changes):
    return experiment.resolve('items', algorithm, {'data_dir': 'a.csv', **changes})

  def chosen(**changes):
    return of(**changes)['options']['encoder']

  assert chosen() == 'sequence'
  for changes in (
    {'tie_items': False},
    {'hidden_dim': 8},
    {'algorithm': 'fedaws'},
    {'trainable': 'head'},
  ):
    assert chosen(**changes) == 'bag'
  values = of()['hyperparameters']
  assert values['local_epochs'] == 4
  assert of(local_epochs=1)['hyperparameters']['local_epochs'] == 1
  assert of(encoder='bag')['hyperparameters']['local_epochs'] == 3
  assert of(tie_items=False)['hyperparameters']['local_epochs'] == 1
  # Not rates of another server, and no epochs beside steps.
  of_sgd = of(server_optimizer='sgd')['hyperparameters']
  assert of_sgd['server_learning_rate'] == 1.0
  assert of(local_steps=3)['hyperparameters']['local_steps'] == 3


def test_a_model_of_items_has_one_table_where_they_are_tied():
  found = {}
  for is_tied in (True, False):
    how = {'num_classes': 30, 'num_clients': 20, 'tie_items': is_tied}
    config = experiment.resolve('items-demo', 'fedss', how)
    made = experiment.assemble(config)
    found[is_tied] = made.algorithm
    tables = made.algorithm.model.weight_specs().tables
    assert [*tables] == ['class', 'feature'][: 2 - is_tied]
  train = made.dataset.train
  unions = [
    len({*train.pool.read(numbers).indices, *train.pool.labels[numbers]})
    for numbers in map(train.partition.of_client, range(len(train.partition)))
  ]
  assert found[True].tables[0].request.max_positives == max(unions)
