"""Configurations: the settings that follow from a task, an algorithm and changes."""

import ast

import pytest

from tasks import configuration, registry as tasks
from tff_xc import errors
from tff_xc.algorithms import registry as algorithms
from tff_xc.report import run_files

COSINES = {'fedaws', 'fedaws_baseline1', 'fedaws_baseline2'}
ONE_LABEL = COSINES | {
  'fedss',
  'negonly',
  'posonly',
  'fedaws_posonly',
  'fedir',
  'fedrs',
  'fedlc',
  'fedproto',
  'logit_adjustment',
}
# Tasks with the user's own data need a path. Other tasks have a default.
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
    assert configuration.resolve(task, algorithm, MINE)['algorithm'] == algorithm
  for algorithm in refused_by(task):
    with pytest.raises(errors.InputError) as refusal:
      configuration.resolve(task, algorithm, MINE)
    assert str(refusal.value).endswith(f'or one of {", ".join(others)}')


@pytest.mark.parametrize(('name', 'rounds'), [('cifar10', 10_000), ('cifar100', 20_000)])
def test_cifar_has_the_published_rates(name, rounds):
  """Compares with Hsu, Qi and Brown (arXiv:2003.08082), section 6.5 and fig. 8."""
  config = run_files.flat(configuration.resolve(f'{name}-dirichlet', 'fedavgm'))
  expected = {
    'client_learning_rate': 0.01,
    'batch_size': 64,
    'weight_decay': 4e-4,
    'local_epochs': 1,
    'num_clients': 100,
    'clients_per_round': 10,
    'server_momentum': 0.9,
    'rounds': rounds,
  }
  assert expected.items() <= config.items()


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
    options = configuration.resolve('bibtex', algorithm, changes)['options']
    assert options['select_features'] is selects


def test_without_validation_examples_no_round_is_chosen_by_them():
  def best_by(**changes):
    return configuration.resolve('bibtex-sets', 'fedmlh', changes)['best_by']

  chosen = {'best_by': 'pc_mean', 'early_stopping_patience': 3}
  assert best_by() == 'pc_mean_validation'
  assert best_by(validation=0.0) == ''
  assert best_by(validation=0.0, **chosen) == 'pc_mean'


@pytest.mark.parametrize(
  ('task', 'algorithm', 'changes'),
  [
    ('glyphs', 'fedss', {}),
    ('glyphs', 'fedavg', {'virtual_client_size': 64, 'batch_size': 32}),
    ('glyphs', 'fedprox', {'local_steps': 0, 'local_epochs': 2}),
    ('glyphs', 'moon', {'robust_aggregation': 'clipping'}),
    ('bibtex', 'centralized', {'embedding_dim': 8}),
    ('bibtex-sets', 'fedmlh', {'validation': 0.0}),
    ('images', 'fedaws', MINE | {'encoder': 'mobilenet_v2', 'bottleneck': False}),
    ('images', 'fedavg', MINE | {'encoder': 'my.module:f'}),
    ('sparse-text', 'fedavg', MINE | {'data_seed': 3}),
    ('items', 'fedss', MINE | {'local_epochs': 1}),
    ('items', 'fedss', MINE | {'hidden_dim': 8}),
    ('items', 'fedss', MINE | {'local_steps': 5}),
    (
      'items',
      'fedss',
      MINE | {'server_schedule': 'cosine', 'server_schedule_rounds': 400},
    ),
  ],
)
def test_what_a_run_recorded_is_its_configuration(task, algorithm, changes):
  config = configuration.resolve(task, algorithm, changes)
  written = {**config, 'data': {'classes': 3}}
  assert configuration.recorded(written) == config
  del written['runtime'], written['client_threads']
  assert configuration.recorded(written) == config


def test_the_seed_of_held_out_examples_applies_to_any_split():
  for held_out in ('client_test_fraction', 'unseen_clients'):
    config = configuration.resolve('cifar10', 'fedavg', {held_out: 0.1, 'data_seed': 1})
    assert config['options']['data_seed'] == 1
  config = configuration.resolve('cifar10', 'fedavg', {'split': 'iid:9', 'data_seed': 1})
  assert config['options']['data_seed'] == 1


def test_a_run_on_a_cluster_is_read_on_any_runtime():
  given = {'runtime': 'cluster', 'cluster_address': 'auto', 'worker_timeout': 5}
  config = configuration.resolve('glyphs', 'fedss', given)
  assert configuration.recorded(config) == config
  found = configuration.recorded({**config, 'runtime': 'in_process'})
  assert found['cluster_address'] == ''


def test_what_only_training_reads_is_not_asked_for_later():
  changes = {'data_dir': 'a.npz', 'encoder': 'mobilenet_v2'}
  config = configuration.resolve('images', 'fedir', changes)
  config['options']['encoder_weights'] = 'gone.h5'
  config['hyperparameters']['importance_weights'] = 'gone.csv'
  found = configuration.recorded(config)
  assert found['options']['encoder_weights'] == ''
  assert found['hyperparameters']['importance_weights'] == 'none'


def test_virtual_clients_take_one_epoch_over_what_they_draw():
  config = configuration.resolve('bibtex', 'fedss', {'virtual_client_size': 1024})
  assert config['options']['examples_per_round'] == 0
  values = config['hyperparameters']
  assert not {'local_epochs', 'local_steps'} & set(values)
  assert not values['virtual_client_replace']
  values = configuration.resolve('omniglot', 'fedvc')['hyperparameters']
  assert (values['virtual_client_size'], values['batch_size']) == (256, 64)
  values = configuration.resolve('omniglot', 'fedir')['hyperparameters']
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
items fedaws data_dir='a.csv' tie_items=True: give --tie_items=false
items turbosvm data_dir='a.csv' tie_items=True: give --tie_items=false
items moon data_dir='a.csv' tie_items=True: give --tie_items=false
items fedbabu data_dir='a.csv' tie_items=True: give --tie_items=false
items fedss data_dir='a.csv' feature_dim=8: tie_items=false
items fedss data_dir='a.csv' feature_learning_rate=8: tie_items=false
items fedss data_dir='a.csv' tie_items=False encoder='sequence': give --encoder=bag
items fedaws data_dir='a.csv' encoder='sequence': give --encoder=bag
items fedss data_dir='a.csv' hidden_dim=8 encoder='sequence': hidden_dim does not apply
items fedss data_dir='a.csv' dropout=0.5 encoder='bag': only with --encoder=sequence
items fedss data_dir='a.csv' attention_blocks=3 encoder='sequence': attention_blocks
items fedss data_dir='a.csv' encoder='small': encoder
bibtex-sets fedmlh validation=0.0 best_by='pc_mean_validation': validation=0
bibtex-sets fedmlh validation=0.0 early_stopping_patience=3: validation=0
glyphs fedss more_metrics='top55': top5
glyphs fedss more_metrics='hit@2': no score hit@2
glyphs fedss more_metrics='client_top1_mean' evaluate_clients=3: --evaluate_clients measures
glyphs fedss start_from_rows='none': goes with
glyphs fedss cluster_address='auto': --cluster_address goes with --runtime=cluster
glyphs fedss worker_timeout=5 runtime='worker': --worker_timeout goes with
glyphs fedss cluster_without_token=True: --cluster_without_token goes with
faces-celeba fedavg embedding_dim=8: not an option
faces-celeba fedavg logit_scale=8.0: not an option
cifar10 fedavg data_seed=1: data_seed does not apply with --split=class
glyphs fedavg size_deviation=1.0: size_deviation does not apply without --split=d
glyphs fedavg concentration=1.0: without --split=dirichlet; give that, too
glyphs fedavg classes_per_client=5 split='dirichlet': classes_per_client does not
glyphs fedavg classes_least=5 split='dirichlet': leave one of them out
glyphs fedavg group_share=0.5 split='dirichlet': group_share does not
glyphs fedavg split='iid:3': expected one of
glyphs fedss attack_fraction=0.2: attack
glyphs fedss attack='flip_labels' attack_scale=2.0: scale
glyphs fedproto attack='flip_signs': numbers of examples
glyphs fedss dp='central' dp_epsilon=8.0 dp_noise_multiplier=0.0: epsilon needs noise
glyphs fedss dp='central' dp_epsilon=8.0 dp_clip=1e999: finite norm
glyphs fedss attack='scale' attack_fraction=0.0: more than 0
glyphs centralized attack='scale': not a hyper-parameter
glyphs fedavg calibration='prior' calibration_probabilities='train': no file
glyphs fedavg calibration='prior' calibration_probabilities='none': no file
glyphs fedss dp_clip=2.0: dp=central
glyphs fedss dp='central' dp_noise_multiplier=1e999: finite
glyphs fedss dp_epsilon=2.0: dp=central
glyphs centralized dp_epsilon=2.0: clients
glyphs fedss dp='local' dp_clip_quantile=0.5: central
glyphs fedss dp='central' dp_epsilon=1.0 dp_noise_multiplier=1.0: not both
glyphs fedavg dp='distributed' dp_noise_multiplier=0.0 dp_clip=1e999: finite norm
glyphs fedavg dp='central' dp_noise_multiplier=0.0 dp_clip=1e999 dp_clip_quantile=0.5: finite norm
landmarks-user-160k fedss image_size=0: give the pixels a side
landmarks-user-160k fedss image_size=16: at least 32
landmarks-user-160k fedss split='nowhere.csv': nowhere.csv does not exist
landmarks-user-160k fedaws logits='linear': needs cosine logits
landmarks-user-160k fedss logits='linear' logit_scale=3.0: --logit_scale does not apply
images fedss data_dir='mine' encoder='resnet': choose one of small, mobilenet_v2, mobilenet_v3
images fedss data_dir='mine' encoder='a:': MODULE:FUNCTION
images fedss data_dir='mine' norm_groups=2: --norm_groups does not apply with --encoder=small
images fedss data_dir='mine' encoder='mobilenet_v3' norm_groups=3:\
 --norm_groups=3: take 1, 2, 4 or 8
images fedss data_dir='mine' encoder='a:b' embedding_dim=8:\
 --embedding_dim does not apply with --encoder=a:b
images fedss data_dir='mine' encoder='mobilenet_v2' bottleneck=False embedding_dim=8:\
 --embedding_dim does not apply with --bottleneck=false
images fedss data_dir='mine' encoder='mobilenet_v2' encoder_weights='no.h5': no.h5 is no file
images fedss data_dir='mine' encoder='mobilenet_v2' encoder_weights='imagenet' start_from='run':\
 --encoder_weights does not apply with --start_from
images fedss data_dir='mine' encoder='mobilenet_v3' image_size=31: at least 32
images fedss data_dir='mine' image_size=7: at least 8
"""


@pytest.mark.parametrize('line', EXCLUDED.strip().splitlines())
def test_what_excludes_each_other_is_refused(line):
  given, _, word = line.partition(': ')
  task, algorithm, *pairs = given.split()
  changes = dict(pair.split('=', 1) for pair in pairs)
  changes = {name: ast.literal_eval(v) for name, v in changes.items()}
  with pytest.raises(errors.InputError, match=word):
    configuration.resolve(task, algorithm, changes)


def test_items_have_one_row_where_class_rows_may_be_features():
  def of(algorithm, **changes):
    return configuration.resolve('items', algorithm, {'data_dir': 'a.csv', **changes})['options'][
      'tie_items'
    ]

  for name in ('fedss', 'fullsoftmax', 'scaffold', 'fedadam', 'centralized'):
    assert of(name)
  for name in ('fedaws', 'turbosvm', 'moon', 'fedbabu'):
    assert not of(name)
  assert not of('fedss', negatives_schedule='randomized')
  assert not of('fedss', negatives_schedule='sticky', examples_per_round=1)
  assert of('fedss', negatives_schedule='sticky')
  assert not of('fedss', attack='flip_labels')
  assert not of('fedss', contrastive_weight=1.0)
  assert not of('fedss', trainable='head')
  assert not of('fedss', tie_items=False, feature_dim=8)


def test_defaults_of_items_follow_the_network():
  def of(algorithm='fedss', **changes):
    return configuration.resolve('items', algorithm, {'data_dir': 'a.csv', **changes})

  def chosen(**changes):
    return of(**changes)['options']['encoder']

  assert chosen() == 'sequence'
  assert of(encoder='sequence', dropout=0.1)['options']['dropout'] == 0.1
  for changes in (
    {'tie_items': False},
    {'hidden_dim': 8},
    {'algorithm': 'fedaws'},
    {'trainable': 'head'},
  ):
    assert chosen(**changes) == 'bag'
  assert of()['hyperparameters']['local_epochs'] == 4
  assert of(local_epochs=1)['hyperparameters']['local_epochs'] == 1
  assert of(encoder='bag')['hyperparameters']['local_epochs'] == 3
  assert of(tie_items=False)['hyperparameters']['local_epochs'] == 1
  # Learning rates of other server optimizers do not apply, and steps replace epochs.
  assert of(server_optimizer='sgd')['hyperparameters']['server_learning_rate'] == 1.0
  assert of(local_steps=3)['hyperparameters']['local_steps'] == 3
  assert of(client_optimizer='adam')['hyperparameters']['client_learning_rate'] == 0.001
