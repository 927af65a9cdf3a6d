"""Experiments: the objects that a configuration creates from data, and their runs."""

import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image

from datasets import items
from tasks import configuration, experiment, registry as tasks
from tests import small_data
from tff_xc import errors, files, precision
from tff_xc.data import fingerprint
from tff_xc.experiment import same_run
from tff_xc.report import run_files


def test_a_run_goes_on_in_its_precision_only_and_is_refused_on_a_slow_cpu(tmp_path, monkeypatch):
  monkeypatch.delenv(precision.EMULATED, raising=False)
  monkeypatch.setattr(experiment, 'install_runtime', lambda config: None)
  monkeypatch.setattr(precision, '_why_slow', lambda devices: 'it is old')
  config = configuration.resolve('glyphs', 'fedss', {'precision': 'bfloat16', 'device': 'cpu'})
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
    same_run.check_config(tmp_path, configuration.resolve('glyphs', 'fedss'))


@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [
    ('logit_adjustment', {}),
    ('fedavg', {'importance_weights': 'train'}),
    ('fedir', {'importance_weights': 'gone.csv'}),
  ],
)
def test_a_model_is_known_without_the_classes_of_the_data(algorithm, changes):
  config = configuration.resolve('glyphs', algorithm, {'num_classes': 10})
  plain = configuration.resolve('glyphs', 'fedavg', small_data.GLYPHS)
  config['hyperparameters'] |= changes
  description = experiment.assemble(plain).dataset.description
  assert experiment.trained_model(config, description).num_classes == 10


def test_a_file_of_class_probabilities_is_read_before_the_data(tmp_path):
  path = tmp_path / 'p.csv'
  given = {'num_classes': 10, 'importance_weights': str(path)}
  for line, message in (('3,x', "'x'"), ('10,1', '9')):
    path.write_text(f'class,probability\n{line}\n')
    with pytest.raises(errors.InputError, match=message):
      configuration.resolve('glyphs', 'fedir', given)
  path.write_text('class,probability\n9,1\n')
  configuration.resolve('glyphs', 'fedir', given)
  # Only the data know the class names of photographs.
  path.write_text('class,probability\nQuercus robur,1\n')
  given = {'importance_weights': str(path)}
  configuration.resolve('landmarks-user-160k', 'fedir', given)
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
    'negatives': 3,
    'virtual_client_size': 8,
    'virtual_client_replace': True,
    'importance_weights': str(target),
    'server_optimizer': 'sgd',
    'server_momentum': 0.9,
    'weight_decay': 1e-4,
    'trainable': 'bottleneck',
  }

  small_data.trained_and_resumed(tmp_path, 'fedss', **given)
  straight, resumed = (run_files.read_run(tmp_path / name) for name in ('straight', 'resumed'))
  assert straight.summary['clients_dropped_total'] == 0
  done = straight.metrics[1:]
  assert np.isfinite(done['loss']).all()
  assert (done['examples'] == 3 * 8).all()
  assert (done['local_batches'] == 8 / 4).all()
  pd.testing.assert_frame_equal(
    resumed.metrics.drop(columns='seconds'), straight.metrics.drop(columns='seconds')
  )
  # The class probabilities belong to the run, like the data.
  target.write_text('class,weight\n1,1\n')
  config = configuration.resolve('glyphs', 'fedss', {**small_data.GLYPHS, **given, 'rounds': 6})
  with pytest.raises(errors.InputError, match='other probabilities of classes'):
    experiment.assemble(config).run(str(tmp_path / 'resumed'))


def test_the_target_may_be_that_of_the_training_examples():
  config = configuration.resolve(
    'glyphs', 'fedavg', {**small_data.GLYPHS, 'importance_weights': 'train'}
  )
  made = experiment.assemble(config)
  _, labels = made.dataset.train.owned_labels()
  expected = np.bincount(labels, minlength=10) / len(labels)
  np.testing.assert_allclose(made.algorithm.part('importance').beside, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('algorithm', 'changes'), [('fedir', {}), ('fedss', {'virtual_client_size': 8})]
)
def test_a_worker_reads_examples_without_the_file_of_the_target(algorithm, changes, tmp_path):
  target = tmp_path / 'p.csv'
  target.write_text('class,weight\n1,2\n3,4\n')
  given = {**small_data.GLYPHS, **changes, 'importance_weights': str(target)}
  config = configuration.resolve('glyphs', algorithm, given)
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
  given = {
    'image_size': 8,
    'split': 'iid:2',
    'clients_per_round': 2,
    'data_dir': str(tmp_path),
  }
  config = configuration.resolve('images', 'fedavg', given)
  before = experiment.own_values(config, str(tmp_path))[1](0)[0].x
  _, values_of, check = experiment.own_values(config, str(tmp_path))
  check()
  for file in tmp_path.glob('*/*.png'):
    Image.fromarray(np.full([8, 8, 3], 7, np.uint8)).save(file)
  assert not np.array_equal(values_of(0)[0].x, before)
  with pytest.raises(errors.InputError, match=r'\.png has changed since'):
    check()


def test_what_is_held_out_of_clients_does_not_train():
  changes = {**small_data.GLYPHS, 'unseen_clients': 0.25, 'client_test_fraction': 0.25}
  config = configuration.resolve('glyphs', 'fedss', changes)
  dataset = experiment.assemble(config).dataset
  assert dataset.train.client_ids == dataset.held_out.client_ids
  assert len(dataset.train.client_ids) == 6
  assert len(dataset.unseen.train) == 2
  _, values_of, _ = experiment.own_values(config, '')
  for client in values_of(0):
    own = dataset.train.partition.of_client(int(client.client_id))
    np.testing.assert_array_equal(client.x, dataset.train.pool.read(own))
    assert len(own) == 9


def test_more_metrics_are_measured_or_refused(in_process):
  def resolve(**changes):
    return configuration.resolve('glyphs', 'fedss', changes)

  assert resolve(more_metrics='')['more_metrics'] == ''
  found = experiment.assemble(resolve(more_metrics='top5, hit@5'))
  assert found.metrics[0] == 'top1'
  assert found.metrics[-2:] == ('top5', 'hit@5')
  with pytest.raises(errors.InputError, match='propensity'):
    experiment.assemble(resolve(more_metrics='psp@1'))
  assert resolve(more_metrics='hit@5', best_by='hit@5')['best_by'] == 'hit@5'
  # Training examples of this task have one label, and its test examples have sets.
  given = {'num_classes': 20, 'num_features': 50, 'negatives': 5, 'more_metrics': 'train_top1'}
  assert 'train_top1' in assembled_words(given).metrics
  for name in ('top1', 'test_loss'):
    with pytest.raises(errors.InputError, match='with one label each'):
      assembled_words({**given, 'more_metrics': name})


def assembled_words(given):
  return experiment.assemble(configuration.resolve('sparse-words', 'fedss', given))


def test_the_prior_of_classes_is_that_of_training_examples_alone():
  """The pool also contains the test examples of users."""
  users, taken = np.int32([0, 0, 0, 1, 1, 1]), np.int32([0, 1, 2, 0, 1, 3])
  found = items.Histories(users, taken, np.arange(6.0), [*'ab'], [*'ijkl'])
  dataset = items.federated('mine', found, items.Options())
  counts = experiment._class_probabilities({'calibration': 'prior'}, dataset)
  assert counts.tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize(
  ('changes', 'warned'),
  [({'rounds': 8}, True), ({'rounds': 9}, False), ({'rounds': 9, 'clients_per_round': 1}, True)],
)
def test_training_warns_of_few_visits(changes, warned):
  given = {**small_data.FEATURES, 'clients_per_round': 2, **changes}
  found = experiment.assemble(configuration.resolve('features', 'fedss', given))
  assert any('participates in' in text for text in found.warnings) == warned
  task = tasks.get('glyphs-landmarks')  # The paper of this task has so few rounds.
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
  assert not told({**config, 'best_by': 'client_top1_mean'})
  for change in ({'early_stopping_patience': 3}, {'best_by': 'hit@10_validation'}):
    with pytest.raises(errors.InputError, match='do not have the examples'):
      told({**config, **change})


def test_a_model_of_items_has_one_table_where_they_are_tied():
  found = {}
  for is_tied in (True, False):
    how = {'num_classes': 30, 'num_clients': 20, 'tie_items': is_tied}
    config = configuration.resolve('items-demo', 'fedss', how)
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


def test_scores_of_clients_choose_a_round_only_apart_from_the_test(tmp_path):
  rows = pd.DataFrame({'x': range(60), 'class': [0, 1, 2] * 20})
  rows.to_csv(tmp_path / 'rows.csv', index=False)
  given = {'data_dir': str(tmp_path / 'rows.csv'), 'split': 'iid:4', 'evaluate_clients': 2}
  given |= {'best_by': 'client_top1_mean', 'client_test_fraction': 0.2, 'hidden_dim': 4}

  def assemble(**changes):
    return experiment.assemble(configuration.resolve('table', 'fedavg', {**given, **changes}))

  found = assemble(test_fraction=0.2)
  rows_of = found.dataset.train.pool.examples
  tested = {float(x) for block in found.dataset.test.blocks() for x in np.ravel(block.x)}
  assert not tested & set(np.ravel(rows_of(found.dataset.held_out.numbers).x).tolist())
  for changes in ({}, {'test_fraction': 0.2, 'client_test_fraction': 0.0}):
    with pytest.raises(errors.InputError, match='choose by test examples'):
      assemble(**changes)
