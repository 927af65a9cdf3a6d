"""`--start_from`: training goes on from the weights of a run or an export."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from launch import exporting
from tasks import experiment
from tests import small_data
from tff_xc import errors
from tff_xc.experiment import checkpoints
from tff_xc.experiment import start

SOURCE = {
  'client_learning_rate': 0.3,
  'server_optimizer': 'sgd',
  'server_learning_rate': 1.0,
}


def run(path, algorithm='fedavg', rounds=1, **changes):
  given = {**small_data.GLYPHS, 'rounds': rounds, 'eval_every': 1, **changes}
  config = experiment.resolve('glyphs', algorithm, given)
  experiment.run(config, str(path))
  return pd.read_csv(path / 'metrics.csv')


@pytest.fixture(scope='module')
def source(tmp_path_factory):
  """A run of three rounds, after which scores differ from those of fresh weights."""
  path = tmp_path_factory.mktemp('source') / 'run'
  path.parent.mkdir(exist_ok=True)
  experiment.install_runtime(experiment.resolve('glyphs', 'fedavg'))
  return path, run(path, rounds=3, **SOURCE)


@pytest.mark.parametrize(
  ('algorithm', 'changes'),
  [
    ('fedss', {'negatives': 2}),
    pytest.param('fedavgm', {}, marks=pytest.mark.slow),
    pytest.param('fedaws', {'spreadout_neighbors': 2}, marks=pytest.mark.slow),
    pytest.param('turbosvm', {}, marks=pytest.mark.slow),
    # Clients have the frozen weights from the start.
    pytest.param('fedavg', {'trainable': 'head'}, marks=pytest.mark.slow),
    pytest.param('fedavg', {'dp': 'central'}, marks=pytest.mark.slow),
  ],
)
def test_round_0_scores_as_the_source_ends(
  in_process, source, tmp_path, algorithm, changes
):
  path, measured = source
  found = run(tmp_path / 'run', algorithm, start_from=str(path), **changes)
  scores = ['top1', 'train_top1']
  np.testing.assert_array_equal(found[scores].iloc[0], measured[scores].iloc[3])
  assert (measured[scores].iloc[0] != measured[scores].iloc[3]).any()


@pytest.mark.slow
def test_a_resumed_run_keeps_its_start_and_refuses_another(
  in_process, source, tmp_path
):
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


def test_an_export_gives_what_its_run_gives(source, tmp_path):
  path, _ = source
  exporting.run(str(path), str(tmp_path / 'export'), 'npz')
  of_run, of_export = start.read(path), start.read(tmp_path / 'export')
  for name, array in of_run.arrays.items():
    np.testing.assert_array_equal(of_export.arrays[name], array)
  assert of_run.class_names is None
  assert of_run.num_classes == of_export.num_classes == 10


def started(names, there, dim=4, **more):
  """Returns (fresh weights, weights that start from a source) and what is told."""
  _, model = small_data.images(num_classes=len(names))
  arrays = {
    'encoder/kernel': np.full([256, 4], 7, np.float32),
    'tables/class': np.arange(len(there) * dim, dtype=np.float32).reshape(
      -1, dim
    ),
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
  _, found, told = started(
    ['emu', 'cat', 'ant'], ['cat', 'dog', 'emu'], with_rows=False
  )
  np.testing.assert_array_equal(found.class_table, fresh.class_table)
  assert '0 of 3' in told


def test_what_does_not_fit_is_refused(tmp_path):
  with pytest.raises(errors.InputError, match='start_from_rows'):
    started(['a', 'b'], ['a', 'c'], dim=5)
  _, found, _ = started(['a', 'b'], ['a', 'c'], dim=5, with_rows=False)
  assert found.class_table.shape == (2, 4)
  _, model = small_data.images()
  arrays = {'tables/class': np.zeros([8, 4], np.float32)}
  for kernel, told in (([256, 9], r'256, 9'), (None, 'missing')):
    if kernel:
      arrays['encoder/kernel'] = np.zeros(kernel, np.float32)
    else:
      del arrays['encoder/kernel']
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


@pytest.mark.parametrize(
  ('changes', 'told'),
  [
    ({'start_from_rows': 'none'}, 'goes with'),
  ],
)
def test_flags_are_checked(changes, told):
  with pytest.raises(errors.InputError, match=told):
    experiment.resolve('glyphs', 'fedss', changes)


def test_a_start_that_is_not_there_is_refused_first(tmp_path):
  config = experiment.resolve('glyphs', 'fedss', {'start_from': 'nowhere'})
  with pytest.raises(errors.InputError, match='no folder'):
    experiment.run(config, tmp_path / 'run')
