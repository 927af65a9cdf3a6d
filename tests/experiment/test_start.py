"""Training with `--start_from` starts from the weights of a run or an export."""

import dataclasses
import json
import shutil
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from launch import export, trained
from tasks import configuration, experiment
from tests import small_data
from tests.launch import test_evaluate
from tff_xc import errors, heads
from tff_xc.encoders import encoder
from tff_xc.experiment import checkpoints, same_run, start, training

SOURCE = {'client_learning_rate': 0.3, 'server_optimizer': 'sgd', 'server_learning_rate': 1.0}


def run(path, algorithm='fedavg', rounds=1, **changes):
  given = {**small_data.GLYPHS, 'rounds': rounds, 'eval_every': 1, **changes}
  config = configuration.resolve('glyphs', algorithm, given)
  experiment.run(config, str(path))
  return pd.read_csv(path / 'metrics.csv')


@pytest.fixture
def untrained(in_process, tmp_path):
  """Returns the directory of a run whose checkpoint has the initial weights of another seed."""
  path = tmp_path / 'untrained'
  return test_evaluate.untrained(path, 'glyphs', 'fedavg', seed=1, **small_data.GLYPHS)


def test_round_0_scores_as_an_untrained_source(in_process, untrained, tmp_path, monkeypatch):
  """The run is interrupted before round 1."""
  monkeypatch.setattr(training.interrupts, 'check', mock.Mock(side_effect=KeyboardInterrupt))
  with test_evaluate.without_rounds(), pytest.raises(KeyboardInterrupt):
    run(tmp_path / 'run', 'fedss', negatives=2, start_from=str(untrained))
  [row] = pd.read_csv(tmp_path / 'run' / 'metrics.csv').to_dict('records')
  checkpoint = untrained / 'checkpoints' / 'round_1.npz'
  shutil.copy(checkpoint, checkpoint.with_name('round_0.npz'))
  found = trained.restore(str(untrained), round_number=0)
  assert found.rounds == 0
  of_source = found.evaluator(found.weights)
  others = found.evaluator(found.algorithm.model.init(tf.constant([0, 0])))
  for score in ('top1', 'train_top1'):
    assert row[score] == pytest.approx(of_source[score], abs=1e-9)
    assert row[score] != others[score]


@pytest.fixture(scope='module')
def source(tmp_path_factory):
  """A run of three rounds. Its scores differ from those of random initial weights."""
  path = tmp_path_factory.mktemp('source') / 'run'
  experiment.install_runtime(configuration.resolve('glyphs', 'fedavg'))
  return path, run(path, rounds=3, **SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [
    ('fedss', {'negatives': 2}),
    ('fedavgm', {}),
    ('fedaws', {'spreadout_neighbors': 2}),
    ('turbosvm', {}),
    # Clients have the frozen weights from the start.
    ('fedavg', {'trainable': 'head'}),
    ('fedavg', {'dp': 'central'}),
  ],
)
def test_round_0_scores_as_the_source_ends(in_process, source, tmp_path, algorithm, changes):
  path, measured = source
  found = run(tmp_path / 'run', algorithm, start_from=str(path), **changes)
  scores = ['top1', 'train_top1']
  np.testing.assert_array_equal(found[scores].iloc[0], measured[scores].iloc[3])
  assert (measured[scores].iloc[0] != measured[scores].iloc[3]).any()


@pytest.mark.slow
def test_a_resumed_run_keeps_its_start_and_refuses_another(in_process, source, tmp_path):
  copied = tmp_path / 'source'
  shutil.copytree(source[0], copied)
  given = {'start_from': str(copied), 'trainable': 'head'}
  whole, half = tmp_path / 'whole', tmp_path / 'half'
  expected = run(whole, rounds=3, **given)
  run(half, rounds=2, **given)
  moved = tmp_path / 'moved'
  copied.rename(moved)
  found = run(half, rounds=3, **{**given, 'start_from': str(moved)})
  same = [c for c in found if c != 'seconds']
  pd.testing.assert_frame_equal(found[same], expected[same])
  run(moved, rounds=4, **SOURCE)
  with pytest.raises(errors.InputError, match='start_from'):
    run(half, rounds=4, **{**given, 'start_from': str(moved)})
  config = json.loads((half / 'config.json').read_text())
  assert len(config['started_from']) == 16


def test_an_export_gives_what_its_run_gives(in_process, untrained, tmp_path):
  export.run(str(untrained), str(tmp_path / 'export'), 'npz')
  of_run, of_export = start.read(untrained), start.read(tmp_path / 'export')
  for name, array in of_run.arrays.items():
    np.testing.assert_array_equal(of_export.arrays[name], array)
  assert of_run.class_names is None
  assert of_run.num_classes == of_export.num_classes == 10


def test_columns_of_an_export_are_compared(in_process, tmp_path):
  rows = pd.DataFrame({'class': ['a', 'b'] * 6, 'user_id': [*'uvw'] * 4, 'x': 1.0, 'y': range(12)})
  rows.to_csv(tmp_path / 'rows.csv', index=False)
  given = {'data_dir': str(tmp_path / 'rows.csv'), 'hidden_dim': 4, 'embedding_dim': 4}
  path = test_evaluate.untrained(
    tmp_path / 'run', 'table', 'fedavg', feature_columns='x,y', **given
  )
  export.run(str(path), str(tmp_path / 'export'), 'npz')
  for name in ('run', 'export'):
    given = {**given, 'feature_columns': 'y,x', 'start_from': str(tmp_path / name)}
    with pytest.raises(errors.InputError, match='features begin with x, y'):
      experiment.assemble(configuration.resolve('table', 'fedavg', given))


def test_tied_items_start_from_an_export(in_process, tmp_path):
  given = {'num_classes': 40, 'num_clients': 15, 'embedding_dim': 8, 'clients_per_round': 4}
  path = test_evaluate.untrained(tmp_path / 'run', 'items-demo', 'fedss', **given)
  export.run(str(path), str(tmp_path / 'export'), 'npz')
  source = start.read(tmp_path / 'export')
  made = experiment.assemble(configuration.resolve('items-demo', 'fedss', given))
  how, model = made.dataset.preprocessing, made.algorithm.model
  start.check_features(model, how, ['other', 'items'], source, 'there')


def started(names, there, dim=4, **more):
  """Returns (random weights, weights that start from a source), and the message."""
  _, model = small_data.images(num_classes=len(names))
  arrays = {
    'encoder/kernel': np.full([256, 4], 7, np.float32),
    'tables/class': np.arange(len(there) * dim, dtype=np.float32).reshape(-1, dim),
  }
  found = start.Source(arrays, there, len(there))
  made, _, told = start.started(model, names, found, 'there', **more)
  return model.init([1, 2]), made.init([1, 2]), told


def test_rows_go_to_the_classes_of_their_names():
  fresh, found, told = started(['emu', 'cat', 'ant'], ['cat', 'dog', 'emu'])
  assert (found.encoder['kernel'].numpy() == 7).all()
  rows = found.class_table.numpy()
  np.testing.assert_array_equal(rows[0], [8, 9, 10, 11])
  np.testing.assert_array_equal(rows[1], [0, 1, 2, 3])
  np.testing.assert_array_equal(rows[2], fresh.class_table[2])
  assert '2 of 3' in told
  _, found, told = started(['emu', 'cat', 'ant'], ['cat', 'dog', 'emu'], with_rows=False)
  np.testing.assert_array_equal(found.class_table, fresh.class_table)
  assert '0 of 3' in told


def test_what_does_not_fit_is_refused(tmp_path):
  with pytest.raises(errors.InputError, match='start_from_rows'):
    started(['a', 'b'], ['a', 'c'], dim=5)
  _, found, _ = started(['a', 'b'], ['a', 'c'], dim=5, with_rows=False)
  assert found.class_table.shape == (2, 4)
  _, model = small_data.images()
  table = {'tables/class': np.zeros([8, 4], np.float32)}
  for arrays, told in (
    ({**table, 'encoder/kernel': np.zeros([256, 9], np.float32)}, r'256, 9'),
    (table, 'missing'),
  ):
    with pytest.raises(errors.InputError, match=told):
      start.started(model, None, start.Source(arrays, None, 8), 'there')
  (tmp_path / 'run').mkdir()
  with pytest.raises(errors.InputError, match='neither'):
    start.read(tmp_path / 'run')
  checkpoints.prepare(tmp_path / 'run')
  (tmp_path / 'run' / 'checkpoints' / 'round_3.npz').write_bytes(b'no archive')
  (tmp_path / 'run' / 'config.json').write_text('{}')
  with pytest.raises(errors.InputError, match='damaged'):
    start.read(tmp_path / 'run')


def test_features_that_mean_something_else_are_refused():
  table = {'columns': ['a', 'b']}
  source = start.Source({}, ['x', 'y'], 2, table)
  model = small_data.images()[1]
  start.check_features(model, table, ['z'], source, 'there')
  with pytest.raises(errors.InputError, match='feature_columns'):
    start.check_features(model, {'columns': ['b', 'a']}, ['x', 'y'], source, 'there')
  lists = {'history': 5, 'columns': {}}
  # If each item has one row, rows are matched by class names.
  tied = dataclasses.replace(model.encoder, tied={'feature': encoder.feature_table(8)})
  one_row = dataclasses.replace(model, encoder=tied)
  start.check_features(one_row, lists, ['y', 'x'], source, 'there')
  # All other models, such as FedMLH's, have rows of features, which go by the order.
  start.check_features(model, lists, ['x', 'y'], source, 'there')
  with pytest.raises(errors.InputError, match='items'):
    start.check_features(model, lists, ['y', 'x'], source, 'there')


def test_buckets_do_not_go_by_the_names_of_as_many_classes():
  model = small_data.images()[1]
  hashed = heads.HashedHead(num_tables=2, num_buckets=4, num_labels=8)
  model = dataclasses.replace(model, head=hashed)
  names = [*'abcdefgh']

  def of(there):
    return start._same(model, names, start.Source(arrays, there, 8))

  arrays = {'tables/class': np.zeros([8, 5])}
  assert len(of(names)) == 8
  assert not len(of(names[::-1]))
  # The rows of buckets are not those of classes.
  model, arrays = small_data.images()[1], {'tables/class': np.zeros([4, 5])}
  assert not len(of(names))


def test_a_finished_run_of_another_start_is_not_taken_for_this_one(tmp_path):
  """A sweep and `launch.reproduce` check this before they read data."""
  first, second, path = (tmp_path / name for name in ('first', 'second', 'run'))
  for folder in (first, second, path):
    folder.mkdir()

  def of(source):
    return configuration.resolve('glyphs', 'fedss', {'start_from': source and str(source)})

  for began, goes_on in ((first, second), (first, ''), ('', first)):
    (path / 'config.json').write_text(json.dumps(of(began)))
    same_run.check_config(path, of(began))
    with pytest.raises(errors.InputError, match='start'):
      same_run.check_config(path, of(goes_on))
  (path / 'config.json').write_text(json.dumps(of(first)))
  first.rename(tmp_path / 'moved')
  same_run.check_config(path, of(tmp_path / 'moved'))


def test_a_start_that_is_not_there_is_refused_first(tmp_path):
  config = configuration.resolve('glyphs', 'fedss', {'start_from': 'nowhere'})
  with pytest.raises(errors.InputError, match='not a folder'):
    experiment.run(config, tmp_path / 'run')
