"""Configurations: what a task, an algorithm and changes give together."""

import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from tasks import experiment
from tests import small_data
from tests.experiment import test_unchanged
from tff_xc import errors
from tff_xc.data import fingerprint
from tff_xc.report import run_files


@pytest.mark.parametrize(
  ('algorithm', 'changes', 'selects'),
  [
    ('moon', {}, False),
    ('fedss', {'contrastive_weight': 1.0}, False),
    ('moon', {'moon_published': True}, True),
    ('fedss', {}, True),
    ('fedss', {'select_features': False}, False),
  ],
)
def test_clients_that_keep_their_model_hold_all_of_it(
  algorithm, changes, selects
):
  config = experiment.resolve('bibtex', algorithm, changes)
  assert config['options']['select_features'] is selects


def test_selected_features_do_not_go_with_kept_models():
  with pytest.raises(
    errors.InputError, match='keep whole models; leave it out'
  ):
    experiment.resolve('bibtex', 'moon', {'select_features': True})


def test_without_validation_examples_no_round_is_chosen_by_them():
  resolve = lambda **changes: experiment.resolve(
    'bibtex-sets', 'fedmlh', {'validation': 0.0, **changes}
  )
  assert experiment.resolve('bibtex-sets', 'fedmlh')['best_by'] == (
    'pc_mean_validation'
  )
  assert resolve()['best_by'] == ''
  assert resolve(best_by='pc_mean', stop_after=3)['best_by'] == 'pc_mean'
  for changes in ({'best_by': 'pc_mean_validation'}, {'stop_after': 3}):
    with pytest.raises(
      errors.InputError, match='--validation=0 holds none out'
    ):
      resolve(**changes)


@pytest.mark.parametrize(
  ('task', 'algorithm', 'changes'),
  [
    ('glyphs', 'fedss', {}),
    ('glyphs', 'fedavg', {'virtual_clients': 64, 'batch_size': 32}),
    ('glyphs', 'fedprox', {'local_steps': 0, 'local_epochs': 2}),
    ('glyphs', 'moon', {'server_optimizer': 'sgd', 'robust': 'clipping'}),
    ('bibtex', 'centralized', {'embedding_dim': 8}),
    ('bibtex-sets', 'fedmlh', {'validation': 0.0}),
    (
      'images',
      'fedaws',
      {'data_dir': 'a.npz', 'encoder': 'mobilenet_v2', 'bottleneck': False},
    ),
    ('images', 'fedavg', {'data_dir': 'a.npz', 'encoder': 'my.module:f'}),
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
  given = {'virtual_clients': 1024}
  config = experiment.resolve('bibtex', 'fedss', given)
  assert config['options']['examples_per_round'] == 0
  values = config['hyperparameters']
  assert not {'local_epochs', 'local_steps'} & set(values)
  assert not values['virtual_clients_replace']
  values = experiment.resolve('omniglot', 'fedvc')['hyperparameters']
  assert (values['virtual_clients'], values['batch_size']) == (256, 64)
  values = experiment.resolve('omniglot', 'fedir')['hyperparameters']
  assert values['importance_weights'] == 'uniform'


@pytest.mark.parametrize(
  ('task', 'algorithm', 'changes', 'message'),
  [
    (
      'omniglot',
      'fedss',
      {'virtual_clients': 100},
      'no multiple of --batch_size',
    ),
    ('omniglot', 'fedvc', {'batch_size': 100}, '--virtual_clients=256 is no'),
    ('omniglot', 'fedvc', {'local_epochs': 2}, '--local_epochs does not apply'),
    (
      'omniglot',
      'moon',
      {'virtual_clients': 64, 'local_steps': 2},
      'local_steps',
    ),
    ('bibtex', 'fedvc', {'examples_per_round': 5}, '--examples_per_round does'),
    (
      'omniglot',
      'fedss',
      {'virtual_clients_replace': True},
      'virtual_clients=0',
    ),
    (
      'omniglot',
      'moon',
      {'virtual_clients': 64, 'virtual_clients_replace': True},
      'each client keeps one model; leave one',
    ),
    ('omniglot', 'fedvc', {'virtual_clients': 0}, 'nothing of fedvc; give'),
    (
      'omniglot',
      'fedss',
      {'virtual_clients': 64, 'shuffle': False},
      '--shuffle=false does not apply with --virtual_clients',
    ),
    ('omniglot', 'moon', {'train': 'head'}, 'these would never change'),
    ('omniglot', 'fedss', {'train': 'tail'}, 'one of all, head, bottleneck'),
    ('bibtex', 'moon', {'train': 'bottleneck'}, 'whole frozen feature table'),
    (
      'bibtex',
      'fedss',
      {'train': 'head', 'select_features': False},
      'does not go with --select_features=false',
    ),
    ('omniglot', 'fedss', {'weight_decay': -1.0}, 'at least 0'),
    ('omniglot', 'fedir', {'importance_weights': 'p.csv'}, 'p.csv is no file'),
    ('omniglot', 'fedir', {'importance_weights': ''}, 'is no file; give one'),
    (
      'omniglot',
      'centralized',
      {'virtual_clients': 64},
      'not a hyper-parameter',
    ),
  ],
)
def test_options_that_exclude_each_other_are_refused(
  task, algorithm, changes, message
):
  with pytest.raises(errors.InputError, match=message):
    experiment.resolve(task, algorithm, changes)


def test_a_file_of_class_probabilities_is_read_before_the_data(tmp_path):
  path = tmp_path / 'p.csv'
  given = {'num_classes': 10, 'importance_weights': str(path)}
  for line, message in (
    ('3,x', "line 2: the probability is 'x'"),
    ('10,1', '9'),
  ):
    path.write_text(f'class,probability\n{line}\n')
    with pytest.raises(errors.InputError, match=message):
      experiment.resolve('glyphs', 'fedir', given)
  path.write_text('class,probability\n9,1\n')
  experiment.resolve('glyphs', 'fedir', given)


def test_photographs_name_classes_that_only_the_data_know(tmp_path):
  path = tmp_path / 'p.csv'
  path.write_text('class,probability\nQuercus robur,1\n')
  given = {'importance_weights': str(path)}
  experiment.resolve('landmarks-user-160k', 'fedir', given)
  names = ['2', '7', '9', 'Quercus robur']
  data = types.SimpleNamespace(num_classes=4, class_names=names)
  found = experiment._class_probabilities(str(path), data)
  assert found.tolist() == [0, 0, 0, 1]


@pytest.mark.slow
def test_fedvc_fedir_fedavgm_and_fedss_in_one_run_that_resumes(
  in_process, built_once, tmp_path
):
  target = tmp_path / 'p.csv'
  lines = [f'{label},{label + 1}\n' for label in range(10)]
  target.write_text('class,weight\n' + ''.join(lines))
  given = {
    **small_data.GLYPHS,
    'negatives': 3,
    'virtual_clients': 8,
    'virtual_clients_replace': True,
    'importance_weights': str(target),
    'server_optimizer': 'sgd',
    'server_momentum': 0.9,
    'weight_decay': 1e-4,
    'train': 'bottleneck',
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
  found = made.algorithm.example_weights.target
  np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [('fedir', {}), ('fedss', {'virtual_clients': 8})],
)
def test_a_worker_reads_examples_without_the_file_of_the_target(
  algorithm, changes, tmp_path
):
  target = tmp_path / 'p.csv'
  target.write_text('class,weight\n1,2\n3,4\n')
  given = {**small_data.GLYPHS, **changes, 'importance_weights': str(target)}
  config = experiment.resolve('glyphs', algorithm, given)
  made = experiment.assemble(config)
  assert made.algorithm.example_weights.target[3] > 0
  target.unlink()
  found, values_of, _ = experiment.own_values(config, '')
  assert found == fingerprint.fingerprint(made.dataset)
  cohorts = made.algorithm.sampling.cohorts(made.dataset, config['seed'])
  for number in range(2):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      list(values_of(number)),
      list(cohorts(number).examples),
    )


def test_a_worker_notices_that_its_images_were_replaced(tmp_path):
  test_unchanged.images(tmp_path)
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


def test_sets_of_labels_have_no_importance_weights():
  for algorithm in ('fedavg', 'fedmlh'):
    with pytest.raises(
      errors.InputError, match='needs examples with one label'
    ):
      experiment.resolve(
        'sparse-words-sets', algorithm, {'importance_weights': 'uniform'}
      )
