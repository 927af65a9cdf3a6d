"""A private run's export is the same with and without one client's data."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from tensorflow.core.protobuf import saved_model_pb2

from launch import export
from tasks import configuration, experiment
from tests.launch import test_evaluate
from tff_xc import errors
from tff_xc.measure import privacy_loss

COLUMNS = {'label_column': 'class', 'user_column': 'user'}
SMALL = {'hidden_dim': 4, 'embedding_dim': 4, 'clients_per_round': 4}
PRIVATE = {'dp': 'central', 'dp_epsilon': 8.0}
PUBLIC = {'classes': 'classes.txt', 'feature_bounds': '-9:9', 'feature_columns': 'a,b'}


@pytest.fixture
def here(tmp_path, monkeypatch):
  """Writes a table of nine users. Only the last user has a certain class and other numbers."""
  monkeypatch.chdir(tmp_path)
  random = np.random.default_rng(0)
  frame = pd.DataFrame(random.normal(size=[54, 2]), columns=['a', 'b'])
  frame['user'] = [f'u{i % 9}' for i in range(54)]
  frame['class'] = [('cat', 'dog', 'fox')[i % 3] for i in range(54)]
  alone = frame['user'] == 'u8'
  frame.loc[alone, ['a', 'b']] = 8.5
  frame.loc[alone, 'class'] = 'owl'
  frame.to_csv('with.csv', index=False)
  frame[~alone].to_csv('without.csv', index=False)
  (tmp_path / 'classes.txt').write_text('cat\ndog\nfox\nowl\nyak\n')
  return tmp_path


def config_of(data, **changes):
  given = {'data_dir': data, 'rounds': 2, 'eval_every': 1, **COLUMNS, **SMALL}
  return configuration.resolve('table', 'fedavg', {**given, **changes})


def constants(folder):
  """Returns the constants in the graphs of a SavedModel, except its variables."""
  content = (folder / 'saved_model.pb').read_bytes()
  [graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
  nodes = [
    *graph.graph_def.node,
    *(n for f in graph.graph_def.library.function for n in f.node_def),
  ]
  values = [n.attr['value'].tensor for n in nodes if n.op == 'Const']
  # Names in the checkpoint's bookkeeping depend on the order of creation, so leave them out.
  return sorted(v.SerializeToString() for v in values if v.dtype != 7)


@pytest.mark.slow
def test_one_client_changes_nothing_but_the_model(in_process, here):
  cards, texts, names, graphs, shapes = [], [], [], [], []
  env = {**os.environ, 'PYTHONPATH': str(pathlib.Path(__file__).parents[2])}
  for data in ('with', 'without'):
    summary = experiment.run(config_of(f'{data}.csv', test_fraction=0.2, **PRIVATE, **PUBLIC), data)
    for form in ('saved_model', 'npz'):
      folder = here / f'{data}_{form}'
      # Use another process, because TensorFlow numbers the names of functions in a process.
      flags = [f'--run_dir={data}', f'--output={folder}', f'--format={form}']
      subprocess.run([sys.executable, '-m', 'launch.export', *flags], check=True, env=env)
      cards.append(json.loads((folder / 'model.json').read_text()))
      texts.append((folder / 'README.md').read_text())
      names.append((folder / 'classes.csv').read_text())
    graphs.append(constants(here / f'{data}_saved_model'))
    with np.load(here / f'{data}_npz' / 'model.npz') as arrays:
      shapes.append({n: arrays[n].shape for n in arrays.files})
  for card in cards:  # TensorFlow's fingerprint has checksums of the weights as varints.
    card['bytes'] -= card['files'].pop('fingerprint.pb', 0)
  # The number of clients is public, and epsilon depends on it.
  epsilons = [card['privacy'].pop('epsilon') for card in cards]
  told = [f'epsilon {epsilon:.3g}' for epsilon in epsilons]
  texts = [t.replace(e, '') for t, e in zip(texts, told, strict=True)]
  assert len({len(text) for text in texts}) == 2  # One length for each format.
  for found in (cards, texts, names):
    assert found[:2] == found[2:]
  assert graphs[0] == graphs[1]
  assert shapes[0] == shapes[1]
  assert names[0].split() == ['class,name', '0,cat', '1,dog', '2,fox', '3,owl', '4,yak']
  assert epsilons[-1] == summary['epsilon']
  assert cards[0]['privacy'] == {'delta': 1e-5, 'dp': 'central', 'noise_seed': 'secret'}
  assert not cards[0].keys() & {'seed', 'scores', 'data'}


@pytest.mark.parametrize(
  ('changes', 'told'),
  [
    ({**PRIVATE, **PUBLIC, 'classes': ''}, 'classes'),
    ({**PRIVATE, **PUBLIC, 'feature_bounds': ''}, 'feature_bounds'),
    ({**PRIVATE, **PUBLIC, 'feature_columns': ''}, 'feature_columns'),
    ({**PRIVATE, **PUBLIC, 'feature_columns': ' ,'}, 'feature_columns'),
    ({'feature_bounds': ','}, 'LOW'),
    ({'feature_bounds': '-1e308:1e308'}, 'LOW'),
    ({'feature_bounds': 'a=0:1,a=0:2'}, 'twice'),
    ({'feature_bounds': '0:1e-320'}, 'LOW'),
    ({'feature_bounds': '9:-9'}, '9:-9'),
    ({'feature_bounds': 'a=1'}, 'a=1'),
    ({'feature_bounds': '0:1', 'standardize': False}, 'standardize'),
  ],
)
def test_what_would_tell_of_clients_is_refused(here, changes, told):
  with pytest.raises(errors.InputError, match=told):
    configuration.check_private(config_of('with.csv', **changes))


def test_the_card_of_a_private_run_has_no_exact_facts(here, monkeypatch):
  monkeypatch.setattr(privacy_loss, 'noise_multiplier', lambda *args: 1.0)  # It takes 15 seconds.
  for name, more in (('private', PRIVATE), ('plain', {})):
    given = {'rounds': 1, 'data_dir': 'with.csv', **COLUMNS, **SMALL, **PUBLIC}
    path = test_evaluate.untrained(here / name, 'table', **given, **more)
    export.run(str(path), name + '_export', 'npz')
  card, plain = (
    json.loads((here / f'{name}_export' / 'model.json').read_text())
    for name in ('private', 'plain')
  )
  assert plain.keys() - card.keys() == {'seed', 'scores', 'data'}
  assert card.keys() - plain.keys() == {'privacy'}
  assert plain['description'].keys() - card['description'].keys() == {
    'num_clients',
    'largest_label_set',
  }


def test_calibration_is_not_exported_of_a_private_run(here):
  config = config_of('with.csv', **PRIVATE, **PUBLIC)
  (here / 'run').mkdir()
  (here / 'run' / 'config.json').write_text(json.dumps(config))
  with pytest.raises(errors.InputError, match='calibrate'):
    export.run('run', 'export', calibrate=(10, 1, None))
  assert not (here / 'export').exists()


def test_classes_and_bounds_are_those_of_the_user(here):
  options = config_of('with.csv', **PUBLIC)['options']

  def read(**more):
    return experiment.tasks.get('table').read('with.csv', {**options, **more})

  (here / 'classes.txt').write_text('yak\nowl\n\n fox \ndog\ncat\n')
  found = read(feature_bounds='a=0:10,-1:1')
  assert found.class_names == ['yak', 'owl', 'fox', 'dog', 'cat']
  frame = pd.read_csv('with.csv')
  order = np.argsort(frame['user'], kind='stable')
  wanted = frame['class'].map(found.class_names.index)[order]
  x, y = found.train.pool.examples(found.train.partition.numbers)
  np.testing.assert_array_equal(y, wanted)
  np.testing.assert_allclose(x[:, 0], (frame['a'][order] - 5) / 5, rtol=1e-6)
  np.testing.assert_allclose(x[:, 1], frame['b'][order], rtol=1e-6)
  for text, bounds, told in (
    ('yak\nowl\nfox\ndog\ncat', 'a=0:10', "'b'"),
    ('yak\nowl\nfox\ndog\ncat', 'a=0:1,z=0:1,0:1', "'z'"),
    ('yak\nowl', '0:1', 'cat'),
  ):
    (here / 'classes.txt').write_text(text)
    with pytest.raises(errors.InputError, match=told):
      read(feature_bounds=bounds)
